"""Turns are given in order, never beyond the room there is, and none is lost to a cancelled waiter."""

import asyncio

from redrive.client.room import RoomQueue
from tests.unit.client.scenario import ended, run_scenario


class Window:
    """Room to give out."""

    def __init__(self) -> None:
        self.room = 0
        self.queue = RoomQueue(lambda: self.room)
        self.went: list[int] = []

    async def enter(self, number: int) -> None:
        await self.queue.wait()
        while self.room <= 0:
            await self.queue.wait(again=True)
        self.room -= 1
        self.went.append(number)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_turns_come_in_order_and_only_as_many_as_there_is_room() -> None:
    async def scenario() -> None:
        window = Window()
        tasks = [asyncio.create_task(window.enter(number)) for number in range(5)]
        await turn()
        window.room = 2
        window.queue.release()
        window.queue.release()  # what is promised is not promised again
        await turn()
        assert window.went == [0, 1]
        assert window.queue.waiting == 3
        window.room = 9
        window.queue.release()
        await ended(*tasks)
        assert window.went == [0, 1, 2, 3, 4]
        assert (window.queue.waiting, window.queue.promised) == (0, 0)

    run_scenario(scenario())


def test_a_waiter_cancelled_after_its_turn_came_passes_it_on() -> None:
    async def scenario() -> None:
        window = Window()
        first, second = (asyncio.create_task(window.enter(number)) for number in range(2))
        await turn()
        window.room = 1
        window.queue.release()
        first.cancel()
        await ended(first, second)
        assert window.went == [1]
        assert (window.queue.waiting, window.queue.promised) == (0, 0)

    run_scenario(scenario())


def test_a_waiter_cancelled_before_its_turn_is_skipped() -> None:
    async def scenario() -> None:
        window = Window()
        first, second = (asyncio.create_task(window.enter(number)) for number in range(2))
        await turn()
        first.cancel()
        await turn()
        window.room = 1
        window.queue.release()
        await ended(first, second)
        assert window.went == [1]
        assert (window.queue.waiting, window.queue.promised) == (0, 0)

    run_scenario(scenario())


def test_a_promise_that_can_not_be_kept_keeps_its_place() -> None:
    async def scenario() -> None:
        window = Window()
        tasks = [asyncio.create_task(window.enter(number)) for number in range(3)]
        await turn()
        window.room = 1
        window.queue.release()
        window.room = 0  # the broker blocks before the woken task runs
        await turn()
        assert window.went == []
        window.room = 3
        window.queue.release()
        await ended(*tasks)
        assert window.went == [0, 1, 2]

    run_scenario(scenario())


def test_who_comes_while_there_is_room_does_not_wait_for_a_release() -> None:
    async def scenario() -> None:
        window = Window()
        window.room = 2
        await ended(*(window.enter(number) for number in range(2)))
        assert window.went == [0, 1]

    run_scenario(scenario())
