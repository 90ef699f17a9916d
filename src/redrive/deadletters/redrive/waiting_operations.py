"""Runs operations that wait for a redriver: new ones, and those whose redriver died. For `serve` and `collect`."""

import asyncio

from redrive.core import RedriveError
from redrive.deadletters.redrive.redriver import Redriver, RunsElsewhere
from redrive.deadletters.stop_waits import wait_stop


async def run_waiting_operations(
    redriver: Redriver,
    *,
    stop: asyncio.Event,
    interval_s: float = 2.0,
    at_once_max: int = 4,
    wake: asyncio.Event | None = None,
) -> None:
    """Looks every `interval_s` for waiting operations and runs them, several at once, until `stop` is set.

    `wake` makes it look at once. When it stops, each operation finishes its current batch and is left to the next
    redriver. An operation that fails is noted and tried again at the next look.
    """
    running: dict[str, asyncio.Task[None]] = {}
    try:
        while not stop.is_set():
            running = {id: task for id, task in running.items() if not task.done()}
            for id in await _waiting(redriver):
                if id not in running and len(running) < at_once_max:
                    running[id] = asyncio.create_task(_run(redriver, id, stop), name=f"redrive operation {id}")
            await _rest(stop, interval_s, wake)
        if running:
            await asyncio.wait(running.values())
    finally:
        for task in running.values():
            task.cancel()
        if running:
            await asyncio.wait(running.values())


async def _rest(stop: asyncio.Event, seconds: float, wake: asyncio.Event | None) -> None:
    if wake is None:
        await wait_stop(stop, seconds)
        return
    waits = [asyncio.ensure_future(one.wait()) for one in (stop, wake)]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
    wake.clear()


async def _waiting(redriver: Redriver) -> tuple[str, ...]:
    parts = redriver.parts
    if not parts.client.is_connected:
        return ()  # none could be run: they stay waiting, and another process may have a connection
    try:
        return await parts.store.operations.waiting(vhost=parts.client.target.vhost)
    except RedriveError as error:
        parts.observer.note("deadletters.store_unavailable", reason=str(error))
        return ()


async def _run(redriver: Redriver, id: str, stop: asyncio.Event) -> None:
    try:
        await redriver.run(id, stop=stop, pauses_when_stopped=False)
    except RunsElsewhere:
        pass
    except (RedriveError, TimeoutError) as error:
        redriver.parts.observer.note("deadletters.run_failed", operation=id, reason=str(error))
