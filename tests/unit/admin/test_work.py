"""What runs beside the API, on an embedded broker that comes and goes."""

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive.admin import Doing, WorkerState
from redrive.client import Client, Confirmed
from redrive.collecting import CollectRequest, select_sources
from redrive.deadletters.sources import Selected
from redrive.dlq import Place, find_place, new_luck, now_ms
from redrive.embedded import EmbeddedBroker, ManagementServer
from redrive.records import Filter
from redrive.redriving import RedriveDesk
from redrive.serving import work
from redrive.serving.work import Work
from redrive.serving.worker import Worker
from redrive.stores import Store, open_store
from redrive.telemetry import Log, Telemetry
from redrive.wire import Properties
from redrive.wiring import declare_on, load_topology

FILE = str(Path(__file__).parents[3] / "examples" / "bookly" / "redrive.yaml")
PATIENCE_S = 30.0

pytestmark = pytest.mark.slow


async def wait_until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def wait_stored(store: Store, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await store.letters.count(Filter(), now_ms=now_ms()) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@asynccontextmanager
async def bookly(port: int = 0) -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(port=port) as broker:
        await declare_on(broker, load_topology(FILE))
        yield broker


async def park(broker: EmbeddedBroker, *names: str) -> None:
    async with Client(broker.url) as client:
        publisher = await client.publisher()
        for name in names:
            properties = Properties.of(message_id=name)
            assert await publisher.publish("", "availability.dlq", b"{}", properties) == Confirmed()


@asynccontextmanager
async def working(place: Place, *, collects: bool = True, telemetry: Telemetry | None = None) -> AsyncIterator[Worker]:
    heard = Telemetry() if telemetry is None else telemetry

    def make() -> Work:
        return Work(place, CollectRequest(), collects=collects, auto_retries=True, telemetry=heard)

    worker = Worker(make)
    worker.start()
    try:
        yield worker
    finally:
        assert await worker.stop(PATIENCE_S)


def place_of(url: str, folder: Path) -> Place:
    management = "http://127.0.0.1:1"
    database = f"sqlite:///{folder / 'redrive.db'}"
    return find_place(url=url, management_url=management, database=database, file=FILE, environment={})


def test_it_begins_when_the_broker_comes_and_goes_on_when_it_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as first:
            url, port = first.url, int(first.url.rpartition(":")[2].partition("/")[0])
        place = place_of(url, tmp_path)
        store = await open_store(place.database.value)
        async with working(place) as worker:
            await wait_until(lambda: worker.state().doing is Doing.WAITING)
            assert "127.0.0.1" in worker.state().reason
            async with bookly(port) as broker:
                await wait_until(lambda: worker.state().is_ready)
                await wait_until(lambda: set(worker.state().queues) == {"availability.dlq", "reports.dlq"})
                await park(broker, "a")
                await wait_stored(store, 1)
            await wait_until(lambda: worker.state().doing is Doing.WAITING)
            async with bookly(port) as broker:
                await park(broker, "b")
                await wait_stored(store, 2)
                assert broker.depths()["availability.dlq"] == 0
                await wait_until(
                    lambda: (
                        worker.state()
                        == WorkerState(doing=Doing.COLLECTING, queues={"availability.dlq": "", "reports.dlq": ""})
                    )
                )
        await store.close()

    asyncio.run(scenario())


def test_an_operation_is_run_as_soon_as_somebody_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bookly() as broker:
            place = place_of(broker.url, tmp_path)
            store = await open_store(place.database.value)
            async with working(place) as worker:
                await park(broker, "a")
                await wait_stored(store, 1)
                (letter,) = (await store.letters.page(Filter(), limit=10, now_ms=now_ms())).letters
                desk = RedriveDesk(store, clock_ms=now_ms, luck=new_luck)
                await desk.retry_manually(letter.id, who="test")
                worker.wake()
                await wait_until(lambda: broker.depths()["availability"] == 1)
            await store.close()

    asyncio.run(scenario())


def test_without_collecting_it_takes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bookly() as broker:
            place = place_of(broker.url, tmp_path)
            async with working(place, collects=False) as worker:
                await park(broker, "a")
                await wait_until(lambda: worker.state().is_ready)
                assert (worker.state().queues, worker.state().collects) == ({}, False)
            assert broker.depths()["availability.dlq"] == 1

    asyncio.run(scenario())


def test_it_collects_as_soon_as_it_can_be_asked_which_queues_there_are_and_works_on_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_LONGEST_S", 0.05)
    asked: list[Place] = []

    async def counted(place: Place, *others: Any) -> Selected:
        asked.append(place)
        return await select_sources(place, *others)

    monkeypatch.setattr(work, "select_sources", counted)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    stream = io.StringIO()

    async def scenario() -> None:
        async with bookly() as broker:
            database = f"sqlite:///{tmp_path / 'redrive.db'}"
            management_url = f"http://127.0.0.1:{port}"
            place = find_place(url=broker.url, management_url=management_url, database=database, environment={})
            store = await open_store(place.database.value)
            telemetry = Telemetry(Log(stream))
            async with working(place, telemetry=telemetry) as worker:
                await wait_until(lambda: len(asked) >= 3)
                assert "which queues there are can't be asked" in worker.state().reason
                await park(broker, "a")
                async with ManagementServer(broker, port=port):
                    await wait_stored(store, 1)
                    await wait_until(lambda: worker.state().is_ready)
            telemetry.close()
            await store.close()

    asyncio.run(scenario())
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events.count("client.connected") == 1, "operations and retries go on meanwhile"
