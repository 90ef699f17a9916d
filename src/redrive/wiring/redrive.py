"""Redrives: a redriver on the store and a connection, for `redrive dlq` and the admin API; and a look at queues."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from redrive.client import Client
from redrive.core import NULL_OBSERVER, Observer
from redrive.deadletters import (
    AutoRetry,
    LeaseHolder,
    PeekResult,
    Preflight,
    RedriveOptions,
    RedrivePlan,
    Redriver,
    RedriverParts,
    RedriveService,
    RunsElsewhere,
    check_targets,
    judge_for_witness,
    keep_collectors_away,
    limits_from_management,
    peek,
)
from redrive.inspection import exchange_exists, queue_state
from redrive.management import Management
from redrive.records import (
    Filter,
    LetterEvent,
    NameTerm,
    NewOperation,
    Operation,
    OperationKind,
    OperationState,
    RedriveTarget,
    RetryRule,
    Selection,
    statuses_allowing,
)
from redrive.stores import Store
from redrive.wiring.connection_settings import ConnectionSettings
from redrive.wiring.machine import new_random_bits, owner_name

_POLL_INTERVAL_S = 0.5
_PAGE = 500


class RedriveBroker:
    """A connected broker that dead letters are sent to: checks targets, plans and runs operations."""

    def __init__(
        self,
        store: Store,
        client: Client,
        management: Management,
        *,
        observer: Observer = NULL_OBSERVER,
        has_witness: bool = False,
        options: RedriveOptions | None = None,
    ) -> None:
        parts = RedriverParts(
            store=store,
            client=client,
            owner=owner_name(),
            clock_ms=store.clock_ms,
            observer=observer,
            has_witness=has_witness,
            options=RedriveOptions() if options is None else options,
        )
        self.client = client
        self.redriver = Redriver(parts)
        self.service = RedriveService(
            store, clock_ms=store.clock_ms, random_bits=new_random_bits, check_targets=self._check
        )
        self.auto_retry = AutoRetry(self.redriver, random_bits=new_random_bits)
        self._store = store
        self._observer = observer
        self.management = management

    async def plan(self, request: NewOperation) -> RedrivePlan:
        """What a request would send, and the state of its targets. Raises as `RedriveService.plan` does."""
        plan = await self.service.plan(request)
        if request.kind is not OperationKind.RESTORE or not plan.preview.total:
            return plan
        found = await self._check(await self._dead_letter_queues(request.selection), RedriveTarget())
        # Nobody should consume a dead-letter queue.
        findings = tuple(one for one in found.findings if one.code != "no-consumers")
        return replace(plan, preflight=replace(found, findings=findings))

    @asynccontextmanager
    async def without_collectors(self, request: NewOperation) -> AsyncIterator[None]:
        """Nobody collects the queues of what is restored, while the block runs and afterwards until they are resumed.

        Raises `StillCollected`. Does nothing for other kinds of operations.
        """
        if request.kind is not OperationKind.RESTORE:
            yield
            return
        async with keep_collectors_away(
            LeaseHolder(store=self._store, owner=owner_name(), clock_ms=self._store.clock_ms, observer=self._observer),
            self.client.target.vhost,
            await self._dead_letter_queues(request.selection),
            who=request.who,
        ):
            yield

    async def run(self, operation_id: str, *, stop: asyncio.Event) -> Operation:
        """Runs an operation until it has ended or is paused; if another process runs it, follows that.

        Raises as `Redriver.run` does, but for `RunsElsewhere`.
        """
        while True:
            try:
                return await self.redriver.run(operation_id, stop=stop)
            except RunsElsewhere:
                found = await self._store.operations.get(operation_id)
                if found is not None and found.state not in (OperationState.WAITING, OperationState.RUNNING):
                    return found
                if stop.is_set():
                    return await self._store.operations.pause(
                        operation_id, "paused by hand", now_ms=self._store.clock_ms(), who=found.who if found else ""
                    )
                await asyncio.sleep(_POLL_INTERVAL_S)

    async def peek(self, queue: str, limit: int) -> PeekResult:
        """The first messages of a queue, which stay in it. Raises as `peek` does."""
        return await peek(self.client, self.management, queue, limit)

    async def messages_ready(self, queue: str) -> int | None:
        """How many messages of a queue are ready; None: there is no such queue. Raises `ClientError`, TimeoutError."""
        state = await queue_state(self.client, queue)
        return None if state is None else state.messages_ready

    async def has_exchange(self, name: str) -> bool:
        """Whether there is an exchange of this name. Raises `ClientError`, `TimeoutError`."""
        return await exchange_exists(self.client, name)

    async def _dead_letter_queues(self, selection: Selection) -> dict[str, int]:
        """The dead-letter queues of what is selected, and how many of each may be sent."""
        chosen = Filter() if selection.filter is None else selection.filter
        if selection.ids:
            chosen = Filter((NameTerm(field="id", values=selection.ids),))
        claimable = statuses_allowing(LetterEvent.CLAIMED)
        found: Counter[str] = Counter()
        cursor = None
        while True:
            page = await self._store.letters.page(chosen, limit=_PAGE, cursor=cursor, now_ms=self._store.clock_ms())
            found.update(one.dlq for one in page.letters if one.status in claimable)
            cursor = page.next_cursor
            if cursor is None:
                return dict(found)

    async def _check(self, queues: Mapping[str, int], target: RedriveTarget) -> Preflight:
        found = await check_targets(self.client, queues, target, limits_of=limits_from_management(self.management))
        return judge_for_witness(found) if self.redriver.parts.has_witness else found


async def declare_rules(connections: ConnectionSettings, store: Store) -> tuple[str, ...]:
    """Stores the rules that the file declares with `auto_retry:`; returns the scopes where a person's rule holds."""
    compiled = None if connections.loaded is None else connections.loaded.compiled
    if compiled is None:
        return ()
    rules = [
        RetryRule(
            scope=f"queue:{queue.name}",
            enabled=said.is_on,
            attempts=said.attempts,
            first_ms=said.first_ms,
            ceiling_ms=said.max_ms,
            settle_ms=said.settle_ms,
        )
        for queue in compiled.declared
        if (said := queue.auto_retry) is not None
    ]
    return await store.rules.declare(rules, [one.name for one in compiled.declared], now_ms=store.clock_ms())


@asynccontextmanager
async def opened_broker(
    connections: ConnectionSettings, store: Store, *, observer: Observer = NULL_OBSERVER, has_witness: bool = False
) -> AsyncIterator[RedriveBroker]:
    """A connected broker with a redriver; `has_witness`: second copies show which in-doubt copies arrived.

    Raises `InvalidUrl`, `ConnectionFailed`.
    """
    async with (
        connections.management() as management,
        connections.client("redrive dlq", observer=observer) as client,
    ):
        yield RedriveBroker(store, client, management, observer=observer, has_witness=has_witness)


async def peek_queue(connections: ConnectionSettings, queue: str, *, limit: int) -> PeekResult:
    """The first messages of a queue on the broker. Raises as `peek` does, and `ConnectionFailed`."""
    async with connections.management() as management, connections.client("redrive dlq peek") as client:
        return await peek(client, management, queue, limit)
