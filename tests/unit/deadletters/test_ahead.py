"""Two hands out at once: whatever happens then, every message is in exactly one row, or back in its queue."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from redrive.client import Client
from redrive.deadletters.hands import PREFETCH_FIRST
from redrive.deadletters.reconciling import OpenBatch, hand_needed
from redrive.embedded import EmbeddedBroker
from redrive.stores import Store
from redrive.wire import Properties
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collecting_scene import (
    Killed,
    make_collector,
    numbered,
    park,
    ready,
    sqlite_store,
    stored_bodies,
    stored_letters,
    wait_for,
)
from tests.unit.deadletters.test_collector import declare, source

pytestmark = pytest.mark.slow

MESSAGES = 60
"""More than a first hand holds: the rest is the second one."""
BODIES = sorted(body for _, body in numbered(MESSAGES))


def with_two_hands_out(client: Client, then: Callable[[], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
    """Waits at the first `stored` until the next hand has all the rest, and does something then."""
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
def test_the_next_hand_is_taken_while_one_is_stored_and_the_store_knows_of_both(kind: str, tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, "orders.dlq", numbered(MESSAGES))
            seen: list[tuple[int, int]] = []

            async def look() -> None:
                for batch in await store.collecting.open_batches("/", "orders.dlq"):
                    announced = int(batch.id.partition("-hand-")[2] or 0)
                    seen.append((len(batch.entries), announced))

            pause_at = with_two_hands_out(client, look)
            report = await make_collector(client, store, [source(kind)], pause_at=pause_at).run(once=True)
            assert sorted(entries for entries, _ in seen) == [0, PREFETCH_FIRST]
            assert max(announced for _, announced in seen) >= MESSAGES
            assert (report.total.inserted, report.left) == (MESSAGES, {})
            assert await stored_bodies(store) == BODIES
            assert await ready(client, "orders.dlq") == 0
            assert await store.collecting.open_batches("/", "orders.dlq") == ()

    run_scenario(steps())


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_killed_with_two_hands_out_every_message_is_in_exactly_one_row(profile: str, kind: str, tmp_path: Path) -> None:
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
def test_a_connection_cut_with_two_hands_out_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
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


def test_told_to_stop_it_stores_both_hands_and_gives_none_back(tmp_path: Path) -> None:
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
            assert await store.collecting.open_batches("/", "orders.dlq") == ()

    run_scenario(steps())


def test_a_database_that_fails_with_two_hands_out_gives_both_back_by_nack(tmp_path: Path) -> None:
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


def test_what_was_stored_and_what_was_lost_may_come_back_together() -> None:
    stored = OpenBatch(id="a", entries=((b"1", "x"), (b"2", "y")), at_ms=0)
    lost = OpenBatch(id="b-hand-40", entries=(), at_ms=0, hand_max=40)
    lost_again = OpenBatch(id="c-hand-30", entries=(), at_ms=0, hand_max=30)
    assert hand_needed([]) == 0
    assert hand_needed([stored]) == 2
    assert hand_needed([stored, lost, lost_again]) == 42


async def _delivery_counts(store: Store) -> set[object]:
    counts = set()
    for letter in await stored_letters(store):
        content = await store.letters.content(letter.id)
        assert content is not None
        counts.add(Properties(content.properties).header("x-delivery-count"))
    return counts
