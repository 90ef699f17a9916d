"""Heartbeats, both ways: a word at least every half interval, and the end after two intervals of silence.

Any bytes count as a sign of life, in either direction. One timer for both: it looks at what happened since it last
looked, so that the hot path only sets a flag. A blocked event loop is not mistaken for a silent broker: what has
arrived meanwhile is read before the timer runs.
"""

import asyncio
from collections.abc import Callable

_LOOKS_PER_INTERVAL = 2
_SILENT_LOOKS_MAX = 2 * _LOOKS_PER_INTERVAL


class Heartbeats:
    """The connection sets `heard` and `spoke`; `say` sends a heartbeat, `give_up` ends the connection."""

    __slots__ = ("_give_up", "_interval_s", "_say", "_silent_looks", "_timer", "heard", "spoke")

    def __init__(self, say: Callable[[], None], give_up: Callable[[str], None]) -> None:
        self._say = say
        self._give_up = give_up
        self._interval_s = 0
        self._silent_looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.heard = True
        self.spoke = False

    def start(self, interval_s: int) -> None:
        """From now on; an interval of 0 means none."""
        self._interval_s = interval_s
        if interval_s:
            self._schedule()

    def stop(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._interval_s / _LOOKS_PER_INTERVAL, self._look)

    def _look(self) -> None:
        self._silent_looks = 0 if self.heard else self._silent_looks + 1
        if self._silent_looks >= _SILENT_LOOKS_MAX:
            self._give_up(f"the broker was silent for {2 * self._interval_s} s (no heartbeat)")
            return
        self.heard = False
        if not self.spoke:
            self._say()
        self.spoke = False
        self._schedule()
