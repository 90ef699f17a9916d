"""Auto-retry: every 30 s, redrives the dead letters that are due, and resolves those that have not come back for long.

The rules in the store say which dead letters are due, and how often. When one comes back, the collector's transaction
decides about the next attempt, or that all are spent. This module is only the clock: under the lease `auto-retry`, so
that one of many instances does it, and another goes on when that one dies.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from redrive.client import AccessRefused
from redrive.core import RedriveError
from redrive.deadletters.held_leases import HeldLease
from redrive.deadletters.redrive.redriver import Redriver, RunsElsewhere
from redrive.deadletters.stop_waits import wait_stop
from redrive.inspection import queue_state
from redrive.records import Operation, OperationKind, make_id
from redrive.stores import acting_as

AUTO_RETRY_INTERVAL_S = 30.0
WHO = "auto-retry"
_RESOLVE_AT_ONCE = 1_000
_DUE_AT_ONCE = 10_000
_PASSES_MAX = 1_000
"""More than a million resolved or ten million due at once wait for the next interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRetryReport:
    """What one pass did. `is_elsewhere`: another instance does it; this one did nothing."""

    is_elsewhere: bool = False
    resolved: int = 0
    operations: tuple[Operation, ...] = ()


class AutoRetry:
    """The loop. `random_bits` is for the ids of its operations."""

    def __init__(
        self, redriver: Redriver, *, random_bits: Callable[[], int], interval_s: float = AUTO_RETRY_INTERVAL_S
    ) -> None:
        self._redriver = redriver
        self._parts = redriver.parts
        self._luck = random_bits
        self._interval_s = interval_s

    async def run(self, *, stop: asyncio.Event) -> None:
        """One pass every interval until `stop` is set. What fails is noted, and tried again at the next pass."""
        while not stop.is_set():
            try:
                await self.once(stop=stop)
            except (RedriveError, TimeoutError) as error:
                self._parts.observer.note("deadletters.auto_retry_failed", reason=str(error))
            await wait_stop(stop, self._interval_s)

    async def once(self, *, stop: asyncio.Event | None = None) -> AutoRetryReport:
        """One pass: resolves what has been silent, sends what is due, and waits until that is sent.

        Raises StoreUnavailable, LeaseLost, ClientError.
        """
        stopping = asyncio.Event() if stop is None else stop
        with acting_as(""):
            return await self._resolve_and_send(stopping)

    async def _resolve_and_send(self, stopping: asyncio.Event) -> AutoRetryReport:
        async with self._redriver.leases.hold("auto-retry") as held:
            if held is None:
                return AutoRetryReport(is_elsewhere=True)
            resolved = await self._resolve_silent(held)
            operations = [*await self._unfinished(held, stopping), *await self._due(held, stopping)]
            return AutoRetryReport(resolved=resolved, operations=tuple(operations))

    async def _resolve_silent(self, held: HeldLease) -> int:
        resolved, asked, waiting = 0, set[str](), dict[str, str]()
        for _ in range(_PASSES_MAX):
            held.require()
            now_ms, vhost = self._parts.clock_ms(), self._parts.client.target.vhost
            operations = self._parts.store.operations
            looked_at, queues = await operations.silent_queues(now_ms=now_ms, limit=_RESOLVE_AT_ONCE, vhost=vhost)
            for queue in queues - asked:
                asked.add(queue)
                reason = await self._why_waiting(queue)
                if reason is not None:
                    waiting[queue] = reason
            resolved += await operations.resolve_silent(
                now_ms=now_ms, limit=_RESOLVE_AT_ONCE, vhost=vhost, waiting=waiting
            )
            if looked_at < _RESOLVE_AT_ONCE:
                break
        if resolved:
            self._parts.observer.note("deadletters.settled", count=resolved)
        return resolved

    async def _why_waiting(self, queue: str) -> str | None:
        """Why copies that were sent to this queue may not be handled yet; None if nothing speaks against it.

        Messages that are ready while nobody consumes the queue may be the copies. Which messages are ready in a queue
        that is consumed, is not known. A deleted queue says nothing about what was in it.
        """
        try:
            state = await queue_state(self._parts.client, queue)
        except AccessRefused:
            return None  # this user may not look at it
        if state is None:
            return f"the queue {queue} that its copy went to is gone; whether it was handled nobody can know"
        if state.consumers == 0 and state.messages_ready:
            return f"nobody consumes {queue}, and messages lie there"
        return None

    async def _unfinished(self, held: HeldLease, stop: asyncio.Event) -> list[Operation]:
        """Runs the operations of an auto-retry that died: what they have left is not due a second time."""
        ended = []
        vhost = self._parts.client.target.vhost
        for id in await self._parts.store.operations.waiting(vhost=vhost):
            operation = await self._parts.store.operations.get(id)
            if operation is not None and operation.kind is OperationKind.AUTO_RETRY:
                ended += await self._run(held, id, stop)
        return ended

    async def _due(self, held: HeldLease, stop: asyncio.Event) -> list[Operation]:
        ended: list[Operation] = []
        # A process that was killed while it changed a rule has left letters due that should not be, or the reverse.
        await self._parts.store.rules.apply_changes(now_ms=self._parts.clock_ms())
        for _ in range(_PASSES_MAX):
            held.require()
            if stop.is_set():
                break
            now_ms = self._parts.clock_ms()
            operation = await self._parts.store.operations.create_due(
                id=make_id(now_ms, self._luck()),
                who=WHO,
                now_ms=now_ms,
                limit=_DUE_AT_ONCE,
                vhost=self._parts.client.target.vhost,
            )
            if operation is None:
                break
            self._parts.observer.note("deadletters.auto_retry_due", operation=operation.id, count=operation.total)
            ended += await self._run(held, operation.id, stop)
            if operation.total < _DUE_AT_ONCE:
                break
        return ended

    async def _run(self, held: HeldLease, id: str, stop: asyncio.Event) -> list[Operation]:
        held.require()
        try:
            return [await self._redriver.run(id, stop=stop, pauses_when_stopped=False)]
        except RunsElsewhere:
            return []  # `run_waiting_operations` was faster
