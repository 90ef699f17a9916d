"""Waiting that ends early when it is to stop."""

import asyncio


async def idle(stop: asyncio.Event, seconds: float) -> None:
    """So many seconds, but no longer than until `stop` is set."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
