"""Collecting from real brokers into SQLite: nothing lost, nothing twice, every byte as it was."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rig.brokers import Vhost
from rig.node_pool import OwnNodes

from redrive.client import Client, ReconnectBackoff
from redrive.deadletters.collect.sources import Source
from redrive.records import Filter
from redrive.stores import Store
from redrive.wire import Float32, Int8, Int16, LongString, Properties, UInt32
from tests.unit.client.scenario import Notes, run_scenario, wait_until
from tests.unit.deadletters.collector_scene import (
    PROMPT,
    Killed,
    kill_at,
    make_collector,
    now_ms,
    numbered,
    park,
    ready,
    sqlite_store,
    stored_bodies,
    stored_letters,
    wait_for,
)

KINDS = ("classic", "quorum")
DLQ = "orders.dlq"
PLAIN = Properties.of(delivery_mode=2)
TYPED = Properties.of(
    content_type="application/octet-stream",
    headers={
        "int8": Int8(-3),
        "int16": Int16(-300),
        "float": Float32(0.5),
        "uint32": UInt32(2**32 - 1),
        "list": [1, "two", None, True],
        "table": {"x": LongString(b"\xff\xfe"), "y": 2**40},
    },
    message_id="typed",
    correlation_id="c",
    priority=3,
    delivery_mode=2,
)


def source(vhost: Vhost | None, kind: str, dlq: str = DLQ) -> Source:
    return Source(vhost="/" if vhost is None else vhost.name, dlq=dlq, queue_type=kind)


async def declare(client: Client, kind: str, dlq: str = DLQ) -> None:
    channel = await client.channel()
    await channel.declare_queue(dlq, arguments={"x-queue-type": kind})
    await channel.close()


async def wait_ready(client: Client, dlq: str, count: int) -> None:
    async def is_there() -> bool:
        return await ready(client, dlq) == count

    await wait_for(is_there)


async def bodies(store: Store) -> Counter[bytes]:
    return Counter(await stored_bodies(store))


@pytest.mark.live
@pytest.mark.parametrize("kind", KINDS)
def test_odd_and_large_and_equal_messages_are_rows_of_their_own_byte_for_byte(
    vhost: Vhost, kind: str, tmp_path: Path
) -> None:
    large = bytes(range(256)) * 62_500
    assert len(large) == 16_000_000
    messages = [
        (TYPED, b"{}"),
        (PLAIN, b""),
        (PLAIN, bytes(range(256))),
        (PLAIN, b"\xc3\x28 not utf-8"),
        (PLAIN, b"twin"),
        (PLAIN, b"twin"),
        (PLAIN, large),
    ]

    async def steps() -> None:
        async with Client(vhost.amqp_url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, DLQ, messages)
            report = await make_collector(client, store, [source(vhost, kind)]).run(once=True)
            assert (report.total.inserted, report.left) == (7, {})
            assert await bodies(store) == Counter(body for _, body in messages)
            assert await ready(client, DLQ) == 0
            typed = next(one for one in await stored_letters(store) if one.message_id == "typed")
            content = await store.letters.content(typed.id)
            assert content is not None
            kept = Properties(content.properties).edit(drop=["x-delivery-count"])
            assert kept.present() == TYPED.present()
            for name in TYPED.headers:
                assert kept.raw_header(name) == TYPED.raw_header(name)

    run_scenario(steps(), timeout_s=120)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["taken", "stored", "acked", "barrier", "owned"])
def test_killed_between_any_two_steps_every_message_is_in_exactly_one_row(
    vhost: Vhost, kind: str, place: str, tmp_path: Path
) -> None:
    messages = [*numbered(30), (PLAIN, b"twin"), (PLAIN, b"twin")]

    async def steps() -> None:
        async with Client(vhost.amqp_url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, DLQ, messages)
            async with Client(vhost.amqp_url) as other:
                dying = make_collector(other, store, [source(vhost, kind)], pause_at=kill_at(place))
                with pytest.raises(Killed):
                    await dying.run(once=True)
            report = await make_collector(client, store, [source(vhost, kind)]).run(once=True)
            assert report.left == {}
            assert await bodies(store) == Counter(body for _, body in messages)
            assert await ready(client, DLQ) == 0

    run_scenario(steps(), timeout_s=120)


@pytest.mark.live
@pytest.mark.parametrize("kind", KINDS)
def test_two_collectors_at_once_take_five_thousand_messages_each_once(vhost: Vhost, kind: str, tmp_path: Path) -> None:
    names = ["a.dlq", "b.dlq"]

    async def steps() -> None:
        async with Client(vhost.amqp_url) as first, Client(vhost.amqp_url) as second, sqlite_store(tmp_path) as store:
            for place, name in enumerate(names):
                await declare(first, kind, name)
                await park(first, name, numbered(2500, start=place * 2500))
            sources = [source(vhost, kind, name) for name in names]
            stop = asyncio.Event()
            running = asyncio.gather(
                make_collector(first, store, sources, owner="one").run(stop),
                make_collector(second, store, sources, owner="two").run(stop),
            )

            async def all_stored() -> bool:
                return await store.letters.count(Filter(), now_ms=now_ms()) >= 5000

            await wait_for(all_stored, timeout_s=120)
            stop.set()
            reports = await running
            assert sum(report.total.inserted for report in reports) == 5000
            rows = Counter(one.message_id for one in await stored_letters(store))
            assert rows == Counter(f"m{number}" for number in range(5000))
            assert [await ready(first, name) for name in names] == [0, 0]

    run_scenario(steps(), timeout_s=180)


@pytest.mark.live
@pytest.mark.parametrize("kind", KINDS)
def test_somebody_elses_consumer_is_waited_for(vhost: Vhost, kind: str, tmp_path: Path) -> None:
    async def steps() -> None:
        async with Client(vhost.amqp_url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            other = await client.consume(DLQ, lambda _: None, prefetch=1)
            notes, stop = Notes(), asyncio.Event()
            running = asyncio.create_task(make_collector(client, store, [source(vhost, kind)], notes=notes).run(stop))
            await wait_until(lambda: notes.count("collector.waiting") == 1, timeout_s=30)
            assert "it is collected when we are its only consumer" in str(notes.last("collector.waiting")["reason"])
            await other.close()
            await park(client, DLQ, numbered(3))
            await wait_until(lambda: notes.count("collector.stored") >= 1, timeout_s=30)
            stop.set()
            assert (await running).total.inserted == 3

    run_scenario(steps(), timeout_s=90)


@pytest.mark.live
@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_with_a_single_active_consumer_is_collected_though_it_refuses_exclusive_ones(
    vhost: Vhost, kind: str, tmp_path: Path
) -> None:
    async def steps() -> None:
        async with Client(vhost.amqp_url) as client, sqlite_store(tmp_path) as store:
            arguments = {"x-queue-type": kind, "x-single-active-consumer": True}
            await (await client.channel()).declare_queue(DLQ, arguments=arguments)
            await park(client, DLQ, numbered(30))
            # As over AMQP alone: nobody knows its type.
            unknown = Source(vhost=vhost.name, dlq=DLQ)
            report = await make_collector(client, store, [unknown]).run(once=True)
            assert (report.total.inserted, report.left) == (30, {})
            assert await ready(client, DLQ) == 0

    run_scenario(steps(), timeout_s=60)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_a_broker_that_goes_in_the_middle_loses_nothing_and_doubles_nothing(
    own_node: OwnNodes, kind: str, how: str, tmp_path: Path
) -> None:
    node = own_node()

    def go_and_come() -> None:
        if how == "killed":
            node.kill()
            node.start()
        else:
            node.restart()

    def impatient() -> ReconnectBackoff:
        return ReconnectBackoff(first_s=0.05, longest_s=0.5)

    async def steps() -> None:
        async with Client(node.amqp_url(), backoff=impatient) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            # A queue declared a moment before the machine loses its power may be gone with it; not our matter here.
            await asyncio.to_thread(node.restart)
            await park(client, DLQ, numbered(500))
            places = iter(["taken", "stored"])
            next_place = next(places)

            async def restart(name: str) -> None:
                nonlocal next_place
                if name == next_place:
                    next_place = next(places, "")
                    await asyncio.to_thread(go_and_come)

            notes = Notes()
            options = replace(PROMPT, once_s=150.0)
            collector = make_collector(
                client, store, [source(None, kind)], notes=notes, options=options, pause_at=restart
            )
            report = await collector.run(once=True)
            assert (next_place, report.left) == ("", {})
            assert await bodies(store) == Counter(body for _, body in numbered(500))
            assert await ready(client, DLQ) == 0

    run_scenario(steps(), timeout_s=240)
