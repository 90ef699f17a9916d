"""A store with three dead letters, and the services that people use on it."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from redrive.core import Finding
from redrive.deadletters.actions.dead_letter_service import DeadLetterService
from redrive.deadletters.redrive.preflight import Preflight
from redrive.deadletters.redrive.redrive_service import RedriveService
from redrive.records import (
    Filter,
    ItemState,
    RedriveTarget,
    Selection,
    SendResult,
    Status,
)
from redrive.stores import Store
from tests.unit.deadletters.arrivals import now_ms, random_bits

EVERYTHING = Selection(filter=Filter())


FIT = Preflight(targets=(), findings=())

UNFIT = Preflight(targets=(), findings=(Finding(code="target-missing", address="queue orders", summary="it is gone"),))


class ServicesStage:
    """A store with three dead letters, and both services."""

    def __init__(self, store: Store, ids: tuple[str, ...]) -> None:
        self.store = store
        self.ids = ids
        self.preflight = FIT
        self.letters = DeadLetterService(store, clock_ms=now_ms)
        self.redrives = RedriveService(store, clock_ms=now_ms, random_bits=random_bits, check_targets=self._check)

    async def _check(self, queues: object, target: RedriveTarget) -> Preflight:
        return self.preflight

    async def status(self, id: str) -> Status:
        letter = await self.store.letters.get(id)
        assert letter is not None
        return letter.status

    async def send(self, id: str, state: ItemState) -> None:
        """An operation that ends for this dead letter as said."""
        operation = await self.redrives.retry_manually(id, who="ann")
        lease = await self.store.leases.acquire(f"operation:{operation.id}", "test", ttl_ms=60_000)
        assert lease is not None
        assert await self.store.operations.claim(operation.id, lease, now_ms=now_ms()) is not None
        assert len(await self.store.operations.take(operation.id, lease, limit=1, now_ms=now_ms(), turn=1)) == 1
        await self.store.operations.record(operation.id, lease, [SendResult(id=id, state=state)], now_ms=now_ms())

    async def actions(self) -> list[tuple[str, str, str]]:
        """The audit, oldest first: who, what, why."""
        entries = (await self.store.audit.page(100))[0]
        return [(entry.who, entry.action, entry.why) for entry in reversed(entries)]


Play: TypeAlias = Callable[[Callable[[ServicesStage], Coroutine[Any, Any, None]]], None]
"""Plays a scenario on a stage of its own."""
