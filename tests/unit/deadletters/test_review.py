"""What a review of collecting, giving back and redriving found: ways to lose, double or wrongly resolve a message.

Those that are not mended yet are expected to fail, and say what is wrong.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redrive.client import Client
from redrive.core import SILENT
from redrive.deadletters.actions.restore import keep_collectors_away
from redrive.deadletters.collect.reconciliation import OpenBatch, without_repeats
from redrive.deadletters.held_leases import LeaseHolder
from redrive.deadletters.redrive.operation_run import OperationRun, RedriveOptions, RedriverParts
from redrive.deadletters.redrive.preflight import (
    Preflight,
    QueueLimits,
    TargetHealth,
    judge,
    judge_for_witness,
)
from redrive.deadletters.redrive.redriver import Redriver
from redrive.deadletters.redrive.witness import Witness, settle_by_witness, witness_queue
from redrive.embedded import EmbeddedBroker
from redrive.inspection import queue_state
from redrive.records import (
    Filter,
    ItemState,
    MessageContent,
    NewOperation,
    Operation,
    OperationKind,
    OperationState,
    RedriveTarget,
    Selection,
    SendResult,
    make_id,
)
from redrive.stores import Store, StoreUnavailable
from redrive.wire import Properties
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collecting_scene import (
    PROMPT,
    Killed,
    kill_at,
    make_collector,
    now_ms,
    numbered,
    park,
    random_bits,
    ready,
    sqlite_store,
    stored_bodies,
    stored_letters,
)
from tests.unit.deadletters.test_collector import declare, die, source
from tests.unit.stores.arrivals import NOW_MS, begin, collect, make_arrival, redrive, statuses

DLQ = "orders.dlq"
PLAIN = MessageContent(properties=Properties.of(message_id="m").raw, body=b"body")


def test_a_letter_that_came_back_twice_keeps_both_messages_in_their_batches() -> None:
    older = OpenBatch(id="older", entries=((b"first copy", "letter"), (b"met again", "other")), at_ms=1)
    newer = OpenBatch(id="newer", entries=((b"second copy", "letter"), (b"met again", "other")), at_ms=2)
    left = without_repeats([older, newer])
    assert [one.entries for one in left] == [((b"first copy", "letter"),), newer.entries]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (QueueLimits(ttl_ms=60_000), ["target-expires"]),
        (QueueLimits(ttl_ms=60_000, is_dead_lettered=True), []),
        (QueueLimits(), []),
    ],
)
def test_a_target_whose_messages_expire_into_nothing_is_told(limits: QueueLimits, said: list[str]) -> None:
    health = TargetHealth(exchange="", routing_key="orders", copies=1, exists=True, consumers=1, limits=limits)
    assert [one.code for one in judge(health)] == said


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx", "drop-head"])
def test_a_target_that_refuses_what_does_not_fit_gets_no_witness(overflow: str) -> None:
    limits = QueueLimits(length_max=100, overflow=overflow)
    health = TargetHealth(exchange="", routing_key="orders", copies=1, exists=True, consumers=1, limits=limits)
    free = replace(health, routing_key="mail", limits=QueueLimits())
    found = judge_for_witness(Preflight(targets=(health, free), findings=()))
    expected = [] if overflow == "drop-head" else [("witness-unsure", "queue orders")]
    assert [(one.code, one.address) for one in found.errors] == expected


class PatientWitness(Witness):
    """One that has everything, and takes a while to say so: meanwhile the store moves on."""

    def __init__(self, meanwhile: Any, copies: set[tuple[str, int]]) -> None:
        self._meanwhile = meanwhile
        self._copies = copies

    async def missing(self, queues: Any) -> set[str]:
        return set()

    async def seen(self) -> set[tuple[str, int]]:
        await self._meanwhile()
        return self._copies


@pytest.mark.parametrize("arrived", [True, False])
def test_the_witness_says_nothing_about_a_letter_that_came_back_while_it_was_asked(
    tmp_path: Path, arrived: bool
) -> None:
    async def steps() -> None:
        async with sqlite_store(tmp_path) as store:
            ids = await collect(store, make_arrival(1), make_arrival(2))
            operation_id = await redrive(store, *ids, state=ItemState.IN_DOUBT)
            operation = await store.operations.get(operation_id)
            assert operation is not None

            async def one_dies_again() -> None:
                await collect(store, make_arrival(3, redriven_id=ids[0], redriven_count=1))

            witness = PatientWitness(one_dies_again, {(id, 1) for id in ids if arrived})
            counts = await settle_by_witness(store, witness, operation, clock_ms=lambda: NOW_MS)
            assert counts == ((1, 0) if arrived else (0, 1))
            assert await statuses(store, *ids) == ["pending", "resolved" if arrived else "pending"]

    run_scenario(steps())


class DeafWitness:
    """A witness that can't be reached the first time."""

    def __init__(self, copies: set[tuple[str, int]]) -> None:
        self._copies = copies
        self.is_reached = False
        self.purged = 0

    async def declare(self) -> None:
        if not self.is_reached:
            self.is_reached = True
            raise TimeoutError

    async def missing(self, queues: Any) -> set[str]:
        return set()

    async def seen(self) -> set[tuple[str, int]]:
        return self._copies if not self.purged else set()

    async def purge(self) -> None:
        self.purged += 1


