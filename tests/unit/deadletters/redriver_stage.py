"""A stage for redrivers: an embedded broker and a store in memory, in one event loop and virtual time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from redrive import wire
from redrive.client import Client
from redrive.deadletters.redrive.operation_run import RedriveOptions, RedriverParts
from redrive.deadletters.redrive.redriver import Redriver
from redrive.embedded import EmbeddedBroker
from redrive.records import NewOperation, Operation
from redrive.testing import run_in_virtual_time
from tests.unit.client.scenario import Notes
from tests.unit.deadletters.memory_store import MemoryLetter, MemoryStore

OPTIONS = RedriveOptions(lease_s=30, publish_s=60, broker_s=600, store_s=600, canary_s=10)


@dataclass
class RedriverStage:
    """What a test works with; `orders` is a queue without consumers."""

    broker: EmbeddedBroker
    client: Client
    store: MemoryStore = field(init=False)
    notes: Notes = field(default_factory=Notes)
    begun: int = 0

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.now_ms)

    def now_ms(self) -> int:
        return round(self.broker.now_s * 1000)

    def redriver(
        self,
        name: str = "first",
        *,
        pause_at: Callable[[str], Awaitable[None]] | None = None,
        client: Client | None = None,
        options: RedriveOptions = OPTIONS,
    ) -> Redriver:
        return Redriver(
            RedriverParts(
                store=self.store.store,
                client=self.client if client is None else client,
                owner=name,
                clock_ms=self.now_ms,
                observer=self.notes,
                options=options,
                pause_at=pause_at,
            )
        )

    async def letters(self, count: int, **fields: Any) -> tuple[str, ...]:
        ids = tuple(f"letter{number}" for number in range(count))
        self.store.add(*(MemoryLetter(id=one, **fields) for one in ids))
        return ids

    async def begin(self, new: NewOperation) -> Operation:
        self.begun += 1
        return await self.store.create(new, id=f"operation{self.begun}", now_ms=self.now_ms())

    async def bodies(self, queue: str = "orders") -> list[wire.Got]:
        """All that is ready, taken for good."""
        channel = await self.client.channel()
        found = []
        while (got := await channel.get_message(queue, no_ack=True)) is not None:
            found.append(got)
        await channel.close()
        return found

    async def ids(self, queue: str = "orders") -> list[str]:
        """The dead letters whose copies are ready there, taken for good."""
        return [wire.Properties(got.header).headers["x-redriven-id"] for got in await self.bodies(queue)]


def play(scenario: Callable[[RedriverStage], Coroutine[Any, Any, None]]) -> None:
    """Runs a scenario on a fresh stage, in virtual time."""

    async def main() -> None:
        async with runner_stage() as on:
            await scenario(on)

    run_in_virtual_time(main())


@asynccontextmanager
async def runner_stage() -> AsyncIterator[RedriverStage]:
    async with (
        EmbeddedBroker(listen=False, begin_s=1_800_000_000) as broker,
        Client(broker.url, dial=broker.dial) as client,
    ):
        channel = await client.channel()
        await channel.declare_queue("orders")
        await channel.close()
        yield RedriverStage(broker=broker, client=client)
