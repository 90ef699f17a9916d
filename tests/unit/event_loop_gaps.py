"""How long an event loop was away from everybody else while something ran."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

_Value = TypeVar("_Value")
_TICK_S = 0.005


async def longest_gap_s(work: Awaitable[_Value]) -> tuple[_Value, float]:
    """What the work answers, and for how long at most nobody else had a turn meanwhile."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        last_s = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_S)
            now_s = time.monotonic()
            longest, last_s = max(longest, now_s - last_s), now_s

    ticking = asyncio.create_task(tick())
    try:
        await asyncio.sleep(0)
        answer = await work
        await asyncio.sleep(2 * _TICK_S)
        return answer, longest
    finally:
        ticking.cancel()
        await asyncio.wait([ticking])
