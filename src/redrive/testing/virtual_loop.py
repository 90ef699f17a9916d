"""An event loop whose time passes only while nothing is left to do: `asyncio.run` for simulations.

    run(main())        # a day of sleeps, timeouts, heartbeats and TTLs in as long as its steps take to compute

When every callback has run, the clock jumps to the next timer. An embedded broker with `time="real"` lives by the same
clock as the clients that `dial` it, so a whole system runs in one thread, in one order, the same every time. Sockets
and threads are outside of it: what they bring would come at another virtual moment each time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from redrive.core import RedriveError

_Result = TypeVar("_Result")


class Stuck(RedriveError):
    """Everybody waits for something, and nothing is going to happen any more."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        super().__init__(
            f"everything waits and no timer is set, after {at_s:g} s of virtual time: a deadlock, or something waits "
            "for a socket or a thread, which virtual time does not wait for"
        )


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Runs a coroutine to its end in virtual time, beginning at 0. Raises Stuck where it could never end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop with another clock: `time()` are the virtual seconds since it was made."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Virtual seconds."""
        return self._skipping.now_s


class _SkippingSelector(selectors.DefaultSelector):
    """asyncio calls `select` when no callback is left, with the time until the next timer: here it passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; if nothing is, the time until the next timer is over."""
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise Stuck(self.now_s)
        self.now_s += max(0.0, timeout)
        return []
