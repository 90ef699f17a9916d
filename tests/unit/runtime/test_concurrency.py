"""Slots of the concurrency limit are passed on in the order of arrival, and none is lost."""

import asyncio

from redrive.runtime.concurrency import ConcurrencyLimit
from tests.unit.client.scenario import run_scenario


def test_slots_are_passed_on_in_the_order_of_arrival() -> None:
    async def scenario() -> None:
        concurrency = ConcurrencyLimit(1)
        assert concurrency.try_take()
        order: list[int] = []

        async def wait(number: int) -> None:
            assert await concurrency.wait()
            order.append(number)
            concurrency.release()

        tasks = [asyncio.create_task(wait(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert not concurrency.try_take()
        concurrency.release()
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3]
        assert concurrency.try_take()
        assert not concurrency.try_take()

    run_scenario(scenario())


def test_a_waiter_that_is_cancelled_leaves_its_slot_to_the_next() -> None:
    async def scenario() -> None:
        concurrency = ConcurrencyLimit(1)
        assert concurrency.try_take()
        first, second = (asyncio.create_task(concurrency.wait()) for _ in range(2))
        await asyncio.sleep(0)
        concurrency.release()  # it is the first one's now, which does not know it yet
        first.cancel()
        assert await second
        assert concurrency.waiting == 0
        third = asyncio.create_task(concurrency.wait())
        await asyncio.sleep(0)
        third.cancel()
        await asyncio.wait([third])
        assert concurrency.waiting == 0
        concurrency.release()
        assert concurrency.try_take()

    run_scenario(scenario())


def test_a_wake_makes_every_waiter_check_again_and_a_slot_put_back_wakes_none() -> None:
    async def scenario() -> None:
        concurrency = ConcurrencyLimit(1)
        assert concurrency.try_take()
        waiting = [asyncio.create_task(concurrency.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        concurrency.put_back()
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        concurrency.wake()
        assert [await task for task in waiting] == [False, False]
        assert concurrency.try_take()

    run_scenario(scenario())


def test_without_a_limit_there_is_always_a_slot() -> None:
    concurrency = ConcurrencyLimit(None)
    assert not concurrency.is_limited
    assert all(concurrency.try_take() for _ in range(1000))
