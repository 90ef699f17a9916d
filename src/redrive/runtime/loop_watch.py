"""A thread that notices when a handler blocks the event loop, and which one.

While the loop is blocked no heartbeat is sent, and in the end the broker closes the connection: every unsettled
delivery comes again. Afterwards nobody in the loop can tell which handler it was, since that has gone on by then. So a
thread asks the loop for an answer now and then. If none comes for half of the heartbeat timeout, it looks at the stack
of the loop's thread: the delivery in there is the one.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from redrive.client import Delivery

_ASK_EVERY_S = 1.0
_LOOK_S_LEAST = 0.25


class LoopWatch:
    """Watches the running loop between `start` and `stop`.

    `patience_s` returns after how long to look, None while it does not matter. `on_block` is called in the watching
    thread, once each time the loop is blocked, with the delivery whose handler blocks it, None if that can't be seen,
    and for how long it has been blocked.
    """

    def __init__(
        self, patience_s: Callable[[], float | None], on_block: Callable[[Delivery | None, float], None]
    ) -> None:
        self._patience_s = patience_s
        self._on_block = on_block
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._answered = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redrive loop watch", daemon=True)

    def start(self) -> None:
        """Watches, unless the loop has virtual time: then a block means nothing."""
        if abs(self._loop.time() - time.monotonic()) < 1.0:
            self._thread.start()

    def stop(self) -> None:
        """Stops watching; the thread ends by itself."""
        self._stopped.set()
        self._answered.set()

    def _run(self) -> None:
        while True:
            slept_s = time.monotonic()
            if self._stopped.wait(_ASK_EVERY_S):
                return
            patience_s = self._patience_s()
            if patience_s is None:
                continue
            asked_s = time.monotonic()
            late_s = asked_s - slept_s - _ASK_EVERY_S
            if late_s >= patience_s:
                # One call of C has blocked all threads, this one too. It is over, and its handler has just gone on.
                delivery = self._look()
                if delivery is not None:
                    self._on_block(delivery, late_s)
            self._answered.clear()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop is closed
                return
            if self._answered.wait(max(patience_s, _LOOK_S_LEAST)) or self._stopped.is_set():
                continue
            self._on_block(self._look(), time.monotonic() - asked_s)
            self._answered.wait()

    def _look(self) -> Delivery | None:
        return delivery_in(sys._current_frames().get(self._loop_thread))


def delivery_in(frame: FrameType | None) -> Delivery | None:
    """The delivery in the innermost frame of the delivery handler in a stack."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "redrive.runtime.delivery_handler":
            delivery = frame.f_locals.get("delivery")
            if isinstance(delivery, Delivery):
                return delivery
        frame = frame.f_back
    return None
