"""A thread with an event loop of its own for the work beside the API: a collector at full speed must not make a request
wait longer than two threads make each other wait, and gives way to those in hand (`giving_way`).
"""

import asyncio
import sys
import threading
from collections.abc import Callable

from redrive.admin import Doing, WorkerState
from redrive.serving.giving_way import InHand, considerate_loop
from redrive.serving.work import Work

_SWITCH_S = 0.001
"""How long one thread may keep the other waiting. A request gives its turn away whenever it asks the database, and by
Python's default would wait 5 ms for it each time."""


class Worker:
    """Started once, stopped once. `state` and `wake` are for the API's thread."""

    def __init__(self, make_work: Callable[[], Work], *, in_hand: InHand | None = None) -> None:
        self._make_work = make_work
        self._in_hand = InHand() if in_hand is None else in_hand
        self._thread = threading.Thread(target=self._run, name="redrive worker", daemon=True)
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._work: Work | None = None
        self._is_told = False
        """It was told to stop."""

    def start(self) -> None:
        """Returns when the thread runs; what it works on may still be connecting."""
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()
        self._is_up.wait(timeout=30)

    def state(self) -> WorkerState:
        """What it does now."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._is_told:
            return WorkerState(doing=Doing.WAITING, reason="for a restart: what collects and redrives here has ended")
        return WorkerState(doing=Doing.CONNECTING) if self._work is None else self._work.state

    def wake(self) -> None:
        """An operation waits for a runner."""
        if self._work is not None:
            self._tell(self._work.wake)

    async def stop(self, patience_s: float) -> bool:
        """Ends what is in hand; whether it ended in time."""
        self._is_told = True
        if self._stop is not None:
            self._tell(self._stop)
        await asyncio.to_thread(self._thread.join, patience_s)
        return not self._thread.is_alive()

    def _tell(self, event: asyncio.Event) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            pass  # it has ended

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=considerate_loop(self._in_hand)) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._work = self._make_work()
        self._is_up.set()
        await self._work.run(self._stop)
