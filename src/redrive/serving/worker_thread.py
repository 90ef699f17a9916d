"""A thread with an event loop of its own for collecting and redriving beside the API.

A collector at full speed must not make a request wait longer than two threads make each other wait; the thread yields
to open requests (`worker_throttle`).
"""

import asyncio
import sys
import threading
from collections.abc import Callable

from redrive.admin import WorkerActivity, WorkerState
from redrive.serving.worker_loop import WorkerLoop
from redrive.serving.worker_throttle import OpenRequests, throttled_loop

_SWITCH_S = 0.001
"""How long one thread may keep the other waiting. A request gives its turn away whenever it asks the database, and by
Python's default would wait 5 ms for it each time."""


class WorkerThread:
    """Started once, stopped once. `state` and `wake` are for the API's thread."""

    def __init__(self, make_loop: Callable[[], WorkerLoop], *, open_requests: OpenRequests | None = None) -> None:
        self._make_loop = make_loop
        self._open_requests = OpenRequests() if open_requests is None else open_requests
        self._thread = threading.Thread(target=self._run, name="redrive worker", daemon=True)
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._work: WorkerLoop | None = None
        self._is_stopping = False
        """`stop` was called."""

    def start(self) -> None:
        """Returns when the thread runs; what it works on may still be connecting."""
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()
        self._is_up.wait(timeout=30)

    def state(self) -> WorkerState:
        """What it does now."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._is_stopping:
            return WorkerState(
                activity=WorkerActivity.WAITING, reason="for a restart: what collects and redrives here has ended"
            )
        return WorkerState(activity=WorkerActivity.CONNECTING) if self._work is None else self._work.state

    def wake(self) -> None:
        """An operation waits for a runner."""
        if self._work is not None:
            self._set(self._work.wake)

    async def stop(self, patience_s: float) -> bool:
        """Ends the current batch; whether the thread ended in time."""
        self._is_stopping = True
        if self._stop is not None:
            self._set(self._stop)
        await asyncio.to_thread(self._thread.join, patience_s)
        return not self._thread.is_alive()

    def _set(self, event: asyncio.Event) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            pass  # it has ended

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=throttled_loop(self._open_requests)) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._work = self._make_loop()
        self._is_up.set()
        await self._work.run(self._stop)
