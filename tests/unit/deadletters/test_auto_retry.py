"""Auto-retry in virtual time: when what goes back, who does it, and how it ends."""

import asyncio

from redrive import wire
from redrive.client import Client
from redrive.deadletters.redrive.auto_retry import AutoRetry
from redrive.records import OperationState, RetryRule
from tests.unit.deadletters.memory_store import MemoryLetter
from tests.unit.deadletters.redriver_stage import RedriverStage, play

RULE = RetryRule(scope="*", attempts=3, first_ms=1_000, ceiling_ms=60_000, settle_ms=600_000)


class Luck:
    """Bits for ids: counted."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self) -> int:
        self.given += 1
        return self.given


def auto_retry(on: RedriverStage, name: str = "first") -> AutoRetry:
    return AutoRetry(on.redriver(name), random_bits=Luck())


async def copies(on: RedriverStage) -> list[tuple[str, int]]:
    """The copies in the queue, taken: dead letter and which redrive."""
    found = [wire.Properties(got.header).headers for got in await on.bodies()]
    return [(one["x-redriven-id"], one["x-redriven-count"]) for one in found]


def test_one_that_comes_back_every_time_is_sent_three_times_and_then_failed() -> None:
    async def scenario(on: RedriverStage) -> None:
        on.store.rule = RULE
        on.store.add(MemoryLetter("a", due_at_ms=on.now_ms() + 1_000))
        stop = asyncio.Event()
        looping = asyncio.create_task(auto_retry(on).run(stop=stop))
        seen: list[tuple[str, int]] = []
        for _ in range(20):
            await asyncio.sleep(30)
            for id, count in await copies(on):
                seen.append((id, count))
                on.store.come_back(id, on.now_ms())
        stop.set()
        await looping
        assert seen == [("a", 1), ("a", 2), ("a", 3)]
        assert on.store.statuses() == {"a": "failed"}
        assert on.store.rows["a"].returns == 3

    play(scenario)


def test_one_that_does_not_come_back_is_resolved_after_its_silence() -> None:
    async def scenario(on: RedriverStage) -> None:
        on.store.rule = RULE
        on.store.add(MemoryLetter("a", due_at_ms=on.now_ms()))
        sent = await auto_retry(on).once()
        assert [operation.sent for operation in sent.operations] == [1]
        await asyncio.sleep(590)
        assert (await auto_retry(on).once()).resolved == 0
        assert on.store.statuses() == {"a": "retrying"}
        await asyncio.sleep(20)
        assert (await auto_retry(on).once()).resolved == 1
        assert on.store.statuses() == {"a": "resolved"}
        assert await copies(on) == [("a", 1)]

    play(scenario)


def test_without_a_rule_nothing_goes_back() -> None:
    async def scenario(on: RedriverStage) -> None:
        on.store.add(MemoryLetter("a", due_at_ms=on.now_ms()))
        report = await auto_retry(on).once()
        assert (report.operations, report.is_elsewhere) == ((), False)
        assert await copies(on) == []

    play(scenario)


def test_of_two_at_once_one_does_it() -> None:
    async def scenario(on: RedriverStage) -> None:
        on.store.rule = RULE
        on.store.add(*(MemoryLetter(f"a{number}", due_at_ms=on.now_ms()) for number in range(30)))
        async with Client(on.broker.url, dial=on.broker.dial) as other:
            second = AutoRetry(on.redriver("second", client=other), random_bits=Luck())
            reports = await asyncio.gather(auto_retry(on).once(), second.once())
        assert sorted(report.is_elsewhere for report in reports) == [False, True]
        assert sorted(await copies(on)) == sorted((f"a{number}", 1) for number in range(30))

    play(scenario)


def test_one_that_was_killed_is_taken_over_and_its_batch_is_in_doubt_not_sent_again() -> None:
    async def scenario(on: RedriverStage) -> None:
        on.store.rule = RULE
        on.store.add(*(MemoryLetter(f"a{number}", due_at_ms=on.now_ms()) for number in range(30)))
        there = asyncio.Event()

        async def die(at: str) -> None:
            if at == "confirmed":
                there.set()
                await asyncio.Event().wait()

        dying = asyncio.create_task(AutoRetry(on.redriver(pause_at=die), random_bits=Luck()).once())
        await there.wait()
        held = dict(on.store.held_leases)
        dying.cancel()
        await asyncio.wait([dying])
        on.store.held_leases.update(held)  # a killed process gives nothing back
        assert (await auto_retry(on, "second").once()).is_elsewhere
        await asyncio.sleep(31)
        report = await auto_retry(on, "second").once()
        assert [(one.state, one.sent, one.in_doubt) for one in report.operations] == [(OperationState.DONE, 10, 20)]
        assert sorted(await copies(on)) == sorted((f"a{number}", 1) for number in range(30))

    play(scenario)


def test_a_database_that_is_away_is_noted_and_tried_again() -> None:
    async def scenario(on: RedriverStage) -> None:
        on.store.rule = RULE
        on.store.add(MemoryLetter("a", due_at_ms=on.now_ms()))
        on.store.away = True
        stop = asyncio.Event()
        looping = asyncio.create_task(auto_retry(on).run(stop=stop))
        await asyncio.sleep(100)
        assert on.notes.count("deadletters.auto_retry_failed") >= 3
        on.store.away = False
        await asyncio.sleep(31)
        stop.set()
        await looping
        assert await copies(on) == [("a", 1)]

    play(scenario)
