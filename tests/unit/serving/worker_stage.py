"""A worker of `redrive serve` on an embedded broker with Bookly's topology, for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from redrive.client import Client, Confirmed
from redrive.embedded import EmbeddedBroker
from redrive.records import Filter
from redrive.serving.worker_loop import WorkerLoop
from redrive.serving.worker_thread import WorkerThread
from redrive.stores import Store
from redrive.telemetry import Telemetry
from redrive.wire import Properties
from redrive.wiring import (
    CollectRequest,
    ConnectionSettings,
    declare_on,
    find_connection_settings,
    load_topology,
    now_ms,
)

FILE = str(Path(__file__).parents[3] / "examples" / "bookly" / "redrive.yaml")
PATIENCE_S = 30.0


async def wait_until(is_so: Callable[[], object]) -> None:
    """Waits until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def wait_stored(store: Store, count: int) -> None:
    """Waits until the store has so many dead letters."""
    async with asyncio.timeout(PATIENCE_S):
        while await store.letters.count(Filter(), now_ms=now_ms()) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@asynccontextmanager
async def bookly(port: int = 0) -> AsyncIterator[EmbeddedBroker]:
    """An embedded broker with Bookly's topology."""
    async with EmbeddedBroker(port=port) as broker:
        await declare_on(broker, load_topology(FILE))
        yield broker


async def park(broker: EmbeddedBroker, *names: str) -> None:
    """Publishes messages with these ids to a dead-letter queue."""
    async with Client(broker.url) as client:
        publisher = await client.publisher()
        for name in names:
            properties = Properties.of(message_id=name)
            assert await publisher.publish("", "availability.dlq", b"{}", properties) == Confirmed()


@asynccontextmanager
async def working(
    place: ConnectionSettings, *, collects: bool = True, telemetry: Telemetry | None = None
) -> AsyncIterator[WorkerThread]:
    """A worker that runs while the block does."""
    heard = Telemetry() if telemetry is None else telemetry

    def make() -> WorkerLoop:
        return WorkerLoop(place, CollectRequest(), collects=collects, auto_retries=True, telemetry=heard)

    worker = WorkerThread(make)
    worker.start()
    try:
        yield worker
    finally:
        assert await worker.stop(PATIENCE_S)


def place_of(url: str, folder: Path) -> ConnectionSettings:
    """The broker at this URL without a management API, and a database in the folder."""
    management = "http://127.0.0.1:1"
    database = f"sqlite:///{folder / 'redrive.db'}"
    return find_connection_settings(url=url, management_url=management, database=database, file=FILE, environment={})
