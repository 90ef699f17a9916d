"""Connections that this living process has lost, and which message caused it.

Deliveries that were not settled come again, marked as redelivered, as after a crash. Most often no message is at fault:
the network or the broker is. But a handler that blocks the event loop for longer than the broker waits for a heartbeat
loses the connection each time it runs, and if nobody counted that it would run for ever. So a message that was seen to
block the loop (`loop_watch`) is charged with a crash of its own. All other unsettled deliveries are forgiven, up to
`FORGIVEN_MAX` times for one message, in case it blocks the loop unseen.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum

from redrive.client import Delivery
from redrive.runtime.run_records import delivery_key

FORGIVEN_MAX = 10
_REMEMBERED_MAX = 10_000
_BLAMED_S = 600.0


class LossFault(Enum):
    """Whether a message caused the loss after which it comes again."""

    NONE = "none"
    MAYBE = "maybe"
    """It was unsettled at too many losses."""
    ITS_OWN = "its own"
    """It blocked the event loop."""


class ConnectionLosses:
    """The losses of one process. `blame` may be called from any thread."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._exclusive: Delivery | None = None
        self._now_s = now_s
        self._blamed: dict[bytes, float] = {}
        self._forgiven: OrderedDict[bytes, int] = OrderedDict()
        self._ran_exclusively: OrderedDict[bytes, None] = OrderedDict()

    @property
    def exclusive(self) -> Delivery | None:
        """The delivery that has an exclusive run now."""
        return self._exclusive

    def begin_exclusive(self, key: bytes, delivery: Delivery) -> None:
        """An exclusive run begins."""
        self._exclusive = delivery
        self._ran_exclusively[key] = None
        while len(self._ran_exclusively) > _REMEMBERED_MAX:
            self._ran_exclusively.popitem(last=False)

    def end_exclusive(self) -> None:
        """The exclusive run has ended."""
        self._exclusive = None

    def has_run_exclusively(self, key: bytes) -> bool:
        """Whether a message has begun an exclusive run in this process; forgotten once asked. If it comes again though
        the process lives and has lost no connection, it took longer than the consumer timeout."""
        if key not in self._ran_exclusively:
            return False
        del self._ran_exclusively[key]
        return True

    def blame(self, delivery: Delivery) -> None:
        """Its handler blocks the event loop for longer than the connection survives."""
        self._blamed[delivery_key(delivery.queue, delivery)] = self._now_s()

    def judge(self, queue: str, delivery: Delivery) -> LossFault:
        """Judges a message that comes again after a loss. Counts how often it is forgiven."""
        key = delivery_key(queue, delivery)
        blamed_s = self._blamed.pop(key, None)
        if blamed_s is not None and self._now_s() - blamed_s < _BLAMED_S:
            return LossFault.ITS_OWN
        times = self._forgiven.pop(key, 0) + 1
        self._forgiven[key] = times
        while len(self._forgiven) > _REMEMBERED_MAX:
            self._forgiven.popitem(last=False)
        return LossFault.NONE if times <= FORGIVEN_MAX else LossFault.MAYBE
