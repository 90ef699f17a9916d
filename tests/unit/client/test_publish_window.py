"""Slots are given in order, never more than are free, and none is lost to a cancelled waiter."""

import asyncio

from redrive.client.publish_window import PublishWindow
from tests.unit.client.scenario import ended, run_scenario


class Slots:
    """Slots to give out."""

    def __init__(self) -> None:
        self.free = 0
        self.window = PublishWindow(lambda: self.free)
        self.went: list[int] = []

    async def enter(self, number: int) -> None:
        await self.window.wait()
        while self.free <= 0:
            await self.window.wait(again=True)
        self.free -= 1
        self.went.append(number)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_slots_are_given_in_order_and_only_as_many_as_are_free() -> None:
    async def scenario() -> None:
        slots = Slots()
        tasks = [asyncio.create_task(slots.enter(number)) for number in range(5)]
        await turn()
        slots.free = 2
        slots.window.release()
        slots.window.release()  # what is promised is not promised again
        await turn()
        assert slots.went == [0, 1]
        assert slots.window.waiting == 3
        slots.free = 9
        slots.window.release()
        await ended(*tasks)
        assert slots.went == [0, 1, 2, 3, 4]
        assert (slots.window.waiting, slots.window.promised) == (0, 0)

    run_scenario(scenario())


def test_a_waiter_cancelled_after_it_was_woken_passes_its_slot_on() -> None:
    async def scenario() -> None:
        slots = Slots()
        first, second = (asyncio.create_task(slots.enter(number)) for number in range(2))
        await turn()
        slots.free = 1
        slots.window.release()
        first.cancel()
        await ended(first, second)
        assert slots.went == [1]
        assert (slots.window.waiting, slots.window.promised) == (0, 0)

    run_scenario(scenario())


def test_a_waiter_cancelled_before_it_was_woken_is_skipped() -> None:
    async def scenario() -> None:
        slots = Slots()
        first, second = (asyncio.create_task(slots.enter(number)) for number in range(2))
        await turn()
        first.cancel()
        await turn()
        slots.free = 1
        slots.window.release()
        await ended(first, second)
        assert slots.went == [1]
        assert (slots.window.waiting, slots.window.promised) == (0, 0)

    run_scenario(scenario())


def test_a_waiter_whose_slot_is_gone_stays_first_in_the_queue() -> None:
    async def scenario() -> None:
        slots = Slots()
        tasks = [asyncio.create_task(slots.enter(number)) for number in range(3)]
        await turn()
        slots.free = 1
        slots.window.release()
        slots.free = 0  # the broker blocks before the woken task runs
        await turn()
        assert slots.went == []
        slots.free = 3
        slots.window.release()
        await ended(*tasks)
        assert slots.went == [0, 1, 2]

    run_scenario(scenario())


def test_a_caller_that_comes_while_slots_are_free_does_not_wait_for_a_release() -> None:
    async def scenario() -> None:
        slots = Slots()
        slots.free = 2
        await ended(*(slots.enter(number) for number in range(2)))
        assert slots.went == [0, 1]

    run_scenario(scenario())
