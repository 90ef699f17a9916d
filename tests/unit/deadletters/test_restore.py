"""The way back: copies as they were collected, and no collector that eats them again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from redrive.client import Client
from redrive.core import NULL_OBSERVER
from redrive.deadletters.actions.restore import StillCollected, keep_collectors_away
from redrive.deadletters.collect.sources import Source
from redrive.deadletters.held_leases import LeaseHolder
from redrive.deadletters.redrive.copies import Uncopyable, restored_copy
from redrive.deadletters.redrive.operation_run import RedriverParts
from redrive.deadletters.redrive.redriver import Redriver
from redrive.embedded import EmbeddedBroker
from redrive.records import (
    ClaimedLetter,
    Filter,
    MessageContent,
    NewOperation,
    Operation,
    OperationKind,
    OperationState,
    RedriveTarget,
    Selection,
    Status,
    make_id,
)
from redrive.stores import Store
from redrive.wire import Properties
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collector_scene import (
    declare,
    die,
    make_collector,
    now_ms,
    numbered,
    park,
    random_bits,
    ready,
    source,
    sqlite_store,
    stored_letters,
    wait_for,
)
from tests.unit.runtime.odd_messages import messages, unreadable
from tests.unit.stores.arrivals import NOW_MS

DLQ = "orders.dlq"

pytestmark = pytest.mark.slow

DEATH = {"queue": "orders", "reason": "rejected", "count": 3, "exchange": "", "routing-keys": ["orders"]}
ORIGINAL = Properties.of(
    # In the order that 4.x brings them into.
    headers={"n": 1, "x-death": [DEATH], "x-final-error": "Oops: no"},
    message_id="m",
    delivery_mode=2,
)


def claimed(properties: Properties | bytes, **changes: Any) -> ClaimedLetter:
    raw = properties if isinstance(properties, bytes) else properties.raw
    return ClaimedLetter(
        **{
            "id": "x",
            "vhost": "/",
            "queue": "orders",
            "dlq": "orders.dlq",
            "dlq_exchange": "dlx",
            "dlq_routing_key": "k",
            "content": MessageContent(properties=raw, body=b"body"),
            "redrives": 1,
            "attempts": 3,
            "was_in_doubt": False,
            **changes,
        }
    )


def copied(properties: Properties | bytes, **changes: Any) -> Properties:
    copy = restored_copy(claimed(properties, **changes))
    assert (copy.exchange, copy.routing_key, copy.body, copy.mandatory) == ("", "orders.dlq", b"body", True)
    assert isinstance(copy.properties, Properties)
    return copy.properties


def test_a_copy_is_the_message_as_it_was_with_its_x_death() -> None:
    assert copied(ORIGINAL).raw == ORIGINAL.raw


def test_what_would_do_harm_is_taken_off_and_kept_in_stripped() -> None:
    harmful = ORIGINAL.edit(
        headers={"x-delivery-count": 19, "x-acquired-count": 3, "CC": ["live"], "x-redrive-stripped": {"priority": 5}},
        expiration="1000",
        user_id="somebody",
        delivery_mode=1,
    )
    copy = copied(harmful)
    assert (copy.expiration, copy.user_id, copy.delivery_mode) == (None, None, 2)
    stripped = copy.header("x-redrive-stripped")
    assert stripped == {"CC": ["live"], "expiration": "1000", "user_id": "somebody", "delivery_mode": 1, "priority": 5}
    assert copy.edit(drop=["x-redrive-stripped"]).raw == ORIGINAL.raw


@pytest.mark.parametrize("name", messages("orders"))
def test_an_x_death_that_no_broker_wrote_is_not_sent_again_and_kept_in_stripped(name: str) -> None:
    """3.10 would crash on it, if the copy died where it is returned to."""
    odd = messages("orders")[name]
    copy = copied(odd)
    assert copy.raw_header("x-death") is None
    kept = copy.header("x-redrive-stripped")["x-death"]
    assert kept in (odd.header("x-death"), odd.raw_header("x-death"))
    assert copy.header("mine") == "kept"


@pytest.mark.parametrize("name", unreadable())
def test_headers_nested_too_deep_are_copied_as_they_are(name: str) -> None:
    copy = copied(unreadable()[name])
    assert copy.header("mine") == "kept"
    for entry in ("stranger", "x-redrive-id", "x-original-queue"):
        assert copy.raw_header(entry) == unreadable()[name].raw_header(entry)


def test_a_copy_that_may_be_the_second_says_so() -> None:
    assert copied(ORIGINAL, was_in_doubt=True).header("x-redrive-possible-duplicate") is True


def test_what_cannot_be_read_cannot_be_restored() -> None:
    with pytest.raises(Uncopyable, match="its properties can't be copied"):
        copied(b"\xff")
    with pytest.raises(Uncopyable, match="nobody knows the queue"):
        copied(ORIGINAL, dlq="")


@pytest.mark.parametrize("profile", ["3.10", "4.3"])
def test_restored_letters_are_in_their_queue_again_and_stay_there(profile: str, tmp_path: Path) -> None:
    source = Source(vhost="/", dlq="orders.dlq", queue_type="classic")

    async def steps() -> None:
        async with EmbeddedBroker(profile) as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            channel = await client.channel()
            await channel.declare_queue("orders.dlq")
            await park(client, "orders.dlq", [(ORIGINAL, b"one"), (ORIGINAL, b"two")])
            await make_collector(client, store, [source]).run(once=True)
            assert await ready(client, "orders.dlq") == 0
            parts = RedriverParts(store=store, client=client, owner="r", clock_ms=now_ms)
            everything = NewOperation(kind=OperationKind.RESTORE, selection=Selection(filter=Filter()), who="ann")
            id = make_id(now_ms(), random_bits())
            await store.operations.create(everything, id=id, now_ms=now_ms())
            async with keep_collectors_away(
                LeaseHolder(store=store, owner="r", clock_ms=now_ms, observer=NULL_OBSERVER),
                "/",
                ["orders.dlq"],
                who="ann",
            ):
                ended = await Redriver(parts).run(id)
            assert (ended.state, ended.sent) == (OperationState.DONE, 2)
            assert {one.status for one in await stored_letters(store)} == {Status.RESOLVED}
            again = await make_collector(client, store, [source]).run(once=True)
            assert "ann returned dead letters" in again.left["orders.dlq"]
            got = [await channel.get_message("orders.dlq", no_ack=True) for _ in range(2)]
            assert sorted((one.body, one.header) for one in got if one is not None) == [
                (b"one", ORIGINAL.raw),
                (b"two", ORIGINAL.raw),
            ]

    run_scenario(steps())


def test_while_a_collector_has_the_queue_nothing_is_restored_to_it(tmp_path: Path) -> None:
    source = Source(vhost="/", dlq="orders.dlq", queue_type="classic")

    async def steps() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await (await client.channel()).declare_queue("orders.dlq")
            stop = asyncio.Event()
            running = asyncio.create_task(make_collector(client, store, [source], owner="night shift").run(stop))

            async def is_held() -> bool:
                return bool(await store.leases.held())

            await wait_for(is_held)
            with pytest.raises(StillCollected, match=r"orders\.dlq is being collected by night shift"):
                async with keep_collectors_away(
                    LeaseHolder(store=store, owner="r", clock_ms=now_ms, observer=NULL_OBSERVER),
                    "/",
                    ["orders.dlq"],
                    who="ann",
                ):
                    pytest.fail("it was let in")
            assert await store.batches.stopped_queues() == {}
            stop.set()
            await running

    run_scenario(steps())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_restored_letters_that_were_peeked_at_are_collected_again_after_a_crash(kind: str, tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, kind)
            await park(client, DLQ, numbered(3))
            await die(broker, store, kind, "barrier")  # acked, and its batch is still open
            assert await ready(client, DLQ) == 0
            assert (await _give_back(client, store)).sent == 3
            channel = await client.channel()
            held = [await channel.get_message(DLQ) for _ in range(3)]
            for got in held:
                assert got is not None
                channel.nack(got, requeue=True)
            await channel.qos(0)
            await channel.close()
            await store.batches.resume_queue("/", DLQ, now_ms=NOW_MS, who="ada")
            report = await make_collector(client, store, [source(kind)]).run(once=True)
            assert (report.total.inserted, report.total.known) == (3, 0)
            standing = [one.status.value for one in await stored_letters(store)]
            assert standing == ["resolved"] * 3 + ["pending"] * 3
            assert await ready(client, DLQ) == 0

    run_scenario(steps(), timeout_s=60)


async def _give_back(client: Client, store: Store) -> Operation:
    every = Selection(filter=Filter(), filter_text="all")
    new = NewOperation(kind=OperationKind.RESTORE, selection=every, target=RedriveTarget(), who="ada")
    async with keep_collectors_away(
        LeaseHolder(store=store, owner="ada", clock_ms=now_ms, observer=NULL_OBSERVER), "/", [DLQ], who="ada"
    ):
        made = await store.operations.create(new, id=make_id(now_ms(), random_bits()), now_ms=now_ms())
        return await Redriver(RedriverParts(store=store, client=client, owner="ada", clock_ms=now_ms)).run(made.id)
