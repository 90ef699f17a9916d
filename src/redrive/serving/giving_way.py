"""Requests first: while some are in hand, the thread that collects and redrives lets them go ahead.

Both threads share an interpreter, and with the database a machine. Whoever asks waits for an answer; a dead letter that
is collected a moment later has lost nothing, and the hands that are taken then are larger, which costs less altogether.
So the worker's event loop rests after its turns, the longer the more it worked and the more requests are in hand: it
never stops, and it is at full speed when nobody asks. A turn that did little is hardly rested after: it may have locked
rows that a request waits for. Must not know what either thread does.
"""

import asyncio
import selectors
from collections.abc import Callable
from time import sleep, thread_time
from typing import Any

SHARE = 2.0
"""So many times as long as it worked the worker rests, for each request in hand: its work costs the database as much
again."""
SHARE_MAX = 20.0
REST_S_MIN = 0.001
"""Less is saved up until it is worth a rest."""
REST_S_MAX = 0.02


class InHand:
    """How many requests are being answered. Changed by the API's thread, read by the other one."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def share(self) -> float:
        """How many times as long as it worked the worker rests now."""
        return min(self.count * SHARE, SHARE_MAX)


def considerate_loop(
    in_hand: InHand, *, worked_s: Callable[[], float] = thread_time
) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes an event loop that rests while requests are in hand. `worked_s`: what its thread has worked so far."""
    return lambda: asyncio.SelectorEventLoop(_Considerate(in_hand, worked_s))


class _Considerate(selectors.DefaultSelector):
    """Rests before it looks what there is to do: what comes meanwhile is done in the same turn."""

    def __init__(self, in_hand: InHand, worked_s: Callable[[], float]) -> None:
        super().__init__()
        self._in_hand = in_hand
        self._worked_s = worked_s
        self._seen_s = 0.0
        self._owed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        worked_s = self._worked_s()
        share = self._in_hand.share
        self._owed_s = self._owed_s + (worked_s - self._seen_s) * share if share else 0.0
        self._seen_s = worked_s
        if self._owed_s >= REST_S_MIN:
            rest_s = min(self._owed_s, REST_S_MAX)
            self._owed_s = 0.0
            sleep(rest_s)
            timeout = None if timeout is None else max(0.0, timeout - rest_s)
        return super().select(timeout)
