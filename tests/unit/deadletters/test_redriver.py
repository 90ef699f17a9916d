"""The redriver in virtual time: where every dead letter and every copy is, whatever happens on the way."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive import wire
from redrive.client import Client
from redrive.deadletters.redrive.operation_run import RedriverParts
from redrive.deadletters.redrive.pacing import RedriveProgress
from redrive.deadletters.redrive.redriver import Redriver, RunsElsewhere
from redrive.deadletters.redrive.waiting_operations import run_waiting_operations
from redrive.embedded import EmbeddedBroker
from redrive.records import OperationState, RedriveTarget, Status
from redrive.stores import LeaseLost, StoreUnavailable, UnknownOperation, open_store
from redrive.wire import Properties
from tests.unit.deadletters.arrivals import arrival, now_ms, store_arrivals
from tests.unit.deadletters.memory_store import MemoryLetter, redrive_of
from tests.unit.deadletters.redriver_stage import OPTIONS, RedriverStage, play


def test_every_dead_letter_is_in_its_queue_once_and_the_operation_is_done() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(50)
        operation = await on.begin(redrive_of(*ids))
        reports: list[RedriveProgress] = []
        done = await on.redriver().run(operation.id, on_progress=reports.append)
        assert (done.state, done.sent, done.left) == (OperationState.DONE, 50, 0)
        assert await on.ids() == list(ids)
        assert set(on.store.statuses().values()) == {"retrying"}
        assert reports[0].operation.sent == 0
        assert (reports[-1].operation.sent, reports[-1].eta_s) == (50, 0)
        assert on.store.held_leases == {}

    play(scenario)


def test_what_no_queue_takes_is_pending_again_with_the_reason_and_the_others_are_sent() -> None:
    async def scenario(on: RedriverStage) -> None:
        on.store.add(MemoryLetter("a"), MemoryLetter("b", queue="gone"), MemoryLetter("c"))
        operation = await on.begin(redrive_of("a", "b", "c"))
        done = await on.redriver().run(operation.id)
        assert (done.state, done.sent, done.refused) == (OperationState.DONE, 2, 1)
        assert await on.ids() == ["a", "c"]
        assert on.store.statuses() == {"a": "retrying", "b": "pending", "c": "retrying"}
        assert on.store.rows["b"].reason == "no queue takes it at gone: the broker returned it, 312 NO_ROUTE"

    play(scenario)


def test_a_full_queue_refuses_what_does_not_fit() -> None:
    async def scenario(on: RedriverStage) -> None:
        channel = await on.client.channel()
        await channel.declare_queue("small", arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
        ids = await on.letters(5, queue="small")
        operation = await on.begin(redrive_of(*ids))
        done = await on.redriver().run(operation.id)
        assert (done.sent, done.refused) == (3, 2)
        sent = await on.ids("small")
        assert {one for one, status in on.store.statuses().items() if status == "retrying"} == set(sent)
        pending = [letter for letter in on.store.rows.values() if letter.status is Status.PENDING]
        assert {letter.reason for letter in pending} == {
            "the broker refused it: the target is full, or could not store it"
        }

    play(scenario)


def test_a_missing_exchange_refuses_without_putting_anything_in_doubt() -> None:
    async def scenario(on: RedriverStage) -> None:
        on.store.add(MemoryLetter("a"), MemoryLetter("b", queue="gone"))
        channel = await on.client.channel()
        await channel.declare_exchange("retry.orders")
        await channel.bind_queue("orders", "retry.orders", "retry")
        operation = await on.begin(
            redrive_of("a", "b", target=RedriveTarget(exchange="retry.{queue}", routing_key="retry"))
        )
        done = await on.redriver().run(operation.id)
        assert (done.sent, done.refused, done.in_doubt) == (1, 1, 0)
        assert await on.ids() == ["a"]
        assert on.store.rows["b"].reason == "the exchange retry.gone does not exist"

    play(scenario)


def test_a_rate_is_kept() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(10)
        operation = await on.begin(redrive_of(*ids, rate_per_s=0.5))
        reports: list[RedriveProgress] = []
        began_s = asyncio.get_running_loop().time()
        await on.redriver().run(operation.id, on_progress=reports.append)
        took_s = asyncio.get_running_loop().time() - began_s
        assert 18 <= took_s < 19  # nine pauses of 2 s
        assert reports[5].rate_per_s == pytest.approx(0.5, rel=0.3)
        assert len(await on.ids()) == 10

    play(scenario)


def test_a_ramp_pauses_the_operation_when_a_copy_comes_back_and_goes_on_where_it_was() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(12)
        operation = await on.begin(redrive_of(*ids, ramp=(1, 2, 5)))
        running = asyncio.create_task(on.redriver().run(operation.id))
        await asyncio.sleep(14)  # the first had its ten seconds, the next two are watched
        assert await on.ids() == ["letter0", "letter1", "letter2"]
        on.store.come_back("letter2", on.now_ms())
        paused = await running
        assert (paused.state, paused.sent) == (OperationState.PAUSED, 3)
        assert paused.note == "1 of the last 2 copies came back (letter2); see why, then resume or cancel"
        await on.store.resume(operation.id, now_ms=on.now_ms())
        began_s = asyncio.get_running_loop().time()
        done = await on.redriver().run(operation.id)
        assert (done.state, done.sent) == (OperationState.DONE, 12)
        assert 10 <= asyncio.get_running_loop().time() - began_s < 12  # after the five, not after the last four
        assert await on.ids() == list(ids[3:])

    play(scenario)


def test_a_ramp_pauses_the_operation_when_the_broker_refuses() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(12, queue="gone")
        operation = await on.begin(redrive_of(*ids, ramp=(1, 20)))
        paused = await on.redriver().run(operation.id)
        assert (paused.state, paused.refused, paused.left) == (OperationState.PAUSED, 1, 11)
        assert paused.note.startswith("1 of the last 1 copies were refused: no queue takes it at gone")

    play(scenario)


def test_stop_finishes_the_current_batch_and_pauses_the_operation() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(30)
        operation = await on.begin(redrive_of(*ids))
        stop = asyncio.Event()

        async def stop_at(checkpoint: str) -> None:
            if checkpoint == "published":
                stop.set()

        paused = await on.redriver(pause_at=stop_at).run(operation.id, stop=stop)
        assert (paused.state, paused.sent, paused.left) == (OperationState.PAUSED, 20, 10)
        assert on.store.all[operation.id].states() == {"sent": 20, "queued": 10}
        assert await on.ids() == list(ids[:20])
        await on.store.resume(operation.id, now_ms=on.now_ms())
        done = await on.redriver().run(operation.id)
        assert (done.state, done.sent) == (OperationState.DONE, 30)
        assert await on.ids() == list(ids[20:])

    play(scenario)


def test_a_pause_by_somebody_else_is_seen_between_batches() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(10)
        operation = await on.begin(redrive_of(*ids, rate_per_s=1))
        running = asyncio.create_task(on.redriver().run(operation.id))
        await asyncio.sleep(3.5)
        await on.store.pause(operation.id, "ann said so", now_ms=on.now_ms())
        paused = await running
        assert (paused.state, paused.sent, paused.note) == (OperationState.PAUSED, 4, "ann said so")
        assert await on.ids() == list(ids[:4])

    play(scenario)


def test_what_was_in_flight_when_the_connection_went_is_in_doubt_and_the_rest_is_sent() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(20)
        operation = await on.begin(redrive_of(*ids))
        on.broker.faults.close_after("basic.publish", nth=7)
        done = await on.redriver().run(operation.id)
        assert done.state is OperationState.DONE
        assert done.in_doubt > 0
        assert done.sent + done.in_doubt == 20
        arrived = await on.ids()
        assert len(arrived) == len(set(arrived))
        statuses = on.store.statuses()
        for one in ids:
            # In doubt may mean there or not; sent means there.
            assert one in arrived or statuses[one] == "in_doubt"
        again = await on.begin(redrive_of(*(one for one in ids if statuses[one] == "in_doubt")))
        done = await on.redriver().run(again.id)
        assert (done.state, done.sent) == (OperationState.DONE, again.total)
        marks = {wire.Properties(got.header).headers["x-redrive-possible-duplicate"] for got in await on.bodies()}
        assert marks == {True}

    play(scenario)


def test_without_a_broker_nothing_is_in_doubt_and_it_goes_on_when_it_is_back() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(40)
        operation = await on.begin(redrive_of(*ids))

        async def leave(checkpoint: str) -> None:
            if checkpoint == "recorded" and on.store.all[operation.id].counted().sent == 20:
                await on.broker.stop()

        running = asyncio.create_task(on.redriver(pause_at=leave).run(operation.id))
        await asyncio.sleep(200)
        assert not running.done()
        await on.broker.start()
        done = await running
        assert (done.state, done.sent, done.in_doubt) == (OperationState.DONE, 40, 0)
        assert await on.ids() == list(ids)

    play(scenario)


@pytest.mark.slow
def test_a_batch_that_was_taken_when_the_broker_went_is_queued_again_not_refused_and_not_in_doubt() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(40)
        operation = await on.begin(redrive_of(*ids))
        batches: list[str] = []

        async def leave(checkpoint: str) -> None:
            if checkpoint == "taken":
                batches.append(checkpoint)
                if len(batches) == 2:
                    await on.broker.stop()

        running = asyncio.create_task(on.redriver(pause_at=leave).run(operation.id))
        await asyncio.sleep(150)  # longer than a batch waits for a connection
        assert on.store.all[operation.id].states() == {"sent": 20, "queued": 20}
        await on.broker.start()
        done = await running
        assert (done.state, done.sent, done.refused, done.in_doubt) == (OperationState.DONE, 40, 0, 0)
        assert await on.ids() == list(ids)

    play(scenario)


def test_without_a_broker_for_too_long_the_operation_is_paused() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(3)
        operation = await on.begin(redrive_of(*ids))
        await on.broker.stop()
        paused = await on.redriver().run(operation.id)
        assert paused.state is OperationState.PAUSED
        assert paused.note == "no connection to the broker for 600 s; resume it to go on"
        assert on.store.all[operation.id].states() == {"queued": 3}
        assert set(on.store.statuses().values()) == {"pending"}
        await on.broker.start()

    play(scenario)


def test_results_wait_for_the_database_and_nothing_is_sent_before_they_are_recorded() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(30)
        operation = await on.begin(redrive_of(*ids))

        async def leave(checkpoint: str) -> None:
            if checkpoint == "confirmed" and len(on.store.all) == 1:
                on.store.away = True

        running = asyncio.create_task(on.redriver(pause_at=leave).run(operation.id))
        await asyncio.sleep(100)
        assert len(await on.ids()) == 20
        assert on.store.all[operation.id].states() == {"sending": 20, "queued": 10}
        on.store.away = False
        await asyncio.sleep(10)
        # It leaves once more after the second batch.
        assert on.store.all[operation.id].states() == {"sent": 20, "sending": 10}
        on.store.away = False
        done = await running
        assert (done.state, done.sent, done.in_doubt) == (OperationState.DONE, 30, 0)
        assert len(await on.ids()) == 10

    play(scenario)


def test_a_database_that_stays_away_ends_the_run_and_what_was_sent_is_in_doubt_for_the_next() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(5)
        operation = await on.begin(redrive_of(*ids))

        async def leave(checkpoint: str) -> None:
            on.store.away = on.store.away or checkpoint == "confirmed"

        with pytest.raises(StoreUnavailable):
            await on.redriver(pause_at=leave, options=replace(OPTIONS, store_s=20)).run(operation.id)
        on.store.away = False
        await asyncio.sleep(60)
        done = await on.redriver("second").run(operation.id)
        assert (done.state, done.in_doubt) == (OperationState.DONE, 5)
        assert set(on.store.statuses().values()) == {"in_doubt"}
        assert len(await on.ids()) == 5

    play(scenario)


def test_two_redrivers_of_one_operation_never_send_twice() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(60)
        operation = await on.begin(redrive_of(*ids))
        async with Client(on.broker.url, dial=on.broker.dial) as other:
            first, second = on.redriver(), on.redriver(client=other)  # of the same name, as in one process
            ran = await asyncio.gather(
                first.run(operation.id), second.run(operation.id), first.run(operation.id), return_exceptions=True
            )
        assert [type(one) for one in ran].count(RunsElsewhere) == 2
        assert on.store.all[operation.id].states() == {"sent": 60}
        assert await on.ids() == list(ids)

    play(scenario)


@pytest.mark.parametrize(
    ("checkpoint", "doubts", "arrived"), [("claimed", 0, 0), ("taken", 5, 0), ("confirmed", 5, 5), ("recorded", 0, 5)]
)
def test_exactly_the_batch_of_a_redriver_that_died_is_in_doubt_for_the_next(
    checkpoint: str, doubts: int, arrived: int
) -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(10)
        operation = await on.begin(redrive_of(*ids, ramp=(5,)))
        there = asyncio.Event()

        async def die(at: str) -> None:
            if at == checkpoint:
                there.set()
                await asyncio.Event().wait()

        dying = asyncio.create_task(on.redriver(pause_at=die).run(operation.id))
        await there.wait()
        dying.cancel()
        await asyncio.wait([dying])
        assert await on.ids() == list(ids[:arrived])
        options = replace(OPTIONS, canary_s=0.1)
        done = await on.redriver("second", options=options).run(operation.id)
        assert (done.state, done.in_doubt, done.sent) == (OperationState.DONE, doubts, 10 - doubts)
        assert await on.ids() == list(ids[max(doubts, arrived) :])

    play(scenario)


def test_a_redriver_that_slept_over_its_lease_records_nothing() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(4)
        operation = await on.begin(redrive_of(*ids))
        wake = asyncio.Event()

        async def sleep(checkpoint: str) -> None:
            if checkpoint == "confirmed":
                # As a process that was stopped: nothing of it renews anything.
                del on.store.held_leases[f"operation:{operation.id}"]
                await wake.wait()

        sleeping = asyncio.create_task(on.redriver(pause_at=sleep).run(operation.id))
        await asyncio.sleep(1)
        done = await on.redriver("second").run(operation.id)
        assert (done.state, done.in_doubt) == (OperationState.DONE, 4)
        wake.set()
        with pytest.raises(LeaseLost):
            await sleeping
        assert on.store.all[operation.id].states() == {"in_doubt": 4}
        assert await on.ids() == list(ids)

    play(scenario)


def test_a_redriver_that_slept_over_its_lease_sends_nothing() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(4)
        operation = await on.begin(redrive_of(*ids))
        clock = Clock(on)
        wake = asyncio.Event()

        async def sleep(checkpoint: str) -> None:
            if checkpoint == "taken":
                clock.slept_ms = 60_000  # its own clock shows it when it wakes
                del on.store.held_leases[f"operation:{operation.id}"]
                await wake.wait()

        sleeper = Redriver(replace(on.redriver(pause_at=sleep).parts, clock_ms=clock))
        sleeping = asyncio.create_task(sleeper.run(operation.id))
        await asyncio.sleep(1)
        done = await on.redriver("second").run(operation.id)
        assert (done.state, done.in_doubt) == (OperationState.DONE, 4)
        wake.set()
        with pytest.raises(LeaseLost):
            await sleeping
        assert await on.ids() == []

    play(scenario)


class Clock:
    """The stage's clock, of a process that may have slept."""

    def __init__(self, on: RedriverStage) -> None:
        self._on = on
        self.slept_ms = 0

    def __call__(self) -> int:
        return self._on.now_ms() + self.slept_ms


