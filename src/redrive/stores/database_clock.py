"""The time for all instances that share a database: the database's own time.

Instances compare moments that others wrote down (a lease's end, when a letter is due, when a token expires), and their
machines' clocks may be far apart. This process asks PostgreSQL for its time now and then, and counts on from the
answer. A file of SQLite is on this machine and has this machine's clock.

Leases don't even rely on that: their statements read the database's clock themselves (`Dialect.now_ms`).
"""

import time
from collections.abc import Callable
from typing import Protocol

ASKED_AGAIN_MS = 10_000
OFF_MS = 2_000
"""A machine's clock that is further away from the database's is reported."""
_ERROR_MS_MAX = 500
"""An answer that took longer than twice that says too little about the present."""


class Clock(Protocol):
    """The time by which everything in a store is decided."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    @property
    def off_ms(self) -> int:
        """How far this machine's own clock is ahead of it; negative where it is behind."""


def wall_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


def steady_ms() -> float:
    """A clock that nobody sets and, where there is such a one, that goes on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic() if clock is None else time.clock_gettime(clock)) * 1000


class MachineClock:
    """This machine's clock: of a file on it."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return wall_ms()

    @property
    def off_ms(self) -> int:
        """Never."""
        return 0


class ServerClock:
    """A server's clock, as it was when it was last asked, counted on."""

    def __init__(
        self,
        *,
        report: Callable[[int], None] = lambda _: None,
        steady: Callable[[], float] = steady_ms,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        """`report` is called with how far this machine's clock is off, when it goes off and when it is right again."""
        self._report = report
        self._steady = steady
        self._wall = wall
        self._is_off = False
        self._ahead_ms: float | None = None
        self._asked_at_ms = 0.0

    def now_ms(self) -> int:
        """Milliseconds since 1970; by this machine's clock as long as the server has not said."""
        return self._wall() if self._ahead_ms is None else round(self._steady() + self._ahead_ms)

    @property
    def off_ms(self) -> int:
        """How far this machine's clock is ahead of the server's."""
        return self._wall() - self.now_ms()

    @property
    def is_to_be_asked(self) -> bool:
        """Whether the last answer is old."""
        return self._ahead_ms is None or self._steady() - self._asked_at_ms >= ASKED_AGAIN_MS

    def begin(self) -> float:
        """To be called before asking; its result goes to `learn`."""
        return self._steady()

    def learn(self, server_ms: int, begun_ms: float) -> None:
        """The server's answer. It was made at some moment since the question: in the middle, as far as we know."""
        now_ms = self._steady()
        error_ms = (now_ms - begun_ms) / 2
        if self._ahead_ms is None or error_ms <= _ERROR_MS_MAX:
            self._ahead_ms = server_ms - (begun_ms + now_ms) / 2
            self._asked_at_ms = now_ms
            off_ms = self.off_ms
            if (abs(off_ms) >= OFF_MS) is not self._is_off:
                self._is_off = not self._is_off
                self._report(off_ms)
