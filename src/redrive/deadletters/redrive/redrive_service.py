"""What people do about redrives: plan one, start it, pause, resume, cancel it. Requests are checked, and refused in a
sentence.

A plan changes nothing: it counts exactly what would be taken and looks at the targets. Starting one freezes the
selection in the store; a redriver runs it.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from redrive.deadletters.actions.dead_letter_service import ActionRefused, RecordNotFound, check_reason
from redrive.deadletters.redrive.copies import targets_of
from redrive.deadletters.redrive.preflight import Preflight, outside_scope
from redrive.records import (
    NewOperation,
    Operation,
    OperationKind,
    OperationState,
    Preview,
    RedriveTarget,
    Selection,
    make_id,
    may_send,
)
from redrive.stores import Store, UnknownOperation

CheckTargets: TypeAlias = Callable[[Mapping[str, int], RedriveTarget], Awaitable[Preflight]]
"""How many of each failed queue, the target → its preflight: `check_targets` on a connection."""
_RAMP_STEPS_MAX = 20
_PLACEHOLDER = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """What an operation would take, and the health of its targets; None where no broker was asked."""

    preview: Preview
    preflight: Preflight | None


class RedriveService:
    """Redrives of one store. `random_bits` is for ids; without `check_targets` no broker is asked."""

    def __init__(
        self,
        store: Store,
        *,
        clock_ms: Callable[[], int],
        random_bits: Callable[[], int],
        check_targets: CheckTargets | None = None,
    ) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._luck = random_bits
        self._check_targets = check_targets

    async def plan(self, new: NewOperation) -> RedrivePlan:
        """The dry run. Raises ActionRefused for a bad request; the findings about targets are in the plan."""
        check_operation(new)
        preview = await self._store.operations.preview(new.selection, now_ms=self._clock_ms())
        preflight = None
        # Restored dead letters go to the queues they were collected from, which the caller looks at.
        if self._check_targets is not None and preview.total and new.kind is not OperationKind.RESTORE:
            preflight = await self._check(self._check_targets, preview, new)
        return RedrivePlan(preview=preview, preflight=preflight)

    async def _check(self, check: CheckTargets, preview: Preview, new: NewOperation) -> Preflight:
        """Checks the targets that the caller may send to. The findings about others are the same whether they exist or
        not, because no broker is asked about them."""
        within: Counter[str] = Counter()
        outside: Counter[tuple[str, str | None]] = Counter()
        for (queue, dlq), count in preview.places.items():
            ((exchange, key),) = targets_of({queue: count}, new.target)
            if may_send(new.queues, dlq=dlq, exchange=exchange, routing_key=key or ""):
                within[queue] += count
            else:
                outside[exchange, key] += count
        found = await check(within, new.target) if within else Preflight(targets=(), findings=())
        beyond = [outside_scope(*where, count) for where, count in sorted(outside.items(), key=str)]
        return replace(found, findings=(*found.findings, *beyond))

    async def start(self, new: NewOperation) -> Operation:
        """Creates the operation, to be run by a redriver. Raises ActionRefused, TargetRefused, IdempotencyConflict."""
        plan = await self.plan(new)
        # With an idempotency key the answer may be an operation that has long taken everything.
        if plan.preview.total == 0 and new.idempotency_key is None:
            raise ActionRefused(_nothing(plan.preview))
        if plan.preflight is not None:
            plan.preflight.require()
        now_ms = self._clock_ms()
        return await self._store.operations.create(new, id=make_id(now_ms, self._luck()), now_ms=now_ms)

    async def retry_manually(self, letter_id: str, *, who: str, why: str = "") -> Operation:
        """Bookly's `retryManually`: an operation for this one dead letter, to its failed queue."""
        if await self._store.letters.get(letter_id) is None:
            raise RecordNotFound(f"there is no dead letter {letter_id}")
        new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=(letter_id,)), who=who, why=why)
        return await self.start(new)

    async def pause(self, operation_id: str, *, who: str) -> Operation:
        """Pauses it after the current batch."""
        check_reason(who, "")
        await self._open(operation_id)
        return await self._store.operations.pause(operation_id, f"paused by {who}", now_ms=self._clock_ms(), who=who)

    async def resume(self, operation_id: str, *, who: str) -> Operation:
        """Lets a paused one wait for a redriver again."""
        check_reason(who, "")
        operation = await self._open(operation_id)
        if operation.state is not OperationState.PAUSED:
            raise ActionRefused(f"operation {operation_id} is {operation.state}, not paused")
        return await self._store.operations.resume(operation_id, now_ms=self._clock_ms(), who=who)

    async def cancel(self, operation_id: str, *, who: str) -> Operation:
        """Ends it after the current batch; what is queued stays a dead letter."""
        check_reason(who, "")
        await self._open(operation_id)
        return await self._store.operations.cancel(operation_id, who=who, now_ms=self._clock_ms())

    async def _open(self, operation_id: str) -> Operation:
        operation = await self._store.operations.get(operation_id)
        if operation is None:
            raise UnknownOperation(operation_id)
        if operation.state in (OperationState.DONE, OperationState.CANCELLED):
            raise ActionRefused(f"operation {operation_id} has ended: it is {operation.state}")
        return operation


def check_operation(new: NewOperation) -> None:
    """Raises ActionRefused for a bad request."""
    check_reason(new.who, new.why)
    selection = new.selection
    if selection.ids and selection.filter is not None:
        raise ActionRefused("choose dead letters by ids or by a filter, not by both")
    if not selection.ids and selection.filter is None:
        raise ActionRefused("choose which dead letters: by ids, by a filter, or all of them by an empty filter")
    if selection.limit is not None and selection.limit < 1:
        raise ActionRefused(f"a limit of {selection.limit} takes nothing")
    if new.rate_per_s is not None and not 0 < new.rate_per_s < 1_000_000:
        raise ActionRefused(f"a rate of {new.rate_per_s:g} messages a second can't be kept; it must be above zero")
    if len(new.ramp) > _RAMP_STEPS_MAX or any(step < 1 for step in new.ramp):
        raise ActionRefused(f"a ramp is at most {_RAMP_STEPS_MAX} batches of one or more, such as 1, 2, 5, 20")
    if not new.settle_s > 0:
        raise ActionRefused("the time after which silence counts as resolved must be above zero")
    for name in (new.target.exchange, new.target.routing_key):
        if name is not None and _PLACEHOLDER.search(name.replace("{queue}", "")):
            raise ActionRefused(f"the target {name!r} has a placeholder other than {{queue}}")


def _nothing(preview: Preview) -> str:
    alone = ", ".join(f"{count:,} {status}" for status, count in sorted(preview.left_alone.items()) if count)
    if not alone:
        return "no dead letter matches; nothing to send back"
    return f"nothing to send back: the matching dead letters can't be redriven now ({alone})"
