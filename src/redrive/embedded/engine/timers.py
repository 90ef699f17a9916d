"""Deadlines: what is due next, in virtual time.

A heap with lazy deletion. The owner of a timer checks, when it fires, whether there is still something to do: a queue
whose head has changed finds nothing expired and sets the next timer. Two timers of one moment fire in the order in
which they were set.
"""

import heapq
from typing import Protocol

NEVER = 1 << 62
"""A moment that does not come."""


class TimerOwner(Protocol):
    """An object that a timer can wake."""

    def wake(self, now_ms: int) -> None:
        """The timer fires; there may be nothing left to do."""


class Timers:
    """Timers by moment."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerOwner]] = []
        self._count = 0

    def set(self, at_ms: int, owner: TimerOwner) -> None:
        """Wake the owner at that moment, or as soon after it as the engine learns the time."""
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, owner))

    @property
    def next_ms(self) -> int | None:
        """The next moment at which something may be due."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> tuple[int, TimerOwner] | None:
        """Take out the earliest timer that is due."""
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        at_ms, _, owner = heapq.heappop(self._heap)
        return at_ms, owner
