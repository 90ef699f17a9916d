"""A store in memory for tests in virtual time: what redrivers ask of operations, leases and dead letters, no more.

The real stores work in threads, which virtual time does not wait for. It keeps the contract's rules: one holder of a
lease with a growing fence, `take` before `record`, what an older fence was sending is in doubt.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from redrive.records import (
    ClaimedLetter,
    ItemState,
    MessageContent,
    NewOperation,
    Operation,
    OperationKind,
    OperationState,
    RedriveTarget,
    RetryRule,
    Selection,
    SendResult,
    Status,
)
from redrive.stores import Lease, LeaseLost, Store, StoreUnavailable
from redrive.wire import Properties


@dataclass
class MemoryLetter:
    id: str
    queue: str = "orders"
    body: bytes = b"{}"
    status: Status = Status.PENDING
    redrives: int = 0
    returns: int = 0
    due_at_ms: int | None = None
    silent_at_ms: int | None = None
    reason: str = ""
    dead_at_ms: int = 0


@dataclass
class MemoryOperation:
    row: Operation
    items: dict[str, tuple[ItemState, int]]
    """State and fence by dead letter."""
    reasons: dict[str, str] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)

    def counted(self) -> Operation:
        counts = Counter(state for state, _ in self.items.values())
        return replace(
            self.row,
            sent=counts[ItemState.SENT],
            refused=counts[ItemState.REFUSED],
            in_doubt=counts[ItemState.IN_DOUBT],
            skipped=counts[ItemState.SKIPPED],
        )

    def states(self) -> dict[str, int]:
        return dict(Counter(str(state) for state, _ in self.items.values()))


class MemoryStore:
    """`away` makes every call fail as a database that is gone; `rule` is the only rule of auto-retry."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.clock_ms = clock_ms
        self.away = False
        self.rows: dict[str, MemoryLetter] = {}
        self.all: dict[str, MemoryOperation] = {}
        self.held_leases: dict[str, Lease] = {}
        self.fences: Counter[str] = Counter()
        self.rule: RetryRule | None = None
        self.calls: list[str] = []
        self.leases = self.operations = self.letters = self.rules = self

    @property
    def store(self) -> Store:
        return cast(Store, self)

    def add(self, *letters: MemoryLetter) -> None:
        self.rows.update({letter.id: letter for letter in letters})

    def come_back(self, id: str, now_ms: int) -> None:
        """What the collector does when a copy dies again."""
        letter = self.rows[id]
        letter.returns += 1
        letter.silent_at_ms = None
        letter.dead_at_ms = now_ms
        due = None if self.rule is None else self.rule.due_at_ms(died_at_ms=now_ms, recurrences=letter.returns)
        letter.due_at_ms = due
        letter.status = Status.PENDING if due is not None or self.rule is None else Status.FAILED

    def statuses(self) -> dict[str, str]:
        return {letter.id: str(letter.status) for letter in self.rows.values()}

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.away:
            raise StoreUnavailable("memory", "it is away", "wait")

    # leases
    async def acquire(self, name: str, owner: str, *, ttl_ms: int) -> Lease | None:
        self._call("acquire")
        held = self.held_leases.get(name)
        if held is not None and held.until_ms > self.clock_ms() and held.owner != owner:
            return None
        self.fences[name] += 1
        lease = Lease(name=name, owner=owner, fence=self.fences[name], until_ms=self.clock_ms() + ttl_ms)
        self.held_leases[name] = lease
        return lease

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Lease:
        self._call("renew")
        self._check(lease)
        self.held_leases[lease.name] = renewed = replace(lease, until_ms=self.clock_ms() + ttl_ms)
        return renewed

    async def release(self, lease: Lease) -> None:
        self._call("release")
        if self.held_leases.get(lease.name, lease).fence == lease.fence:
            self.held_leases.pop(lease.name, None)

    def _check(self, lease: Lease) -> None:
        held = self.held_leases.get(lease.name)
        if held is None or held.fence != lease.fence:
            raise LeaseLost(lease.name, lease.owner)

    # operations
    async def create(self, new: NewOperation, *, id: str, now_ms: int) -> Operation:
        self._call("create")
        chosen = new.selection.ids or tuple(
            letter.id for letter in self.rows.values() if letter.status in (Status.PENDING, Status.FAILED)
        )
        row = Operation(
            id=id,
            kind=new.kind,
            state=OperationState.WAITING,
            selection_text="",
            target=new.target,
            rate_per_s=new.rate_per_s,
            keep_attempts=new.keep_attempts,
            ramp=new.ramp,
            settle_s=new.settle_s,
            who=new.who,
            why=new.why,
            total=len(chosen),
            sent=0,
            refused=0,
            in_doubt=0,
            skipped=0,
            created_at_ms=now_ms,
            started_at_ms=None,
            ended_at_ms=None,
            note="",
        )
        self.all[id] = MemoryOperation(row, dict.fromkeys(chosen, (ItemState.QUEUED, 0)))
        return row

    async def create_due(
        self, *, id: str, who: str, now_ms: int, limit: int, vhost: str | None = None
    ) -> Operation | None:
        self._call("create_due")
        busy = {one for each in self.all.values() for one, (state, _) in each.items.items() if state == "queued"}
        due = [
            letter.id
            for letter in self.rows.values()
            if letter.status is Status.PENDING
            and letter.due_at_ms is not None
            and letter.due_at_ms <= now_ms
            and letter.id not in busy
        ]
        if not due or self.rule is None:
            return None
        new = NewOperation(
            kind=OperationKind.AUTO_RETRY,
            selection=Selection(ids=tuple(due[:limit])),
            settle_s=self.rule.settle_ms / 1000,
            who=who,
        )
        return await self.create(new, id=id, now_ms=now_ms)

    async def claim(self, id: str, lease: Lease, *, now_ms: int) -> Operation | None:
        self._call("claim")
        self._check(lease)
        found = self.all.get(id)
        if found is None or found.row.state not in (OperationState.WAITING, OperationState.RUNNING):
            return None
        for one, (state, fence) in found.items.items():
            if state is ItemState.SENDING and fence < lease.fence:
                found.items[one] = (ItemState.IN_DOUBT, fence)
                self.rows[one].status = Status.IN_DOUBT
        found.row = replace(found.row, state=OperationState.RUNNING)
        return found.counted()

    async def take(self, id: str, lease: Lease, *, limit: int, now_ms: int, turn: int) -> tuple[ClaimedLetter, ...]:
        self._call("take")
        self._check(lease)
        found = self.all[id]
        if found.row.state is not OperationState.RUNNING:
            return ()
        taken: list[ClaimedLetter] = []
        for one, (state, _) in found.items.items():
            if state is not ItemState.QUEUED or len(taken) == limit:
                continue
            letter = self.rows[one]
            if letter.status not in (Status.PENDING, Status.FAILED, Status.IN_DOUBT):
                found.items[one] = (ItemState.SKIPPED, lease.fence)
                continue
            was_in_doubt = letter.status is Status.IN_DOUBT
            found.items[one] = (ItemState.SENDING, lease.fence)
            letter.status, letter.redrives = Status.RETRYING, letter.redrives + 1
            taken.append(claimed_letter(letter, was_in_doubt))
        return tuple(taken)

    async def record(
        self, id: str, lease: Lease, results: "list[SendResult] | tuple[SendResult, ...]", *, now_ms: int
    ) -> Operation:
        self._call("record")
        self._check(lease)
        found = self.all[id]
        for one in results:
            found.items[one.id] = (one.state, lease.fence)
            found.reasons[one.id] = one.reason
            letter = self.rows[one.id]
            letter.reason = one.reason
            if one.state is ItemState.SENT:
                letter.silent_at_ms = now_ms + round(found.row.settle_s * 1000)
                letter.due_at_ms = None
            elif one.state is ItemState.IN_DOUBT:
                letter.status = Status.IN_DOUBT
            else:
                letter.status = Status.PENDING
        if not any(state in (ItemState.QUEUED, ItemState.SENDING) for state, _ in found.items.values()):
            found.row = replace(found.row, state=OperationState.DONE, ended_at_ms=now_ms)
        return found.counted()

    async def record_and_take(
        self,
        id: str,
        lease: Lease,
        results: "list[SendResult] | tuple[SendResult, ...]",
        *,
        limit: int,
        now_ms: int,
        turn: int,
    ) -> tuple[Operation, tuple[ClaimedLetter, ...]]:
        self._call("record_and_take")
        await self.record(id, lease, results, now_ms=now_ms)
        taken = await self.take(id, lease, limit=limit, now_ms=now_ms, turn=turn) if limit else ()
        return self.all[id].counted(), taken

    async def pause(self, id: str, note: str, *, now_ms: int, who: str = "ada") -> Operation:
        self._call("pause")
        return self._change(id, OperationState.PAUSED, note)

    async def resume(self, id: str, *, now_ms: int, who: str = "ada") -> Operation:
        self._call("resume")
        return self._change(id, OperationState.WAITING, "")

    def _change(self, id: str, state: OperationState, note: str) -> Operation:
        found = self.all[id]
        if found.row.state not in (OperationState.DONE, OperationState.CANCELLED):
            found.row = replace(found.row, state=state, note=note)
        return found.counted()

    async def waiting(self, *, vhost: str | None = None) -> tuple[str, ...]:
        self._call("waiting")
        return tuple(
            id
            for id, one in self.all.items()
            if one.row.state is OperationState.WAITING
            or (one.row.state is OperationState.RUNNING and not self._is_held(f"operation:{id}"))
        )

    def _is_held(self, name: str) -> bool:
        held = self.held_leases.get(name)
        return held is not None and held.until_ms > self.clock_ms()

    async def apply_changes(self, *, now_ms: int) -> bool:
        return True

    async def silent_queues(self, *, now_ms: int, limit: int, vhost: str) -> tuple[int, frozenset[str]]:
        """It knows nothing of targets."""
        return 0, frozenset()

    async def resolve_silent(self, *, now_ms: int, limit: int, **_: Any) -> int:
        self._call("resolve_silent")
        silent = [
            letter
            for letter in self.rows.values()
            if letter.status is Status.RETRYING and letter.silent_at_ms is not None and letter.silent_at_ms <= now_ms
        ]
        for letter in silent[:limit]:
            letter.status = Status.RESOLVED
        return len(silent[:limit])

    async def get(self, id: str) -> Any:
        """An operation or a dead letter; their ids differ."""
        self._call("get")
        if id in self.rows:
            return replace(self.rows[id])
        return self.all[id].counted() if id in self.all else None


def redrive_of(*ids: str, target: RedriveTarget | None = None, **fields: Any) -> NewOperation:
    return NewOperation(
        kind=OperationKind.REDRIVE,
        selection=Selection(ids=ids),
        target=RedriveTarget() if target is None else target,
        who="ann",
        **fields,
    )


def claimed_letter(letter: MemoryLetter, was_in_doubt: bool) -> ClaimedLetter:
    return ClaimedLetter(
        id=letter.id,
        vhost="/",
        queue=letter.queue,
        dlq="orders.parked",
        dlq_exchange="",
        dlq_routing_key="orders.parked",
        content=MessageContent(properties=Properties.of(message_id=letter.id).raw, body=letter.body),
        redrives=letter.redrives,
        attempts=None,
        was_in_doubt=was_in_doubt,
    )
