"""Two batches held at once: whatever happens then, every message is in exactly one row, or in its queue again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from redrive.client import Client
from redrive.deadletters.collect.batches import PREFETCH_FIRST
from redrive.embedded import EmbeddedBroker
from redrive.records import Arrival
from redrive.stores import Store, StoreUnavailable
from redrive.wire import Properties
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collector_scene import (
    Killed,
    declare,
    make_collector,
    numbered,
    park,
    ready,
    source,
    sqlite_store,
    stored_bodies,
    stored_letters,
    wait_for,
)

pytestmark = pytest.mark.slow

MESSAGES = 60
"""More than a first batch holds: the rest is the second one."""
BODIES = sorted(body for _, body in numbered(MESSAGES))


def with_two_hands_out(client: Client, then: Callable[[], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
    """Waits at the first `stored` until the next batch has all the rest, and does something then."""
    is_done = False

    async def pause(name: str) -> None:
        nonlocal is_done
        if name != "stored" or is_done:
            return
        is_done = True

        async def all_out() -> bool:
            return await ready(client, "orders.dlq") == 0

        await wait_for(all_out)
        await then()

    return pause


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_next_batch_is_taken_while_one_is_stored_and_the_store_knows_of_both(kind: str, tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, "orders.dlq", numbered(MESSAGES))
            seen: list[tuple[int, int]] = []

            async def look() -> None:
                for batch in await store.batches.open_batches("/", "orders.dlq"):
                    announced = int(batch.id.partition("-hand-")[2] or 0)
                    seen.append((len(batch.entries), announced))

            pause_at = with_two_hands_out(client, look)
            report = await make_collector(client, store, [source(kind)], pause_at=pause_at).run(once=True)
            assert sorted(entries for entries, _ in seen) == [0, PREFETCH_FIRST]
            assert max(announced for _, announced in seen) >= MESSAGES
            assert (report.total.inserted, report.left) == (MESSAGES, {})
            assert await stored_bodies(store) == BODIES
            assert await ready(client, "orders.dlq") == 0
            assert await store.batches.open_batches("/", "orders.dlq") == ()

    run_scenario(steps())


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_killed_while_it_holds_two_batches_every_message_is_in_exactly_one_row(
    profile: str, kind: str, tmp_path: Path
) -> None:
    async def die() -> None:
        raise Killed

    async def steps() -> None:
        async with EmbeddedBroker(profile) as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, "orders.dlq", numbered(MESSAGES))
            async with Client(broker.url) as other:
                pause_at = with_two_hands_out(client, die)
                with pytest.raises(Killed):
                    await make_collector(other, store, [source(kind)], pause_at=pause_at).run(once=True)
            assert await ready(client, "orders.dlq") == MESSAGES
            report = await make_collector(client, store, [source(kind)]).run(once=True)
            assert (report.total.known, report.total.inserted) == (PREFETCH_FIRST, MESSAGES - PREFETCH_FIRST)
            assert await stored_bodies(store) == BODIES
            assert await ready(client, "orders.dlq") == 0

    run_scenario(steps())


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_connection_cut_with_two_batches_held_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
    async def steps() -> None:
        async with (
            EmbeddedBroker("4.3") as broker,
            Client(broker.url) as client,
            Client(broker.url) as looking,
            sqlite_store(tmp_path) as store,
        ):
            await declare(client, kind)
            await park(client, "orders.dlq", numbered(MESSAGES))

            async def cut() -> None:
                (await client.connection()).give_up("cut by the test")

            pause_at = with_two_hands_out(looking, cut)
            report = await make_collector(client, store, [source(kind)], pause_at=pause_at).run(once=True)
            assert report.left == {}
            assert await stored_bodies(store) == BODIES
            assert await ready(client, "orders.dlq") == 0

    run_scenario(steps())


def test_once_stopped_it_stores_both_batches_and_requeues_none(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.0") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, "quorum")
            await park(client, "orders.dlq", numbered(MESSAGES))
            stop = asyncio.Event()

            async def end() -> None:
                stop.set()

            pause_at = with_two_hands_out(client, end)
            report = await make_collector(client, store, [source("quorum")], pause_at=pause_at).run(stop)
            assert report.total.inserted == MESSAGES
            assert await stored_bodies(store) == BODIES
            assert await _delivery_counts(store) == {None}
            assert await store.batches.open_batches("/", "orders.dlq") == ()

    run_scenario(steps())


def test_a_database_that_fails_with_two_batches_held_requeues_both_by_nack(tmp_path: Path) -> None:
    class Full(Exception):
        """What nobody expects of a database."""

    async def fail() -> None:
        raise Full

    async def steps() -> None:
        # 4.3 counts a channel that was closed towards the limit, and a nack not.
        async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, "quorum")
            await park(client, "orders.dlq", numbered(MESSAGES))
            pause_at = with_two_hands_out(client, fail)
            with pytest.raises(Full):
                await make_collector(client, store, [source("quorum")], pause_at=pause_at).run(once=True)
            assert await ready(client, "orders.dlq") == MESSAGES
            channel = await client.channel()
            counts = set()
            for _ in range(MESSAGES):
                got = await channel.get_message("orders.dlq")
                assert got is not None
                counts.add(got.properties.header("x-delivery-count"))
            assert counts == {None}

    run_scenario(steps())


def test_a_failure_with_two_batches_held_costs_each_message_one_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        # After its second return 4.0 drops a message of this queue.
        async with EmbeddedBroker("4.0") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            channel = await client.channel()
            await channel.declare_queue("orders.dlq", arguments={"x-queue-type": "quorum", "x-delivery-limit": 1})
            await park(client, "orders.dlq", numbered(MESSAGES))
            real, fails = store.batches.store, 1

            async def store_later(arrivals: Sequence[Arrival], **named: Any) -> object:
                nonlocal fails
                if arrivals and fails:
                    fails -= 1
                    await asyncio.sleep(0.02)  # the next batch is being taken, and can still get what is requeued
                    raise StoreUnavailable("sqlite:///x", "is away", "wait")
                return await real(arrivals, **named)

            monkeypatch.setattr(store.batches, "store", store_later)
            limited = source("quorum", delivery_limit=1)
            for _ in range(3):
                await make_collector(client, store, [limited]).run(once=True)
                await store.batches.resume_queue("/", "orders.dlq", now_ms=1, who="ada")
            assert fails == 0
            assert len(await stored_bodies(store)) + await ready(client, "orders.dlq") == MESSAGES

    run_scenario(steps())


def test_a_connection_cut_after_the_ack_does_not_stop_a_queue_with_a_small_limit(tmp_path: Path) -> None:
    async def steps() -> None:
        async with (
            EmbeddedBroker("4.3") as broker,
            Client(broker.url) as client,
            Client(broker.url) as looking,
            sqlite_store(tmp_path) as store,
        ):
            channel = await looking.channel()
            await channel.declare_queue("orders.dlq", arguments={"x-queue-type": "quorum", "x-delivery-limit": 5})
            await park(looking, "orders.dlq", numbered(10))
            cuts: list[str] = []

            async def cut(name: str) -> None:
                if name == "acked" and not cuts:
                    cuts.append(name)
                    (await client.connection()).give_up("cut by the test")

            limited = source("quorum", delivery_limit=5)
            report = await make_collector(client, store, [limited], pause_at=cut).run(once=True)
            assert (cuts, report.left) == (["acked"], {})
            assert await stored_bodies(store) == sorted(body for _, body in numbered(10))
            assert await ready(looking, "orders.dlq") == 0

    run_scenario(steps())


def test_cancelled_twice_it_still_requeues_the_prefetched_batch(tmp_path: Path) -> None:
    async def steps() -> None:
        async with (
            EmbeddedBroker("4.3") as broker,
            Client(broker.url) as client,
            Client(broker.url) as looking,
            sqlite_store(tmp_path) as store,
        ):
            await declare(looking, "quorum")
            await park(looking, "orders.dlq", numbered(MESSAGES))
            is_there = asyncio.Event()

            async def stand() -> None:
                is_there.set()
                await asyncio.Event().wait()

            pause_at = with_two_hands_out(looking, stand)
            collector = make_collector(client, store, [source("quorum")], pause_at=pause_at)
            running = asyncio.create_task(collector.run(once=True))
            await is_there.wait()
            running.cancel()
            await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])

            async def all_back() -> bool:
                return await ready(looking, "orders.dlq") == MESSAGES

            await wait_for(all_back)

    run_scenario(steps())


async def _delivery_counts(store: Store) -> set[object]:
    counts = set()
    for letter in await stored_letters(store):
        content = await store.letters.content(letter.id)
        assert content is not None
        counts.add(Properties(content.properties).header("x-delivery-count"))
    return counts