def test_dead_letters_that_nobody_can_redrive_any_more_are_skipped_and_the_operation_ends() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(3)
        operation = await on.begin(redrive_of(*ids))
        for letter in on.store.rows.values():
            letter.status = Status.RESOLVED
        done = await on.redriver().run(operation.id)
        assert (done.state, done.skipped) == (OperationState.DONE, 3)
        assert await on.ids() == []

    play(scenario)


def test_an_unknown_operation_is_refused_and_a_paused_one_left_alone() -> None:
    async def scenario(on: RedriverStage) -> None:
        with pytest.raises(UnknownOperation):
            await on.redriver().run("never was")
        ids = await on.letters(1)
        operation = await on.begin(redrive_of(*ids))
        await on.store.pause(operation.id, "later", now_ms=on.now_ms())
        assert (await on.redriver().run(operation.id)).state is OperationState.PAUSED
        assert await on.ids() == []

    play(scenario)


def test_waiting_operations_are_picked_up_and_left_to_the_next_when_the_redriver_stops() -> None:
    async def scenario(on: RedriverStage) -> None:
        ids = await on.letters(10)
        first = await on.begin(redrive_of(*ids[:2]))
        slow = await on.begin(redrive_of(*ids[2:], rate_per_s=1))
        stop = asyncio.Event()
        looking = asyncio.create_task(run_waiting_operations(on.redriver(), stop=stop))
        await asyncio.sleep(3.5)
        stop.set()
        await looking
        assert on.store.all[first.id].row.state is OperationState.DONE
        assert on.store.all[slow.id].row.state is OperationState.RUNNING
        assert on.store.all[slow.id].states() == {"sent": 4, "queued": 4}
        stop.clear()
        looking = asyncio.create_task(run_waiting_operations(on.redriver("second"), stop=stop))
        await asyncio.sleep(6)
        stop.set()
        await looking
        assert on.store.all[slow.id].row.state is OperationState.DONE
        assert sorted(await on.ids()) == sorted(ids)

    play(scenario)


