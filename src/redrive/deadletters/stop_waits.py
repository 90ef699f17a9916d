"""Waits that end early once `stop` is set."""

import asyncio


async def wait_stop(stop: asyncio.Event, seconds: float) -> None:
    """So many seconds, or until `stop` is set."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass


async def wait_done(task: "asyncio.Task[object]", stop: asyncio.Event, patience_s: float, grace_s: float) -> None:
    """Until the task is done, at most `patience_s`; once `stop` is set, at most `grace_s` more."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopping], timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and stop.is_set():
            await asyncio.wait([task], timeout=grace_s)
    finally:
        stopping.cancel()
