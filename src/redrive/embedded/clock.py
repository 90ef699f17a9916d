"""Virtual time: real time by default, moved on by `advance`, or standing still until it is.

The engine is told the time and never asks; this is who tells it. Only TTLs, expiry, delayed retries, dead-letter
retries and x-death's times follow it: heartbeats and clients' own timeouts are in real time.
"""

from collections.abc import Callable
from enum import StrEnum


class Flow(StrEnum):
    """How time passes.

    REAL: with the wall clock, plus what was advanced. MANUAL: only by `advance`. AUTOMATIC: stands still while anything
    happens, and jumps to the next deadline when nothing does.
    """

    REAL = "real"
    MANUAL = "manual"
    AUTOMATIC = "automatic"


class VirtualClock:
    """Milliseconds since 1970, as the broker's messages see them."""

    def __init__(self, flow: Flow, *, start_ms: int, monotonic_s: Callable[[], float]) -> None:
        self.flow = flow
        self._monotonic_s = monotonic_s
        self._base_ms = start_ms
        self._base_s = monotonic_s()

    def now_ms(self) -> int:
        """The present moment."""
        if self.flow is not Flow.REAL:
            return self._base_ms
        # A hair more than passed: a timer that rings exactly at its moment must not find itself a millisecond early.
        return self._base_ms + int((self._monotonic_s() - self._base_s) * 1000 + 1e-6)

    def follow(self, monotonic_s: Callable[[], float]) -> None:
        """From now on real time is what that says passes; the present moment stays."""
        self._base_ms = self.now_ms()
        self._monotonic_s = monotonic_s
        self._base_s = monotonic_s()

    def jump_to(self, at_ms: int) -> None:
        """It is that moment now; going back is not possible and does nothing."""
        now_ms = self.now_ms()
        if at_ms > now_ms:
            self._base_ms += at_ms - now_ms

    def wait_s(self, until_ms: int) -> float | None:
        """Real seconds until a moment comes by itself; None if it does not."""
        if self.flow is not Flow.REAL:
            return None
        return max(0.0, (until_ms - self.now_ms()) / 1000)
