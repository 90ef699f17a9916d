"""A long redrive has two batches at once: where every dead letter and every copy is, whatever happens then."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive.client import Client
from redrive.deadletters.redrive.operation_run import RedriverParts, send_overlapped
from redrive.deadletters.redrive.redriver import Redriver
from redrive.embedded import EmbeddedBroker
from redrive.records import ClaimedLetter, ItemState, OperationState, SendResult
from redrive.stores import LeaseLost, StoreUnavailable, open_store
from redrive.wire import Properties
from tests.unit.deadletters.arrivals import arrival, now_ms, store_arrivals
from tests.unit.deadletters.memory_store import MemoryLetter, claimed_letter, redrive_of
from tests.unit.deadletters.redriver_stage import OPTIONS, RedriverStage, play

SMALL = replace(OPTIONS, batch=10)
"""The first batch has ten; then two of five are taken."""
STEPS = ["taken", "published", "confirmed", "recorded"]


def test_everything_is_sent_once_in_order_and_no_more_is_taken_than_a_batch() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(63)
        operation = await on.begin(redrive_of(*ids))
        seen: list[int] = []

        async def look(checkpoint: str) -> None:
            seen.append(on.store.all[operation.id].states().get("sending", 0))

        done = await on.redriver(options=SMALL, pause_at=look).run(operation.id)
        assert (done.state, done.sent, done.left) == (OperationState.DONE, 63, 0)
        assert await on.ids() == list(ids)
        assert max(seen) == 10
        assert "record_and_take" in on.store.calls

    play(scenario)


def test_a_small_operation_is_taken_sent_and_recorded_and_nothing_else() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(30)
        operation = await on.begin(redrive_of(*ids))
        await on.redriver().run(operation.id)
        assert [call for call in on.store.calls if call in ("take", "record", "record_and_take")] == [
            "take",
            "record",
            "take",
            "record",
        ]
        assert await on.ids() == list(ids)

    play(scenario)


@pytest.mark.parametrize("plain", [{"rate_per_s": 1_000.0}, {"ramp": (5, 5)}])
def test_batches_with_a_rate_a_ramp_or_a_witness_never_overlap(plain: dict[str, Any]) -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(40)
        operation = await on.begin(redrive_of(*ids, **plain))
        done = await on.redriver(options=replace(SMALL, canary_s=0.1)).run(operation.id)
        assert done.sent == 40
        assert "record_and_take" not in on.store.calls
        assert await on.ids() == list(ids)

    play(scenario)


@pytest.mark.parametrize("turn", [2, 3, 4])
@pytest.mark.parametrize("checkpoint", STEPS)
def test_what_a_redriver_had_taken_when_it_died_is_in_doubt_for_the_next(checkpoint: str, turn: int) -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(50)
        operation = await on.begin(redrive_of(*ids))
        there = asyncio.Event()
        reached: list[str] = []

        async def die(at: str) -> None:
            reached.append(at)
            if there.is_set() or reached.count(checkpoint) == turn:
                there.set()
                await asyncio.Event().wait()

        dying = asyncio.create_task(on.redriver(pause_at=die, options=SMALL).run(operation.id))
        await there.wait()
        in_hand = [id for id, (state, _) in on.store.all[operation.id].items.items() if state is ItemState.SENDING]
        recorded = [id for id, (state, _) in on.store.all[operation.id].items.items() if state is ItemState.SENT]
        dying.cancel()
        await asyncio.wait([dying])
        arrived = await on.ids()
        # Whatever the broker has was certainly sent, or is in doubt; nothing else was sent.
        assert set(recorded) <= set(arrived) <= {*recorded, *in_hand}
        assert len(in_hand) <= 10
        done = await on.redriver("second", options=SMALL).run(operation.id)
        assert (done.state, done.in_doubt, done.sent) == (OperationState.DONE, len(in_hand), 50 - len(in_hand))
        rest = await on.ids()
        assert rest == [id for id in ids if id not in recorded and id not in in_hand]
        statuses = on.store.statuses()
        assert {id for id in ids if statuses[id] == "in_doubt"} == set(in_hand)

    play(scenario)


@pytest.mark.parametrize("checkpoint", STEPS)
def test_stop_finishes_what_is_taken_and_pauses_the_operation(checkpoint: str) -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(60)
        operation = await on.begin(redrive_of(*ids))
        stop = asyncio.Event()
        reached: list[str] = []

        async def stop_at(at: str) -> None:
            reached.append(at)
            if reached.count(checkpoint) == 3:
                stop.set()

        paused = await on.redriver(pause_at=stop_at, options=SMALL).run(operation.id, stop=stop)
        assert (paused.state, paused.in_doubt) == (OperationState.PAUSED, 0)
        assert 10 < paused.sent < 60
        assert on.store.all[operation.id].states() == {"sent": paused.sent, "queued": 60 - paused.sent}
        assert await on.ids() == list(ids[: paused.sent])
        await on.store.resume(operation.id, now_ms=on.now_ms())
        assert (await on.redriver(options=SMALL).run(operation.id)).sent == 60
        assert await on.ids() == list(ids[paused.sent :])

    play(scenario)


def test_a_pause_by_somebody_else_leaves_nothing_taken() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(60)
        operation = await on.begin(redrive_of(*ids))
        reached: list[str] = []

        async def pause(at: str) -> None:
            reached.append(at)
            if reached.count("published") == 3:
                await on.store.pause(operation.id, "ann said so", now_ms=on.now_ms())

        paused = await on.redriver(pause_at=pause, options=SMALL).run(operation.id)
        assert (paused.state, paused.note) == (OperationState.PAUSED, "ann said so")
        assert on.store.all[operation.id].states() == {"sent": paused.sent, "queued": 60 - paused.sent}
        assert await on.ids() == list(ids[: paused.sent])

    play(scenario)


def test_results_wait_for_the_database_and_nothing_more_is_taken_or_sent_meanwhile() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(60)
        operation = await on.begin(redrive_of(*ids))
        reached: list[str] = []

        async def leave(at: str) -> None:
            reached.append(at)
            if at == "confirmed" and reached.count(at) == 3:
                on.store.away = True

        running = asyncio.create_task(on.redriver(pause_at=leave, options=SMALL).run(operation.id))
        await asyncio.sleep(100)
        states = on.store.all[operation.id].states()
        assert states["sending"] <= 10
        arrived = await on.ids()
        assert len(arrived) == states["sent"] + states["sending"]
        on.store.away = False
        done = await running
        assert (done.state, done.sent, done.in_doubt) == (OperationState.DONE, 60, 0)
        assert arrived + await on.ids() == list(ids)

    play(scenario)


def test_a_database_that_stays_away_ends_the_run_and_what_was_taken_is_in_doubt_for_the_next() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(60)
        operation = await on.begin(redrive_of(*ids))
        reached: list[str] = []

        async def leave(at: str) -> None:
            reached.append(at)
            on.store.away = on.store.away or reached.count("confirmed") == 3

        with pytest.raises(StoreUnavailable):
            await on.redriver(pause_at=leave, options=replace(SMALL, store_s=20)).run(operation.id)
        on.store.away = False
        in_hand = on.store.all[operation.id].states()["sending"]
        assert 0 < in_hand <= 10
        await asyncio.sleep(60)
        done = await on.redriver("second", options=SMALL).run(operation.id)
        assert (done.state, done.in_doubt, done.sent) == (OperationState.DONE, in_hand, 60 - in_hand)
        assert await on.ids() == list(ids)

    play(scenario)


@pytest.mark.slow
def test_without_a_broker_what_is_taken_is_queued_again_and_sent_when_it_is_back() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(60)
        operation = await on.begin(redrive_of(*ids))
        reached: list[str] = []

        async def leave(at: str) -> None:
            reached.append(at)
            if at == "confirmed" and reached.count(at) == 3:
                await on.broker.stop()

        running = asyncio.create_task(on.redriver(pause_at=leave, options=SMALL).run(operation.id))
        await asyncio.sleep(300)  # longer than two batches wait for a connection
        states = on.store.all[operation.id].states()
        assert set(states) == {"sent", "queued"}
        await on.broker.start()
        done = await running
        assert (done.state, done.sent, done.refused, done.in_doubt) == (OperationState.DONE, 60, 0, 0)
        assert sorted(await on.ids()) == sorted(ids)

    play(scenario)


def test_what_was_on_the_wire_when_the_connection_went_is_in_doubt_and_the_rest_is_sent() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(60)
        operation = await on.begin(redrive_of(*ids))
        on.broker.faults.close_after("basic.publish", nth=23)
        done = await on.redriver(options=SMALL).run(operation.id)
        assert done.state is OperationState.DONE
        assert 0 < done.in_doubt <= 5
        assert done.sent + done.in_doubt == 60
        arrived = await on.ids()
        assert len(arrived) == len(set(arrived))
        statuses = on.store.statuses()
        assert all(id in arrived or statuses[id] == "in_doubt" for id in ids)

    play(scenario)


def test_a_redriver_that_lost_its_lease_to_another_sends_no_batch_after_that() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(60)
        operation = await on.begin(redrive_of(*ids))
        reached: list[str] = []

        async def sleep(at: str) -> None:
            reached.append(at)
            if at == "confirmed" and reached.count(at) == 3:
                # As a process that was stopped: another has its lease, and has ended the operation.
                del on.store.held_leases[f"operation:{operation.id}"]
                assert (await on.redriver("second", options=SMALL).run(operation.id)).state is OperationState.DONE

        with pytest.raises(LeaseLost):
            await on.redriver(pause_at=sleep, options=SMALL).run(operation.id)
        states = on.store.all[operation.id].states()
        assert 0 < states["in_doubt"] <= 10
        assert states["sent"] + states["in_doubt"] == 60
        arrived = await on.ids()
        doubtful = [id for id in ids if on.store.statuses()[id] == "in_doubt"]
        assert {*arrived, *doubtful} == set(ids)
        assert len(arrived) == len(set(arrived))

    play(scenario)


def test_an_exchange_that_the_database_committed_and_could_not_answer_leaves_no_doubt_and_no_double(
    tmp_path: Path,
) -> None:
    """On a real store: the call is done, its answer is lost, and it is asked again."""

    async def main() -> None:
        async with (
            asyncio.timeout(60),
            EmbeddedBroker() as broker,
            Client(broker.url) as client,
            await open_store(f"sqlite:///{tmp_path / 'redrive.db'}") as store,
        ):
            channel = await client.channel()
            await channel.declare_queue("orders")
            arrivals = [arrival(Properties.of(message_id=f"m{number}")) for number in range(60)]
            await store_arrivals(store, arrivals)
            new = redrive_of(*(one.id for one in arrivals))
            operation = await store.operations.create(new, id="operation1", now_ms=now_ms())
            answer = store.operations.record_and_take
            lost: list[str] = []

            async def unheard(*arguments: Any, **more: Any) -> Any:
                done = await answer(*arguments, **more)
                if len(lost) < 4:
                    lost.append("exchange")
                    raise StoreUnavailable("here", "the answer was lost", "try again")
                return done

            setattr(store.operations, "record_and_take", unheard)  # noqa: B010 - a method is replaced
            redriver = Redriver(
                RedriverParts(store=store, client=client, owner="first", clock_ms=now_ms, options=SMALL)
            )
            done = await redriver.run(operation.id)
            assert len(lost) == 4
            assert (done.state, done.sent, done.in_doubt) == (OperationState.DONE, 60, 0)
            found = []
            while (got := await channel.get_message("orders", no_ack=True)) is not None:
                found.append(Properties(got.header).headers["x-redriven-id"])
            assert found == [one.id for one in arrivals]

    asyncio.run(main())


def test_a_batch_is_on_the_wire_while_the_database_works() -> None:
    """Neither waits for the other: each is seen at work while the other is."""

    async def main() -> None:
        at_work = asyncio.Event()
        on_the_wire = asyncio.Event()
        batch: Sequence[ClaimedLetter] = [claimed_letter(MemoryLetter(id="one"), False)]

        async def send(claimed: Sequence[ClaimedLetter]) -> list[SendResult]:
            on_the_wire.set()
            await asyncio.wait_for(at_work.wait(), 10)
            return [SendResult(id=one.id, state=ItemState.SENT) for one in claimed]

        async def exchange(ends: Sequence[SendResult], count: int) -> Sequence[ClaimedLetter]:
            at_work.set()
            await asyncio.wait_for(on_the_wire.wait(), 10)
            return () if ends else [claimed_letter(MemoryLetter(id="two"), False)]

        ends = await send_overlapped(batch, send=send, exchange=exchange)
        assert [one.id for one in ends] == ["two"]

    asyncio.run(main())
