"""An event loop that jumps over the time in which nothing happens."""

import asyncio
import time

import pytest

from redrive.testing import Stuck, run_in_virtual_time


def test_a_day_of_sleep_takes_no_time_and_ends_at_its_moment() -> None:
    async def main() -> float:
        await asyncio.sleep(86_400.25)
        return asyncio.get_running_loop().time()

    began_s = time.monotonic()
    assert run_in_virtual_time(main()) == 86_400.25
    assert time.monotonic() - began_s < 5


def test_timers_ring_in_their_order_and_a_timeout_at_its_second() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        async def note(name: str, after_s: float) -> None:
            await asyncio.sleep(after_s)
            seen.append((name, loop.time()))

        async with asyncio.TaskGroup() as group:
            for name, after_s in (("c", 3.0), ("a", 1.0), ("b", 2.5)):
                group.create_task(note(name, after_s))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.sleep(1000)
        seen.append(("timeout", loop.time()))
        return seen

    assert run_in_virtual_time(main()) == [("a", 1.0), ("b", 2.5), ("c", 3.0), ("timeout", 63.0)]


def test_waiting_for_what_can_never_come_is_said_instead_of_waited_for() -> None:
    async def main() -> None:
        await asyncio.sleep(7)
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match=r"after 7 s of virtual time: a deadlock"):
        run_in_virtual_time(main())
