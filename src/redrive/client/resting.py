"""When a connection reads nothing for a moment, so that more comes at once then.

A busy broker sends deliveries in dribs and drabs, and waking up for each handful costs more than handling it, on both
sides: what comes during a rest is read, handled and settled at once. Not where hardly any would come, which would only
wait, and not where more than a small part of the prefetch would: the broker would have to wait for us.
"""

import asyncio

REST_S = 0.002
_LOOK_S = 0.01
_MANY, _BUSY, _PART = 8, 2, 8


class Pace:
    """How fast the deliveries of one consumer are settled, looked at now and then."""

    def __init__(self, prefetch: int, now_s: float) -> None:
        self._prefetch = prefetch
        self._looked_s = now_s
        self._settled = 0
        self._rested_at = 0
        self._may_rest = False

    def is_rest_due(self, settled: int, now_s: float) -> bool:
        """Whether to rest, when so many have been settled since the beginning."""
        within_s = now_s - self._looked_s
        if within_s >= _LOOK_S:
            self._may_rest = is_worth_a_rest(settled - self._settled, within_s, self._prefetch)
            self._settled, self._looked_s = settled, now_s
        if not self._may_rest or settled - self._rested_at < _MANY:
            return False
        self._rested_at = settled
        return True


def is_worth_a_rest(settled: int, within_s: float, prefetch: int) -> bool:
    """Whether some would come during a rest, and not too many, if so many were settled in a time."""
    expected = settled * REST_S / within_s
    return expected >= _BUSY and (expected * _PART < prefetch or not prefetch)


class Resting:
    """The rests of one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_resting = False

    def rest(self, transport: asyncio.Transport, seconds: float) -> None:
        """Reads nothing for so long; while it rests already, that is enough."""
        if not self._is_resting:
            self._is_resting = True
            transport.pause_reading()
            self._loop.call_later(seconds, self._go_on, transport)

    def _go_on(self, transport: asyncio.Transport) -> None:
        self._is_resting = False
        if not transport.is_closing():
            transport.resume_reading()