@pytest.mark.parametrize("name", ["claim", "take", "record"])
def test_a_database_that_committed_and_could_not_say_so_leaves_no_doubt_and_no_double(
    tmp_path: Path, name: str
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
            arrivals = [arrival(Properties.of(message_id=f"m{number}")) for number in range(50)]
            await store_arrivals(store, arrivals)
            new = redrive_of(*(one.id for one in arrivals))
            operation = await store.operations.create(new, id="operation1", now_ms=now_ms())
            answer = getattr(store.operations, name)
            lost: list[str] = []

            async def unheard(*arguments: Any, **more: Any) -> Any:
                done = await answer(*arguments, **more)
                if len(lost) < 3:
                    lost.append(name)
                    raise StoreUnavailable("here", "the answer was lost", "try again")
                return done

            setattr(store.operations, name, unheard)
            redriver = Redriver(RedriverParts(store=store, client=client, owner="first", clock_ms=now_ms))
            done = await redriver.run(operation.id)
            assert len(lost) == 3
            assert (done.state, done.sent, done.in_doubt) == (OperationState.DONE, 50, 0)
            found = []
            while (got := await channel.get_message("orders", no_ack=True)) is not None:
                found.append(Properties(got.header).headers["x-redriven-id"])
            assert found == [one.id for one in arrivals]

    asyncio.run(main())
