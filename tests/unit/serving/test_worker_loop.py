"""What runs beside the API, on an embedded broker that comes and goes."""

import asyncio
import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from redrive.admin import WorkerActivity, WorkerState
from redrive.deadletters import RedriveService
from redrive.deadletters.collect.sources import SourceSelection
from redrive.embedded import EmbeddedBroker, ManagementServer
from redrive.records import Filter
from redrive.serving import worker_loop
from redrive.stores import StoreUnavailable, open_store
from redrive.stores.letters.stored_batches import Batches
from redrive.telemetry import Log, Telemetry
from redrive.wiring import ConnectionSettings, find_connection_settings, new_random_bits, now_ms, select_sources
from tests.unit.serving.worker_stage import bookly, park, place_of, wait_stored, wait_until, working

pytestmark = pytest.mark.slow


def test_it_begins_when_the_broker_comes_and_goes_on_when_it_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as first:
            url, port = first.url, int(first.url.rpartition(":")[2].partition("/")[0])
        place = place_of(url, tmp_path)
        store = await open_store(place.database.value)
        async with working(place) as worker:
            await wait_until(lambda: worker.state().activity is WorkerActivity.WAITING)
            assert "127.0.0.1" in worker.state().reason
            async with bookly(port) as broker:
                await wait_until(lambda: worker.state().is_ready)
                await wait_until(lambda: set(worker.state().queues) == {"availability.dlq", "reports.dlq"})
                await park(broker, "a")
                await wait_stored(store, 1)
            await wait_until(lambda: worker.state().activity is WorkerActivity.WAITING)
            async with bookly(port) as broker:
                await park(broker, "b")
                await wait_stored(store, 2)
                assert broker.depths()["availability.dlq"] == 0
                await wait_until(
                    lambda: (
                        worker.state()
                        == WorkerState(
                            activity=WorkerActivity.COLLECTING, queues={"availability.dlq": "", "reports.dlq": ""}
                        )
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
                desk = RedriveService(store, clock_ms=now_ms, random_bits=new_random_bits)
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
    monkeypatch.setattr(worker_loop, "_LONGEST_S", 0.05)
    asked: list[ConnectionSettings] = []

    async def counted(place: ConnectionSettings, *others: Any) -> SourceSelection:
        asked.append(place)
        return await select_sources(place, *others)

    monkeypatch.setattr(worker_loop, "select_sources", counted)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    stream = io.StringIO()

    async def scenario() -> None:
        async with bookly() as broker:
            database = f"sqlite:///{tmp_path / 'redrive.db'}"
            management_url = f"http://127.0.0.1:{port}"
            place = find_connection_settings(
                url=broker.url, management_url=management_url, database=database, environment={}
            )
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


def test_a_queue_that_is_collected_again_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_queues, turns = Batches.stopped_queues, iter(range(1_000))

    async def stopped_queues_later(self: Batches) -> dict[tuple[str, str], str]:
        if next(turns) < 2:
            raise StoreUnavailable("the database", "it went", "try again")
        return await stopped_queues(self)

    async def scenario() -> None:
        async with bookly() as broker:
            place = place_of(broker.url, tmp_path)
            store = await open_store(place.database.value)
            async with working(place) as worker:
                await park(broker, "a")
                await wait_stored(store, 1)
                assert worker.state().queues["availability.dlq"] == ""
            await store.close()

    monkeypatch.setattr(Batches, "stopped_queues", stopped_queues_later)
    asyncio.run(scenario())