def test_the_witness_does_not_forget_while_a_doubt_is_unsettled(tmp_path: Path) -> None:
    async def steps() -> None:
        async with sqlite_store(tmp_path) as store:
            ids = await collect(store, make_arrival(1))
            operation_id = await redrive(store, *ids, state=ItemState.IN_DOUBT)
            operation = await store.operations.get(operation_id)
            assert operation is not None
            running = replace(operation, state=OperationState.RUNNING, total=9)
            parts = RedriverParts(
                store=store,
                client=cast(Client, SimpleNamespace()),
                owner="ada",
                clock_ms=lambda: NOW_MS,
                options=RedriveOptions(witness_s=0.0),
            )
            run = OperationRun(
                parts,
                cast(Any, None),
                running,
                stop=asyncio.Event(),
                pauses_when_stopped=True,
                on_progress=None,
            )
            run._witness = cast(Witness, DeafWitness({(ids[0], 1)}))
            await run.ask_witness([SendResult(id=ids[0], state=ItemState.IN_DOUBT)])
            await run.ask_witness([SendResult(id="another", state=ItemState.SENT)])
            await run.ask_witness([SendResult(id="a third", state=ItemState.IN_DOUBT)])
            # Its copy had arrived: pending again, it would be sent a second time.
            assert await statuses(store, *ids) == ["resolved"]

    run_scenario(steps())


def test_a_witness_that_was_not_there_from_the_beginning_is_not_asked(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, dlq="orders")
            ids = await collect(store, *(make_arrival(number, content=PLAIN) for number in (1, 2)))
            operation_id, lease = await begin(store, *ids)
            assert len(await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)) == 1
            await store.leases.release(lease)  # its sender is gone, and what it sent was confirmed
            parts = RedriverParts(store=store, client=client, owner="ada", clock_ms=now_ms, has_witness=True)
            ended = await Redriver(parts).run(operation_id)
            assert (ended.in_doubt, ended.sent) == (1, 1)
            assert await statuses(store, *ids) == ["in_doubt", "retrying"]
            assert await queue_state(client, witness_queue(operation_id)) is None

    run_scenario(steps())


def test_a_witness_is_heard_by_whoever_goes_on_with_its_operation(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await declare(client, dlq="orders")
            ids = await collect(store, make_arrival(1, content=PLAIN))
            operation_id, lease = await begin(store, *ids)
            assert len(await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)) == 1
            await store.leases.release(lease)
            await Witness(client, operation_id).declare()  # and nothing reached it
            options = RedriveOptions(witness_s=0.0)
            parts = RedriverParts(store=store, client=client, owner="ada", clock_ms=now_ms, options=options)
            await Redriver(parts).run(operation_id)
            assert await statuses(store, *ids) == ["pending"]
            assert await queue_state(client, witness_queue(operation_id)) is None

    run_scenario(steps())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_was_given_back_and_looked_at_is_collected_again_after_a_crash(kind: str, tmp_path: Path) -> None:
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
    new = NewOperation(kind=OperationKind.RETURN, selection=every, target=RedriveTarget(), who="ada")
    async with keep_collectors_away(
        LeaseHolder(store=store, owner="ada", clock_ms=now_ms, observer=SILENT), "/", [DLQ], who="ada"
    ):
        made = await store.operations.create(new, id=make_id(now_ms(), random_bits()), now_ms=now_ms())
        return await Redriver(RedriverParts(store=store, client=client, owner="ada", clock_ms=now_ms)).run(made.id)


@pytest.mark.slow
def test_a_collector_that_dies_of_every_hand_does_not_burn_the_delivery_limit(tmp_path: Path) -> None:
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
def test_a_queue_that_can_not_be_stopped_is_not_taken_from_to_the_limit(
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
