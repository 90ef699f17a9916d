"""A pool runs every item once, in tasks; it has as many workers as handlers wait, and never more than allowed."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from redrive.client.worker_pool import WorkerPool

Failures = list[tuple[int, BaseException]]


def make(handle: Callable[[int], Awaitable[None]], workers_max: int = 100) -> tuple[WorkerPool[int], Failures]:
    failures: Failures = []
    workers = WorkerPool(
        handle,
        workers_max=workers_max,
        on_failure=lambda item, error: failures.append((item, error)),
        loop=asyncio.get_running_loop(),
    )
    return workers, failures


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - turn by turn is the point
            await asyncio.sleep(0)


def test_handlers_that_do_not_wait_share_a_worker_and_keep_their_order() -> None:
    async def run() -> None:
        done: list[int] = []

        async def handle(item: int) -> None:
            done.append(item)

        others = asyncio.all_tasks()
        workers, failures = make(handle)
        for item in range(1000):
            workers.put(item)
        await until(lambda: len(done) == 1000)
        assert done == list(range(1000))
        assert len(asyncio.all_tasks() - others) <= 2
        assert failures == []
        await workers.close()

    asyncio.run(run())


def test_handlers_that_wait_run_side_by_side_up_to_the_limit() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        done: list[int] = []

        async def handle(item: int) -> None:
            await gate.wait()
            done.append(item)

        workers, _ = make(handle, workers_max=7)
        for item in range(20):
            workers.put(item)
        await until(lambda: workers.running == 7)
        await asyncio.sleep(0)
        assert workers.running == 7
        assert workers.waiting == 13
        gate.set()
        await until(lambda: len(done) == 20)
        assert sorted(done) == list(range(20))
        await workers.close()

    asyncio.run(run())


def test_a_handler_runs_in_a_task_so_timeouts_work_in_it() -> None:
    async def run() -> None:
        ended: list[str] = []

        async def handle(item: int) -> None:
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append(f"{item} timed out")

        workers, failures = make(handle)
        for item in range(3):
            workers.put(item)
        await until(lambda: len(ended) == 3)
        assert sorted(ended) == ["0 timed out", "1 timed out", "2 timed out"]
        assert failures == []
        await workers.close()

    asyncio.run(run())


def test_a_failing_handler_is_reported_and_the_others_go_on() -> None:
    async def run() -> None:
        done: list[int] = []

        async def handle(item: int) -> None:
            if item == 1:
                raise ValueError("bad")
            if item == 2:
                raise asyncio.CancelledError
            done.append(item)

        workers, failures = make(handle, workers_max=1)
        for item in range(5):
            workers.put(item)
        await until(lambda: len(done) == 3)
        assert done == [0, 3, 4]
        assert [(item, type(error)) for item, error in failures] == [(1, ValueError), (2, asyncio.CancelledError)]
        await workers.close()

    asyncio.run(run())


def test_close_cancels_running_handlers_and_drops_waiting_items() -> None:
    async def run() -> None:
        cancelled: list[int] = []

        async def handle(item: int) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(item)
                raise

        workers, failures = make(handle, workers_max=2)
        for item in range(5):
            workers.put(item)
        await until(lambda: workers.running == 2)
        await workers.close()
        assert sorted(cancelled) == [0, 1]
        assert workers.running == 0
        assert workers.waiting == 0
        assert failures == []

    asyncio.run(run())


def test_waiting_items_can_be_taken_back() -> None:
    async def run() -> None:
        gate = asyncio.Event()

        async def handle(_item: int) -> None:
            await gate.wait()

        workers, _ = make(handle, workers_max=1)
        for item in range(4):
            workers.put(item)
        await until(lambda: workers.running == 1)
        assert workers.clear() == [1, 2, 3]
        gate.set()
        await until(lambda: workers.running == 0)
        await workers.close()

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(30))
def test_every_item_is_handled_once_whichever_handlers_wait(seed: int) -> None:
    """Random bursts of items whose handlers wait for nothing, a turn of the loop or several, or fail."""

    async def run() -> None:
        rng = random.Random(seed)
        seen: list[int] = []
        failed: list[int] = []

        async def handle(item: int) -> None:
            for _ in range(rng.choice((0, 0, 1, 1, 3, 10))):
                await asyncio.sleep(0)
            if rng.random() < 0.1:
                failed.append(item)
                raise RuntimeError("now and then")
            seen.append(item)

        workers_max = rng.choice((1, 2, 5, 100))
        workers, failures = make(handle, workers_max=workers_max)
        item = 0
        for _ in range(50):
            for _ in range(rng.choice((0, 1, 1, 5, 60))):
                workers.put(item)
                item += 1
            assert workers.running <= workers_max
            for _ in range(rng.choice((0, 1, 4))):
                await asyncio.sleep(0)
        await until(lambda: len(seen) + len(failed) == item)
        assert sorted(seen + failed) == list(range(item))
        assert sorted(one for one, _ in failures) == sorted(failed)
        await workers.close()

    asyncio.run(run())


def test_an_item_whose_worker_is_cancelled_on_its_way_goes_to_another() -> None:
    async def scenario() -> None:
        seen: list[int] = []
        tasks: list[asyncio.Task[None] | None] = []

        async def handle(item: int) -> None:
            seen.append(item)
            tasks.append(asyncio.current_task())

        workers, _ = make(handle)
        workers.put(1)
        await until(lambda: seen == [1])
        workers.put(2)
        assert tasks[0] is not None
        tasks[0].cancel()
        await until(lambda: seen == [1, 2])
        await workers.close()

    asyncio.run(scenario())


def test_an_idle_worker_that_was_cancelled_is_not_counted_on() -> None:
    async def run() -> None:
        tasks: list[asyncio.Task[None]] = []
        done: list[int] = []

        async def handle(item: int) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)
            done.append(item)

        workers, failures = make(handle)
        workers.put(1)
        await until(lambda: done == [1])
        tasks[0].cancel()  # a handler may have left its task somewhere, for a timeout of its own
        await until(tasks[0].done)
        await asyncio.sleep(0)  # until its done callbacks have run
        workers.put(2)
        await until(lambda: done == [1, 2])
        assert failures == []
        await workers.close()

    asyncio.run(run())
