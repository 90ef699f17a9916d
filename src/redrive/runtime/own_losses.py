"""Connections that this process lost itself, and lives: whose fault that was.

What was in hand comes again, marked as redelivered, as after a death. Most often nobody has died and no message is to
blame: the line, the broker. But a handler that holds up the event loop for longer than the broker waits for a heartbeat
loses the connection each time it runs, and if nobody counted that it would run for ever. So a message that was seen to
hold up the loop (`loop_watch`) is charged with a death of its own, and everything else that was in hand is forgiven:
up to `FORGIVEN_MAX` times for one message, for what holds up the loop unseen.
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


class OwnFault(Enum):
    """What a message has to do with the loss it comes back from."""

    NONE = "none"
    MAYBE = "maybe"
    """It was in hand at too many of them."""
    ITS_OWN = "its own"
    """It held up the event loop."""


class OwnLosses:
    """One of these for each process. `blame` may be called from any thread."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.alone: Delivery | None = None
        """What runs alone now."""
        self._now_s = now_s
        self._blamed: dict[bytes, float] = {}
        self._forgiven: OrderedDict[bytes, int] = OrderedDict()
        self._ran_alone: OrderedDict[bytes, None] = OrderedDict()

    def begin_alone(self, key: bytes, delivery: Delivery) -> None:
        """A delivery runs alone from now on."""
        self.alone = delivery
        self._ran_alone[key] = None
        while len(self._ran_alone) > _REMEMBERED_MAX:
            self._ran_alone.popitem(last=False)

    def has_run_alone(self, key: bytes) -> bool:
        """Whether a message has begun a run alone in this process; told once. If it comes again though the process
        lives and has lost no line, it took longer than the broker waits."""
        if key not in self._ran_alone:
            return False
        del self._ran_alone[key]
        return True

    def blame(self, delivery: Delivery) -> None:
        """It holds up the event loop for longer than connections may last."""
        self._blamed[delivery_key(delivery.queue, delivery)] = self._now_s()

    def judge(self, queue: str, delivery: Delivery) -> OwnFault:
        """For a message that comes back after a loss of our own. Counts, if it is forgiven."""
        key = delivery_key(queue, delivery)
        blamed_s = self._blamed.pop(key, None)
        if blamed_s is not None and self._now_s() - blamed_s < _BLAMED_S:
            return OwnFault.ITS_OWN
        times = self._forgiven.pop(key, 0) + 1
        self._forgiven[key] = times
        while len(self._forgiven) > _REMEMBERED_MAX:
            self._forgiven.popitem(last=False)
        return OwnFault.NONE if times <= FORGIVEN_MAX else OwnFault.MAYBE
