"""Redrives on real brokers and both stores: every dead letter and every copy is accounted for."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import Vhost
from rig.postgres import Postgres

from redrive import wire
from redrive.client import Client, Confirmed, ConnectionFailed
from redrive.deadletters.redrive.operation_run import RedriveOptions
from redrive.deadletters.redrive.preflight import TargetRefused, check_targets, limits_from_management
from redrive.deadletters.redrive.redriver import RunsElsewhere
from redrive.deadletters.redrive.witness import witness_queue
from redrive.inspection import queue_state
from redrive.management import Management, parse_management_url
from redrive.records import ItemState, NewOperation, OperationKind, OperationState, RedriveTarget, Selection, Status
from redrive.wire import Properties
from tests.live.client.accounts import drain, wait_ready
from tests.live.cutting_proxy import cutting_proxy
from tests.live.deadletters.redriver_stage import RedrivingStage, redrive_of, redriving_stage

pytestmark = [pytest.mark.live, pytest.mark.slow]
SCENARIO_S_MAX = 120.0


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'redrive.db'}"
    return str(request.getfixturevalue("postgres_url"))


Scenario = Callable[[RedrivingStage], Coroutine[Any, Any, None]]


def play(vhost: Vhost, database_url: str, scenario: Scenario) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(SCENARIO_S_MAX),
            redriving_stage(database_url, vhost.amqp_url, vhost.name) as on,
        ):
            await scenario(on)

    asyncio.run(main())


async def declare(on: RedrivingStage, name: str = "orders", **arguments: Any) -> None:
    channel = await on.client.channel()
    await channel.declare_queue(name, arguments={"x-queue-type": "quorum", **arguments})
    await channel.close()


async def taken(on: RedrivingStage, queue: str = "orders") -> list[wire.Got]:
    """All that is ready, taken for good, as raw bytes."""
    channel = await on.client.channel()
    found = []
    while (got := await channel.get_message(queue, no_ack=True)) is not None:
        found.append(got)
    await channel.close()
    return found


def numbered(count: int) -> list[tuple[Properties, bytes]]:
    return [(Properties.of(message_id=f"m{number}", delivery_mode=2), b"%d" % number) for number in range(count)]


TYPED = {
    "text": "ä",
    "bytes": b"\x00\xff",
    "not utf-8": wire.LongString(b"\xff\xfe"),
    "int8": wire.Int8(-3),
    "uint16": wire.UInt16(65_535),
    "int": 7,
    "long": wire.Int64(7),
    "float": wire.Float32(1.5),
    "double": 0.1,
    "decimal": Decimal("3.14"),
    "time": datetime(2026, 1, 2, tzinfo=UTC),
    "yes": True,
    "nothing": None,
    "list": [1, "two", {"three": 3}],
    "table": {"a": {"b": wire.Int8(1)}},
}


def test_bodies_and_typed_headers_arrive_once_and_byte_for_byte_with_the_same_id(
    vhost: Vhost, database_url: str
) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        bodies = [b"", b"\x00\xff\xfe", b"\xf0\x28", b"x" * (16 << 20), b'{"a": 1}']
        messages = [
            (
                Properties.of(
                    headers={
                        **TYPED,
                        "x-retry-count": 3,
                        "x-final-error": "Timeout: no",
                        "x-original-queue": "orders",
                        "CC": ["elsewhere"],
                    },
                    message_id=f"m{number}",
                    user_id="somebody",
                    expiration="1",
                    delivery_mode=1,
                    priority=1,
                    content_type="application/x",
                    timestamp=datetime(2026, 1, 2, tzinfo=UTC),
                ),
                body,
            )
            for number, body in enumerate(bodies)
        ]
        ids = await on.collected(messages)
        operation = await on.service.start(redrive_of(*ids))
        done = await on.redriver().run(operation.id)
        assert (done.state, done.sent, done.left) == (OperationState.DONE, len(bodies), 0)
        assert set((await on.statuses(ids)).values()) == {"retrying"}
        found = await taken(on)
        assert [hashlib.sha256(got.body).digest() for got in found] == [hashlib.sha256(one).digest() for one in bodies]
        for number, got in enumerate(found):
            made, original = Properties(got.header), messages[number][0]
            assert made.message_id == f"m{number}"
            assert (made.user_id, made.expiration, made.delivery_mode, made.priority) == (None, None, 2, 1)
            assert (made.content_type, made.timestamp) == (original.content_type, original.timestamp)
            for name in TYPED:
                assert made.raw_header(name) == original.raw_header(name)
            assert made.headers["x-redriven-id"] == ids[number]
            assert (made.headers["x-redriven-count"], made.headers["x-redriven-by"]) == (1, "ann")
            assert datetime.fromisoformat(made.headers["x-redriven-at"]).tzinfo is not None
            assert made.headers["x-original-queue"] == "orders"
            assert made.headers["x-redrive-stripped"] == {
                "user_id": "somebody",
                "expiration": "1",
                "delivery_mode": 1,
                "CC": ["elsewhere"],
            }
            assert "x-retry-count" not in made.headers
            assert "x-final-error" not in made.headers

    play(vhost, database_url, scenario)


def test_a_missing_target_is_refused_before_anything_is_changed(vhost: Vhost, database_url: str) -> None:
    async def scenario(on: RedrivingStage) -> None:
        ids = await on.collected(numbered(3))
        with pytest.raises(TargetRefused, match="queue orders: it does not exist"):
            await on.service.start(redrive_of(*ids))
        with pytest.raises(TargetRefused, match=r"exchange retry\.orders with key retry: it does not exist"):
            await on.service.start(
                redrive_of(*ids, target=RedriveTarget(exchange="retry.{queue}", routing_key="retry"))
            )
        assert set((await on.statuses(ids)).values()) == {"pending"}
        assert (await on.store.operations.page(10))[0] == []

    play(vhost, database_url, scenario)


def test_a_target_that_goes_after_the_start_returns_every_copy(vhost: Vhost, database_url: str) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected(numbered(3))
        operation = await on.service.start(redrive_of(*ids))
        channel = await on.client.channel()
        await channel.delete_queue("orders")
        done = await on.redriver().run(operation.id)
        assert (done.state, done.refused) == (OperationState.DONE, 3)
        for one in ids:
            letter = await on.store.letters.get(one)
            assert letter is not None
            assert letter.status is Status.PENDING
            assert "312 NO_ROUTE" in (letter.status_reason or "")

    play(vhost, database_url, scenario)


def test_the_file_pipelines_target_is_its_retry_exchange(vhost: Vhost, database_url: str) -> None:
    async def scenario(on: RedrivingStage) -> None:
        channel = await on.client.channel()
        await channel.declare_exchange("retry.q.thumbnail")
        await channel.declare_queue("q.thumbnail.retry")
        await channel.bind_queue("q.thumbnail.retry", "retry.q.thumbnail", "retry")
        ids = await on.collected(numbered(2), queue="q.thumbnail")
        target = RedriveTarget(exchange="retry.{queue}", routing_key="retry")
        operation = await on.service.start(redrive_of(*ids, target=target))
        done = await on.redriver().run(operation.id)
        assert (done.state, done.sent) == (OperationState.DONE, 2)
        held = drain(vhost.amqp_url, "q.thumbnail.retry")
        assert [(one.exchange, one.routing_key, one.body) for one in held] == [
            ("retry.q.thumbnail", "retry", b"0"),
            ("retry.q.thumbnail", "retry", b"1"),
        ]

    play(vhost, database_url, scenario)


def test_an_operation_that_gives_back_puts_messages_into_the_queue_they_came_from_as_they_were(
    vhost: Vhost, database_url: str
) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on, "orders.parked")
        parked = Properties.of(headers={**TYPED, "x-final-error": "no"}, message_id="m", delivery_mode=2)
        ids = await on.collected([(parked, b"\x00\xff")])
        new = NewOperation(kind=OperationKind.RESTORE, selection=Selection(ids=ids), who="ann")
        done = await on.redriver().run((await on.service.start(new)).id)
        assert (done.state, done.sent) == (OperationState.DONE, 1)
        (got,) = await taken(on, "orders.parked")
        made = Properties(got.header)
        assert (got.body, made.message_id) == (b"\x00\xff", "m")
        # 3.10 sorts the headers of a quorum queue and adds its count.
        assert made.headers.keys() - {"x-delivery-count"} == parked.headers.keys()
        for name in parked.headers:
            assert made.raw_header(name) == parked.raw_header(name)
        letter = await on.store.letters.get(ids[0])
        assert letter is not None
        assert (letter.status, letter.resolved_by) == (Status.RESOLVED, "ann")

    play(vhost, database_url, scenario)


def test_a_full_queue_leaves_pending_what_it_refuses_with_the_reason(vhost: Vhost, database_url: str) -> None:
    async def scenario(on: RedrivingStage) -> None:
        channel = await on.client.channel()
        # Classic: a quorum queue may take a few more than its limit before it refuses.
        await channel.declare_queue("orders", arguments={"x-max-length": 4, "x-overflow": "reject-publish"})
        ids = await on.collected(numbered(10))
        operation = await on.service.start(redrive_of(*ids))
        done = await on.redriver().run(operation.id)
        assert (done.state, done.sent + done.refused) == (OperationState.DONE, 10)
        assert done.refused > 0
        there = {held.properties.headers["x-redriven-id"] for held in drain(vhost.amqp_url, "orders")}
        for one in ids:
            letter = await on.store.letters.get(one)
            assert letter is not None
            assert letter.status is (Status.RETRYING if one in there else Status.PENDING)
            assert one in there or "refused" in (letter.status_reason or "")

    play(vhost, database_url, scenario)


def test_two_redrivers_of_one_operation_send_everything_once(vhost: Vhost, database_url: str) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected(numbered(300))
        operation = await on.service.start(redrive_of(*ids))
        async with Client(vhost.amqp_url) as other:
            redrivers = [on.redriver(), on.redriver("second", client=other), on.redriver("third", client=other)]
            ran = await asyncio.gather(*(one.run(operation.id) for one in redrivers), return_exceptions=True)
        for one in ran:
            # Who comes last may find it done.
            assert isinstance(one, RunsElsewhere) or getattr(one, "state", None) is OperationState.DONE
        done = await on.store.operations.get(operation.id)
        assert done is not None
        assert (done.state, done.sent) == (OperationState.DONE, 300)
        copies = Counter(held.properties.headers["x-redriven-id"] for held in drain(vhost.amqp_url, "orders"))
        assert copies == Counter(ids)

    play(vhost, database_url, scenario)


def test_two_operations_for_the_same_dead_letters_send_each_once(vhost: Vhost, database_url: str) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected(numbered(200))
        operations = [await on.service.start(redrive_of(*ids)) for _ in range(2)]
        async with Client(vhost.amqp_url) as other:
            redrivers = [on.redriver(), on.redriver("second", client=other)]
            done = await asyncio.gather(*(r.run(one.id) for r, one in zip(redrivers, operations, strict=True)))
        assert sum(one.sent for one in done) == 200
        assert sum(one.skipped for one in done) == 200
        copies = Counter(held.properties.headers["x-redriven-id"] for held in drain(vhost.amqp_url, "orders"))
        assert copies == Counter(ids)

    play(vhost, database_url, scenario)


async def connected(url: str) -> Client:
    """A client through a proxy that may cut the first handshakes."""
    for _ in range(20):
        client = Client(url)
        try:
            await client.start()
        except ConnectionFailed:
            continue
        return client
    raise AssertionError("no connection in twenty tries")


@pytest.mark.parametrize("seed", [3, 8])
def test_a_connection_cut_while_sending_leaves_every_dead_letter_accounted_for(
    vhost: Vhost, database_url: str, seed: int
) -> None:
    host, port = Client(vhost.amqp_url).target.hosts[0]

    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected([(one, body + b"x" * 200) for one, body in numbered(300)])
        operation = await on.service.start(redrive_of(*ids))
        async with cutting_proxy(host, port, cuts=4, bytes_max=60_000, seed=seed) as proxy:
            shaky = await connected(vhost.amqp_url.replace(f":{port}/", f":{proxy.port}/"))
            done = await on.redriver(client=shaky, options=RedriveOptions(publish_s=20)).run(operation.id)
            await shaky.close()
            assert proxy.cuts_made > 0
        assert (done.state, done.sent + done.in_doubt) == (OperationState.DONE, 300)
        there = Counter(held.properties.headers["x-redriven-id"] for held in drain(vhost.amqp_url, "orders"))
        assert set(there.values()) == {1}
        statuses = await on.statuses(ids)
        for one in ids:
            assert statuses[one] == "in_doubt" or (statuses[one] == "retrying" and there[one] == 1)
        doubtful = tuple(one for one in ids if statuses[one] == "in_doubt")
        assert len(doubtful) == done.in_doubt
        if not doubtful:
            return
        again = await on.service.start(redrive_of(*doubtful))
        done = await on.redriver().run(again.id)
        assert (done.state, done.sent) == (OperationState.DONE, len(doubtful))
        for held in drain(vhost.amqp_url, "orders"):
            assert held.properties.headers["x-redrive-possible-duplicate"] is True
            assert held.properties.headers["x-redriven-count"] == 2

    play(vhost, database_url, scenario)


def test_what_dies_again_comes_back_to_its_row_and_is_poison_after_the_third_time(
    vhost: Vhost, database_url: str
) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on, "orders.parked")
        await declare(on, "orders", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.parked"})
        publisher = await on.client.publisher()
        sent = await publisher.publish("", "orders", b"bad", Properties.of(message_id="m", delivery_mode=2))
        assert sent == Confirmed()

        async def reject() -> None:
            channel = await on.client.channel()
            got = await channel.get_message("orders")
            assert got is not None
            channel.reject(got, requeue=False)
            await channel.close()
            await asyncio.to_thread(wait_ready, vhost.amqp_url, "orders.parked", 1)

        await reject()
        (id,) = (await on.collect("orders.parked")).inserted
        for times in (1, 2, 3):
            operation = await on.service.start(redrive_of(id))
            assert (await on.redriver().run(operation.id)).sent == 1
            await reject()
            stored = await on.collect("orders.parked")
            assert (stored.inserted, stored.came_back) == ((), (id,))
            letter = await on.store.letters.get(id)
            assert letter is not None
            assert (letter.redrives, letter.returns, letter.is_poison) == (times, times, times == 3)
            assert letter.status is Status.PENDING
        content = await on.store.letters.content(id)
        assert content is not None
        assert (content.body, Properties(content.properties).message_id) == (b"bad", "m")
        assert len(await on.store.letters.earlier_contents(id)) == 3

    play(vhost, database_url, scenario)


@pytest.mark.parametrize("checkpoint", ["taken", "published", "confirmed", "recorded"])
def test_a_runner_that_ends_at_any_step_leaves_nothing_uncertain_but_its_batch(
    vhost: Vhost, database_url: str, checkpoint: str
) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected(numbered(60))
        operation = await on.service.start(redrive_of(*ids))
        there = asyncio.Event()

        async def die(at: str) -> None:
            if at == checkpoint:
                there.set()
                await asyncio.Event().wait()

        dying = asyncio.create_task(on.redriver(pause_at=die).run(operation.id))
        await there.wait()
        dying.cancel()
        await asyncio.wait([dying])
        done = await on.redriver("second").run(operation.id)
        doubts = 0 if checkpoint == "recorded" else 20
        assert (done.state, done.sent, done.in_doubt) == (OperationState.DONE, 60 - doubts, doubts)
        copies = Counter(held.properties.headers["x-redriven-id"] for held in drain(vhost.amqp_url, "orders"))
        assert set(copies.values()) == {1}
        items = (await on.store.operations.items(operation.id, 100))[0]
        for item in items:
            assert item.state is ItemState.IN_DOUBT or copies[item.letter_id] == 1

    play(vhost, database_url, scenario)


@pytest.mark.parametrize("checkpoint", ["taken", "published", "confirmed", "recorded"])
def test_with_a_witness_nothing_stays_in_doubt_and_everything_arrives_once(
    vhost: Vhost, database_url: str, checkpoint: str
) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected(numbered(50))
        operation = await on.service.start(redrive_of(*ids))
        there = asyncio.Event()

        async def die(at: str) -> None:
            if at == checkpoint:
                there.set()
                await asyncio.Event().wait()

        dying = asyncio.create_task(on.redriver(pause_at=die, has_witness=True).run(operation.id))
        await there.wait()
        dying.cancel()
        await asyncio.wait([dying])
        options = RedriveOptions(witness_s=0.5)
        done = await on.redriver("second", options=options, has_witness=True).run(operation.id)
        assert done.state is OperationState.DONE
        statuses = await on.statuses(ids)
        assert set(statuses.values()) <= {"retrying", "resolved", "pending"}
        left = tuple(one for one in ids if statuses[one] == "pending")
        if left:
            again = await on.service.start(redrive_of(*left))
            assert (await on.redriver().run(again.id)).sent == len(left)
        copies = Counter(held.properties.headers["x-redriven-id"] for held in drain(vhost.amqp_url, "orders"))
        assert copies == Counter(ids)
        assert await queue_state(on.client, witness_queue(operation.id)) is None

    play(vhost, database_url, scenario)


def test_a_witness_does_not_hide_a_missing_target(vhost: Vhost, database_url: str) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected(numbered(5))
        operation = await on.service.start(redrive_of(*ids))
        channel = await on.client.channel()
        await channel.delete_queue("orders")
        done = await on.redriver(has_witness=True).run(operation.id)
        assert (done.state, done.refused, done.sent) == (OperationState.DONE, 5, 0)
        assert set((await on.statuses(ids)).values()) == {"pending"}

    play(vhost, database_url, scenario)


def test_a_target_that_goes_while_the_witness_watches_leaves_its_copies_in_doubt(
    vhost: Vhost, database_url: str
) -> None:
    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected(numbered(5))
        operation = await on.service.start(redrive_of(*ids))
        deleted: list[str] = []

        async def pull(at: str) -> None:
            if at == "published" and not deleted:
                # The first batch is in the queue: a copy that meets the deletion on its way may be refused instead.
                await asyncio.to_thread(wait_ready, vhost.amqp_url, "orders", 3)
                channel = await on.client.channel()
                await channel.delete_queue("orders")
                deleted.append(at)

        options = RedriveOptions(witness_s=0.1)
        done = await on.redriver(pause_at=pull, options=options, has_witness=True).run(operation.id)
        assert (done.state, done.in_doubt) == (OperationState.DONE, 5)
        assert set((await on.statuses(ids)).values()) == {"in_doubt"}

    play(vhost, database_url, scenario)


def test_a_queue_that_would_push_out_others_refuses_the_start(vhost: Vhost, database_url: str) -> None:
    async def scenario(on: RedrivingStage) -> None:
        channel = await on.client.channel()
        await channel.declare_queue("orders", arguments={"x-max-length": 4})
        ids = await on.collected(numbered(5))
        target = on.client.target
        endpoint = parse_management_url(vhost.management_url, user=target.user, password=target.password)
        async with Management(endpoint) as management:
            preflight = await check_targets(
                on.client, {"orders": 5}, RedriveTarget(), limits_of=limits_from_management(management)
            )
        assert [finding.code for finding in preflight.errors] == ["target-overflows"]
        assert "which are lost; send at most 4 at a time" in preflight.errors[0].text
        assert set((await on.statuses(ids)).values()) == {"pending"}

    play(vhost, database_url, scenario)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
@pytest.mark.parametrize("checkpoint", ["taken", "confirmed", "recorded"])
def test_a_database_killed_in_the_middle_is_waited_for_and_nothing_is_in_doubt(
    vhost: Vhost, own_postgres: Callable[[], Postgres], checkpoint: str
) -> None:
    server = own_postgres()

    async def scenario(on: RedrivingStage) -> None:
        await declare(on)
        ids = await on.collected(numbered(60))
        operation = await on.service.start(redrive_of(*ids))
        kills: list[str] = []

        async def kill(at: str) -> None:
            if at == checkpoint and not kills:
                kills.append(at)
                await asyncio.to_thread(server.kill)
                asyncio.get_running_loop().call_later(1.0, restart.set)

        restart = asyncio.Event()

        async def restarting() -> None:
            await restart.wait()
            await asyncio.to_thread(server.start)

        mending = asyncio.create_task(restarting())
        done = await on.redriver(pause_at=kill).run(operation.id)
        await mending
        assert kills == [checkpoint]
        assert (done.state, done.sent, done.in_doubt) == (OperationState.DONE, 60, 0)
        copies = Counter(held.properties.headers["x-redriven-id"] for held in drain(vhost.amqp_url, "orders"))
        assert copies == Counter(ids)

    with server.fresh_database("redriving") as url:
        play(vhost, url, scenario)
