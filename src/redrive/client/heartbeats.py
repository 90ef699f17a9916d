"""Heartbeats, both ways: one is sent after half an interval of silence, and two silent intervals end the connection.

Any bytes count as a sign of life, in either direction. One timer serves both: it looks at what happened since it last
ran, so that the hot path only sets a flag. A blocked event loop is not mistaken for a silent broker: asyncio reads what
has arrived meanwhile before it runs the timer.
"""

import asyncio
from collections.abc import Callable

_LOOKS_PER_INTERVAL = 2
_SILENT_LOOKS_MAX = 2 * _LOOKS_PER_INTERVAL


class Heartbeats:
    """The connection sets `received` and `sent`; `send` sends a heartbeat, `give_up` ends the connection."""

    __slots__ = ("_give_up", "_interval_s", "_send", "_silent_looks", "_timer", "received", "sent")

    def __init__(self, send: Callable[[], None], give_up: Callable[[str], None]) -> None:
        self._send = send
        self._give_up = give_up
        self._interval_s = 0
        self._silent_looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.received = True
        self.sent = False

    def start(self, interval_s: int) -> None:
        """Starts the timer; an interval of 0 means no heartbeats."""
        self._interval_s = interval_s
        if interval_s:
            self._schedule()

    def stop(self) -> None:
        """Stops the timer: the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._interval_s / _LOOKS_PER_INTERVAL, self._look)

    def _look(self) -> None:
        self._silent_looks = 0 if self.received else self._silent_looks + 1
        if self._silent_looks >= _SILENT_LOOKS_MAX:
            self._give_up(f"the broker was silent for {2 * self._interval_s} s (no heartbeat)")
            return
        self.received = False
        if not self.sent:
            self._send()
        self.sent = False
        self._schedule()
