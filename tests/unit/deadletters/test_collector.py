"""Collecting from the embedded broker into SQLite: every message is in exactly one row, whatever happens on the way."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive.client import Client
from redrive.deadletters.collect.collector import Collector
from redrive.embedded import PROFILES, EmbeddedBroker
from redrive.records import (
    Arrival,
    Filter,
    group_of,
)
from redrive.stores import StoreUnavailable
from redrive.wire import Float32, Int8, Properties, UInt32, sort_headers
from tests.unit.client.scenario import Notes, run_scenario, wait_until
from tests.unit.deadletters.collector_scene import (
    PROMPT,
    Killed,
    declare,
    die,
    kill_at,
    make_collector,
    now_ms,
    numbered,
    park,
    ready,
    source,
    sqlite_store,
    stored_bodies,
    stored_letters,
    wait_for,
)

DLQ = "orders.dlq"

pytestmark = pytest.mark.slow

KINDS = ("classic", "quorum")
NO_HEADERS = Properties.of(delivery_mode=2)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_becomes_a_row_with_its_bytes_and_the_queue_is_empty(
    profile: str, kind: str, tmp_path: Path
) -> None:
    odd = Properties.of(
        content_type="application/json",
        headers={"n": Int8(-3), "f": Float32(0.5), "u": UInt32(7), "list": [1, "two", None], "table": {"x": b"\xff"}},
        message_id="typed",
        priority=9,
        delivery_mode=2,
    )
    messages = [
        (odd, b"{}"),
        (NO_HEADERS, b""),
        (NO_HEADERS, bytes(range(256))),
        (NO_HEADERS, b"\xc3\x28 not utf-8"),
        (NO_HEADERS, b"twin"),
        (NO_HEADERS, b"twin"),
    ]

    async def steps() -> None:
        async with EmbeddedBroker(profile) as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, "orders.dlq", messages)
            report = await make_collector(client, store, [source(kind)]).run(once=True)
            assert (report.total.inserted, report.left) == (6, {})
            assert await ready(client, "orders.dlq") == 0
            assert await stored_bodies(store) == sorted(body for _, body in messages)
            typed = next(one for one in await stored_letters(store) if one.message_id == "typed")
            assert typed.group_id == group_of(typed, group_key=store.group_key).id != group_of(typed, group_key=b"").id
            content = await store.letters.content(typed.id)
            assert content is not None
            kept = Properties(content.properties)
            # As the broker gave them: RabbitMQ 4.x writes headers by key.
            sent = odd.raw if profile == "3.10" else sort_headers(odd.raw, once=True)
            assert kept.edit(drop=["x-delivery-count"]).raw == sent
            assert await store.batches.open_batches("/", "orders.dlq") == ()

    run_scenario(steps())


# 3.10's quorum queues return to the back, the others to the front.
@pytest.mark.parametrize("profile", ["3.10", "4.3"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["taken", "stored", "acked", "barrier", "owned"])
def test_killed_anywhere_every_message_is_in_exactly_one_row(
    profile: str, kind: str, place: str, tmp_path: Path
) -> None:
    async def steps() -> None:
        async with EmbeddedBroker(profile) as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            messages = [*numbered(25), (NO_HEADERS, b"twin"), (NO_HEADERS, b"twin")]
            await park(client, "orders.dlq", messages)
            await die(broker, store, kind, place)
            report = await make_collector(client, store, [source(kind)]).run(once=True)
            assert report.left == {}
            assert await ready(client, "orders.dlq") == 0
            assert await stored_bodies(store) == sorted(body for _, body in messages)

    run_scenario(steps())


@pytest.mark.parametrize("kind", KINDS)
def test_killed_again_and_again_nothing_is_lost_or_doubled(kind: str, tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.0") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, "orders.dlq", numbered(60))
            places = ("stored", "taken", "acked", "taken", "stored", "barrier")
            for number, place in enumerate(places):
                await park(client, "orders.dlq", numbered(30, start=60 + number * 30))
                await die(broker, store, kind, place)
            report = await make_collector(client, store, [source(kind)]).run(once=True)
            assert report.left == {}
            assert await stored_bodies(store) == sorted(body for _, body in numbered(60 + len(places) * 30))

    run_scenario(steps())


def test_two_collectors_at_once_put_no_message_into_two_rows(tmp_path: Path) -> None:
    async def steps() -> None:
        async with (
            EmbeddedBroker() as broker,
            Client(broker.url) as first,
            Client(broker.url) as second,
            sqlite_store(tmp_path) as store,
        ):
            names = ["a.dlq", "b.dlq", "c.dlq"]
            for name in names:
                await declare(first, dlq=name)
                await park(first, name, numbered(100))
            sources = [source(dlq=name) for name in names]
            stop = asyncio.Event()
            running = asyncio.gather(
                make_collector(first, store, sources, owner="one").run(stop),
                make_collector(second, store, sources, owner="two").run(stop),
            )

            async def all_stored() -> bool:
                return await store.letters.count(Filter(), now_ms=now_ms()) >= 300

            await wait_for(all_stored)
            stop.set()
            reports = await running
            assert sum(report.total.inserted for report in reports) == 300
            assert await stored_bodies(store) == sorted([body for _, body in numbered(100)] * 3)

    run_scenario(steps(), timeout_s=60)


def test_what_comes_later_is_collected_too_until_it_is_stopped(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client)
            notes, stop = Notes(), asyncio.Event()
            running = asyncio.create_task(make_collector(client, store, [source()], notes=notes).run(stop))
            for number in range(3):
                await park(client, "orders.dlq", numbered(10, start=number * 10))
                await wait_until(lambda: sum(_counts(notes)) == (number + 1) * 10)  # noqa: B023
            stop.set()
            assert (await running).total.inserted == 30
            assert await store.batches.open_batches("/", "orders.dlq") == ()
            assert await store.leases.held() == ()

    run_scenario(steps())


@pytest.mark.parametrize(("kind", "waits"), [("classic", True), ("quorum", False)])
def test_once_stopped_it_keeps_a_batch_open_until_its_ack_is_on_the_brokers_disk(
    kind: str, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classic queue whose broker is killed before gives the messages back: only an open batch knows them again."""
    monkeypatch.setattr("redrive.deadletters.collect.collect_loop.ACK_ON_DISK_S", 3.0)

    async def steps() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, "orders.dlq", numbered(3))
            stop, acked = asyncio.Event(), asyncio.Event()

            async def pause(name: str) -> None:
                if name == "owned":
                    stop.set()
                    acked.set()

            running = asyncio.create_task(make_collector(client, store, [source(kind)], pause_at=pause).run(stop))
            await acked.wait()
            ended, _ = await asyncio.wait([running], timeout=1.0)
            assert (not ended) is waits
            assert bool(await store.batches.open_batches("/", "orders.dlq")) is waits
            assert (await running).total.inserted == 3
            assert await store.batches.open_batches("/", "orders.dlq") == ()

    run_scenario(steps())


