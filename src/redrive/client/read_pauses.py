"""Short pauses in which a connection reads nothing, so that more deliveries are read at once afterwards.

A busy broker sends a few deliveries at a time, and waking up for each few costs more than handling them, on both sides.
What arrives during a pause is read, handled and settled together. There is no pause where hardly any delivery would
arrive in it (it would only be late), nor where more than a small part of the prefetch would (the broker would have to
wait for us).
"""

import asyncio

PAUSE_S = 0.002
_MEASURE_S = 0.01
_SETTLED_BETWEEN_MIN, _EXPECTED_MIN, _PREFETCH_PART = 8, 2, 8


class SettleRate:
    """How fast the deliveries of one consumer are settled, measured every few milliseconds."""

    def __init__(self, prefetch: int, now_s: float) -> None:
        self._prefetch = prefetch
        self._measured_s = now_s
        self._settled = 0
        self._paused_at = 0
        self._may_pause = False

    def is_pause_due(self, settled: int, now_s: float) -> bool:
        """Whether to pause now, when `settled` deliveries have been settled since the consumer began."""
        within_s = now_s - self._measured_s
        if within_s >= _MEASURE_S:
            self._may_pause = is_pause_worthwhile(settled - self._settled, within_s, self._prefetch)
            self._settled, self._measured_s = settled, now_s
        if not self._may_pause or settled - self._paused_at < _SETTLED_BETWEEN_MIN:
            return False
        self._paused_at = settled
        return True


def is_pause_worthwhile(settled: int, within_s: float, prefetch: int) -> bool:
    """Whether some deliveries, and not too many, would arrive in a pause, if `settled` were settled `within_s`."""
    expected = settled * PAUSE_S / within_s
    return expected >= _EXPECTED_MIN and (expected * _PREFETCH_PART < prefetch or not prefetch)


class ReadPauses:
    """The pauses of one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_paused = False

    def pause(self, transport: asyncio.Transport, seconds: float) -> None:
        """Reads nothing for so long; a pause that has begun is not made longer."""
        if not self._is_paused:
            self._is_paused = True
            transport.pause_reading()
            self._loop.call_later(seconds, self._resume, transport)

    def _resume(self, transport: asyncio.Transport) -> None:
        self._is_paused = False
        if not transport.is_closing():
            transport.resume_reading()
