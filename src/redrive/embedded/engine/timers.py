"""Deadlines: what is due next, in virtual time.

A heap with lazy deletion. Whoever sets an alarm checks, when it rings, whether there is still something to do: a queue
whose head has changed finds nothing expired and sets the next alarm. Two alarms of one moment ring in the order they
were set.
"""

import heapq
from typing import Protocol

NEVER = 1 << 62
"""A moment that does not come."""


class Sleeper(Protocol):
    """Who can be woken."""

    def wake(self, now_ms: int) -> None:
        """The moment has come; it may have come for nothing."""


class Timers:
    """Alarms by moment."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sleeper]] = []
        self._count = 0

    def set(self, at_ms: int, sleeper: Sleeper) -> None:
        """Wake the sleeper at that moment, or as soon after it as time is told."""
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, sleeper))

    @property
    def next_ms(self) -> int | None:
        """The next moment at which something may be due."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> tuple[int, Sleeper] | None:
        """The earliest alarm that is due, taken out."""
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        at_ms, _, sleeper = heapq.heappop(self._heap)
        return at_ms, sleeper