def test_a_connection_lost_while_a_batch_is_collected_loses_nothing(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, "quorum")
            await park(client, "orders.dlq", numbered(50))
            places = iter(["taken", "stored", "acked"])
            next_place = next(places)

            async def cut(name: str) -> None:
                nonlocal next_place
                if name == next_place:
                    next_place = next(places, "")
                    (await client.connection()).give_up("cut by the test")

            collector = make_collector(client, store, [source("quorum")], pause_at=cut)
            report = await collector.run(once=True)
            assert (next_place, report.left) == ("", {})
            assert await stored_bodies(store) == sorted(body for _, body in numbered(50))

    run_scenario(steps())


def test_while_the_database_is_away_no_message_is_held_and_no_delivery_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.0") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, "quorum")
            await park(client, "orders.dlq", numbered(5))
            real = store.batches.store
            announcing, storing = 10, 3

            async def away(arrivals: Sequence[Arrival], **named: Any) -> object:
                nonlocal announcing, storing
                if announcing:
                    announcing -= 1
                    raise StoreUnavailable("sqlite:///x", "is locked", "try again")
                if arrivals and storing:
                    storing -= 1
                    raise StoreUnavailable("sqlite:///x", "is full", "make room")
                return await real(arrivals, **named)

            monkeypatch.setattr(store.batches, "store", away)
            notes = Notes()
            options = replace(PROMPT, retry_s_max=0.05)
            collector = make_collector(client, store, [source("quorum")], notes=notes, options=options)
            report = await collector.run(once=True)
            assert (announcing, storing, report.left) == (0, 0, {})
            assert await stored_bodies(store) == sorted(body for _, body in numbered(5))
            assert notes.count("collector.failed") == 13
            first = (await stored_letters(store))[0]
            content = await store.letters.content(first.id)
            assert content is not None
            # Only the batches that could not be stored were ever taken.
            assert Properties(content.properties).header("x-delivery-count") == 3

    run_scenario(steps(), timeout_s=60)


