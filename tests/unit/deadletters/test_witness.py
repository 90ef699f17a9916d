"""The witness queue settles what is in doubt after a redriver died, and says nothing where it can't know."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redrive.client import Client, PreconditionFailed
from redrive.deadletters.redrive import operation_run
from redrive.deadletters.redrive.operation_run import OperationRun, RedriveOptions, RedriverParts
from redrive.deadletters.redrive.redriver import Redriver
from redrive.deadletters.redrive.witness import Witness, resolve_by_witness, witness_queue
from redrive.embedded import EmbeddedBroker
from redrive.inspection import queue_state
from redrive.records import (
    ItemState,
    MessageContent,
    OperationState,
    SendResult,
)
from redrive.wire import Properties
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collector_scene import (
    declare,
    now_ms,
    numbered,
    park,
    sqlite_store,
)
from tests.unit.deadletters.redriver_stage import RedriverStage, play
from tests.unit.stores.arrivals import NOW_MS, begin, collect, make_arrival, redrive, statuses

PLAIN = MessageContent(properties=Properties.of(message_id="m").raw, body=b"body")


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
def test_a_letter_that_came_back_while_the_witness_was_asked_is_left_alone(tmp_path: Path, arrived: bool) -> None:
    async def steps() -> None:
        async with sqlite_store(tmp_path) as store:
            ids = await collect(store, make_arrival(1), make_arrival(2))
            operation_id = await redrive(store, *ids, state=ItemState.IN_DOUBT)
            operation = await store.operations.get(operation_id)
            assert operation is not None

            async def one_dies_again() -> None:
                await collect(store, make_arrival(3, redriven_id=ids[0], redriven_count=1))

            witness = PatientWitness(one_dies_again, {(id, 1) for id in ids if arrived})
            counts = await resolve_by_witness(store, witness, operation, clock_ms=lambda: NOW_MS)
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


def test_the_witness_queue_is_not_purged_while_a_doubt_is_unsettled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
                has_witness=True,
            )
            deaf = DeafWitness({(ids[0], 1)})
            monkeypatch.setattr(operation_run, "Witness", lambda *_: deaf)
            run = OperationRun(
                parts,
                cast(Any, None),
                running,
                stop=asyncio.Event(),
                pauses_when_stopped=True,
                on_progress=None,
            )
            await run.ask_witness([SendResult(id=ids[0], state=ItemState.IN_DOUBT)])
            await run.ask_witness([SendResult(id="another", state=ItemState.SENT)])
            await run.ask_witness([SendResult(id="a third", state=ItemState.IN_DOUBT)])
            # Its copy had arrived: pending again, it would be sent a second time.
            assert await statuses(store, *ids) == ["resolved"]

    run_scenario(steps())


def test_an_operation_begun_without_a_witness_gets_none_later(tmp_path: Path) -> None:
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


def test_the_next_redriver_asks_the_witness_of_the_operation(tmp_path: Path) -> None:
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


def test_the_witness_queue_is_a_quorum_queue_and_lasts() -> None:
    """It must have its copies after a restart of the broker, and on a cluster after the loss of a node."""

    async def scenario(on: RedriverStage) -> None:
        await Witness(on.client, "op1").declare()
        await Witness(on.client, "op1").declare()
        channel = await on.client.channel()
        with pytest.raises(PreconditionFailed, match="x-queue-type"):
            await channel.declare_queue(witness_queue("op1"), arguments={"x-queue-type": "classic"})
        await park(on.client, witness_queue("op1"), numbered(1))
        await on.broker.restart()
        await on.client.connection()
        assert on.broker.depths()[witness_queue("op1")] == 1

    play(scenario)
