"""A stage for redrives on a real broker: a store with dead letters in it, a redriver, and what lies in which queue."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redrive.client import Client
from redrive.deadletters.redrive.operation_run import RedriveOptions, RedriverParts
from redrive.deadletters.redrive.preflight import check_targets
from redrive.deadletters.redrive.redrive_service import RedriveService
from redrive.deadletters.redrive.redriver import Redriver
from redrive.records import Arrival, NewOperation, OperationKind, Selection
from redrive.stores import BatchResult, Store, open_store
from redrive.wire import Properties
from tests.unit.deadletters.arrivals import arrival, now_ms, random_bits, store_arrivals


@dataclass
class RedrivingStage:
    """What a test works with."""

    store: Store
    client: Client
    vhost: str

    @property
    def service(self) -> RedriveService:
        return RedriveService(
            self.store,
            clock_ms=now_ms,
            random_bits=random_bits,
            check_targets=lambda queues, target: check_targets(self.client, queues, target),
        )

    def redriver(
        self,
        name: str = "first",
        *,
        client: Client | None = None,
        options: RedriveOptions | None = None,
        pause_at: Callable[[str], Awaitable[None]] | None = None,
        has_witness: bool = False,
        clock_ms: Callable[[], int] = now_ms,
    ) -> Redriver:
        return Redriver(
            RedriverParts(
                store=self.store,
                client=self.client if client is None else client,
                owner=name,
                clock_ms=clock_ms,
                options=RedriveOptions() if options is None else options,
                pause_at=pause_at,
                has_witness=has_witness,
            )
        )

    async def collected(
        self, messages: Sequence[tuple[Properties, bytes]], *, queue: str = "orders"
    ) -> tuple[str, ...]:
        """Dead letters as a collector would have stored them; their ids in order."""
        dlq = f"{queue}.parked"
        arrivals = [arrival(properties, body, vhost=self.vhost, queue=queue, dlq=dlq) for properties, body in messages]
        await self.store_arrivals(arrivals)
        return tuple(arrival.id for arrival in arrivals)

    async def collect(self, dlq: str, *, queue: str = "orders") -> BatchResult:
        """Takes what lies in a dead-letter queue into the store: a collector on a day without crashes."""
        channel = await self.client.channel()
        arrivals = []
        last = None
        while (got := await channel.get_message(dlq)) is not None:
            last = got
            arrivals.append(arrival(Properties(got.header), got.body, vhost=self.vhost, queue=queue, dlq=dlq))
        stored = await self.store_arrivals(arrivals)
        if last is not None:
            channel.ack(last, multiple=True)
        await channel.close()
        return stored

    async def store_arrivals(self, arrivals: Sequence[Arrival]) -> BatchResult:
        return await store_arrivals(self.store, arrivals)

    async def statuses(self, ids: Sequence[str]) -> dict[str, str]:
        found = {}
        for one in ids:
            letter = await self.store.letters.get(one)
            assert letter is not None
            found[one] = str(letter.status)
        return found


def redrive_of(*ids: str, **fields: Any) -> NewOperation:
    return NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=ids), who="ann", why="mended", **fields)


@asynccontextmanager
async def redriving_stage(database_url: str, amqp_url: str, vhost: str) -> AsyncIterator[RedrivingStage]:
    async with Client(amqp_url) as client:
        store = await open_store(database_url)
        try:
            yield RedrivingStage(store=store, client=client, vhost=vhost)
        finally:
            await store.close()