def test_a_message_near_its_delivery_limit_stops_the_queue_and_is_stored(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.0") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, "quorum")
            await park(client, "orders.dlq", numbered(1))
            channel = await client.channel()
            for _ in range(16):
                got = await channel.get_message("orders.dlq")
                assert got is not None
                channel.reject(got, requeue=True)
            await park(client, "orders.dlq", numbered(3, start=1))
            notes = Notes()
            report = await make_collector(client, store, [source("quorum")], notes=notes).run(once=True)
            assert "was requeued 16 times, and above 20 RabbitMQ drops it" in report.left["orders.dlq"]
            assert notes.count("collector.stopped") == 1
            assert b"body 0" in await stored_bodies(store)
            await park(client, "orders.dlq", numbered(1, start=9))
            untouched = await make_collector(client, store, [source("quorum")]).run(once=True)
            assert untouched.total.inserted == 0
            assert await ready(client, "orders.dlq") == 1
            await store.batches.resume_queue("/", "orders.dlq", now_ms=1, who="ada")
            resumed = await make_collector(client, store, [source("quorum")]).run(once=True)
            assert (resumed.total.inserted, resumed.left) == (1, {})

    run_scenario(steps())


def test_a_missing_queue_and_one_with_other_consumers_are_named_and_waited_for(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, dlq="busy.dlq")
            other = await client.consume("busy.dlq", lambda _: None, prefetch=1)
            notes, stop = Notes(), asyncio.Event()
            sources = [source(dlq="late.dlq"), source(dlq="busy.dlq")]
            running = asyncio.create_task(make_collector(client, store, sources, notes=notes).run(stop))
            await wait_until(lambda: notes.count("collector.waiting") == 2)
            said = {str(fields["queue"]): str(fields["reason"]) for _, fields in notes.heard if "reason" in fields}
            assert said["late.dlq"] == "there is no queue late.dlq"
            assert "busy.dlq" in said["busy.dlq"]
            await declare(client, dlq="late.dlq")
            await other.close()
            await park(client, "late.dlq", numbered(2))
            await park(client, "busy.dlq", numbered(2, start=2))
            await wait_until(lambda: sum(_counts(notes)) == 4)
            stop.set()
            assert (await running).left == {}

    run_scenario(steps())


def test_an_observed_queue_is_never_consumed(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client)
            await park(client, "orders.dlq", numbered(3))
            report = await make_collector(client, store, [source(observe_only=True)]).run(once=True)
            assert report.tallies == {}
            assert await ready(client, "orders.dlq") == 3

    run_scenario(steps())


def test_a_queue_deleted_under_the_collector_is_waited_for(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client)
            notes, stop = Notes(), asyncio.Event()
            running = asyncio.create_task(make_collector(client, store, [source()], notes=notes).run(stop))
            await park(client, "orders.dlq", numbered(1))
            await wait_until(lambda: sum(_counts(notes)) == 1)
            channel = await client.channel()
            await channel.delete_queue("orders.dlq")
            await wait_until(lambda: notes.count("collector.waiting") == 1, timeout_s=20)
            await declare(client)
            await park(client, "orders.dlq", numbered(1, start=1))
            await wait_until(lambda: sum(_counts(notes)) == 2, timeout_s=20)
            stop.set()
            await running
            assert await stored_bodies(store) == [b"body 0", b"body 1"]

    run_scenario(steps(), timeout_s=60)


def test_a_lease_that_was_lost_stores_nothing_and_the_new_holder_has_all(tmp_path: Path) -> None:
    async def steps() -> None:
        async with (
            EmbeddedBroker() as broker,
            Client(broker.url) as slow,
            Client(broker.url) as client,
            sqlite_store(tmp_path) as store,
        ):
            await declare(client)
            await park(client, "orders.dlq", numbered(10))
            taken, go_on = asyncio.Event(), asyncio.Event()

            async def sleep_over_it(name: str) -> None:
                if name == "taken" and not taken.is_set():
                    taken.set()
                    await go_on.wait()

            stop = asyncio.Event()
            sleeper: Collector = make_collector(slow, store, [source()], owner="slow", pause_at=sleep_over_it)
            sleeping = asyncio.create_task(sleeper.run(stop))
            await taken.wait()
            # It slept over its lease, and somebody else takes it.
            (slept_over,) = await store.leases.held()
            await store.leases.renew(slept_over, ttl_ms=0)
            lease = await store.leases.acquire(source().lease_name, "thief", ttl_ms=1)
            assert lease is not None
            go_on.set()
            stop.set()
            assert (await sleeping).total.inserted == 0
            assert await ready(client, "orders.dlq") == 10
            await store.leases.release(lease)
            report = await make_collector(client, store, [source()]).run(once=True)
            assert report.total.inserted == 10

    run_scenario(steps())


def _counts(notes: Notes) -> list[int]:
    return [int(str(fields["count"])) for event, fields in notes.heard if event == "collector.stored"]


@pytest.mark.slow
def test_a_collector_that_dies_of_every_batch_stops_the_queue_before_the_delivery_limit(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.0") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, "quorum")
            await park(client, DLQ, numbered(3))
            for _ in range(25):
                if (await store.batches.stopped_queues()) or not await ready(client, DLQ):
                    break
                async with Client(broker.url) as doomed:
                    with suppress(Killed):
                        sources = [source("quorum")]
                        await make_collector(doomed, store, sources, pause_at=kill_at("taken")).run(once=True)
            assert (await store.batches.stopped_queues()).keys() == {("/", DLQ)}
            assert await ready(client, DLQ) == 3

    run_scenario(steps(), timeout_s=60)


@pytest.mark.slow
def test_a_queue_that_can_not_be_marked_as_stopped_is_not_consumed_up_to_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.0") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, "quorum")
            await park(client, DLQ, numbered(3))
            really_store = store.batches.store

            async def only_small(arrivals: Any, **rest: Any) -> Any:
                if arrivals:
                    raise StoreUnavailable("the database", "its disk is full", "make room")
                return await really_store(arrivals, **rest)

            async def never(*_: object, **__: object) -> None:
                raise StoreUnavailable("the database", "its disk is full", "make room")

            monkeypatch.setattr(store.batches, "store", only_small)
            monkeypatch.setattr(store.batches, "stop_queue", never)
            options = replace(PROMPT, retry_s_max=0.02, once_s=5.0)
            await make_collector(client, store, [source("quorum")], options=options).run(once=True)
            assert await stored_bodies(store) == []
            assert await ready(client, DLQ) == 3

    run_scenario(steps(), timeout_s=60)


@pytest.mark.slow
def test_a_queue_stopped_while_a_collector_waits_for_its_lease_is_not_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client)
            await park(client, DLQ, numbered(3))
            really_acquire = store.leases.acquire

            async def after_a_return(*names: Any, **rest: Any) -> Any:
                monkeypatch.setattr(store.leases, "acquire", really_acquire)
                await store.batches.stop_queue("/", DLQ, "ada returned dead letters", now_ms=now_ms(), who="ada")
                return await really_acquire(*names, **rest)

            monkeypatch.setattr(store.leases, "acquire", after_a_return)
            report = await make_collector(client, store, [source()]).run(once=True)
            assert report.total.inserted == 0
            assert await ready(client, DLQ) == 3

    run_scenario(steps(), timeout_s=60)
