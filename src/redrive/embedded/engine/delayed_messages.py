"""Delayed messages of a quorum queue: 4.3's delayed retry.

They become ready in the order of their moments, and at one moment by age; but the first that was delayed until the
earliest moment comes first, whatever its age (4.3.6 keeps that one apart).
"""

import heapq
from collections.abc import Iterator
from typing import TypeAlias

from redrive.embedded.engine.messages import QueueEntry
from redrive.embedded.engine.timers import NEVER

_Item: TypeAlias = tuple[int, int, QueueEntry]


class DelayedMessages:
    """The delayed messages of one queue."""

    __slots__ = ("_heap", "_next")

    def __init__(self) -> None:
        self._heap: list[_Item] = []
        self._next: _Item | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[QueueEntry]:
        return (entry for _, _, entry in self._heap)

    @property
    def next_ms(self) -> int:
        """When the next one is due."""
        return NEVER if self._next is None else self._next[0]

    @property
    def last_ms(self) -> int:
        """When the last one is due."""
        return max((ready_ms for ready_ms, _, _ in self._heap), default=NEVER)

    def add(self, ready_ms: int, entry: QueueEntry) -> None:
        """Keep a message until then."""
        item = (ready_ms, entry.sequence, entry)
        heapq.heappush(self._heap, item)
        if self._next is None or ready_ms < self._next[0]:
            self._next = item

    def pop(self) -> QueueEntry:
        """Take the next one."""
        item = self._next
        assert item is not None
        if self._heap[0] is item:
            heapq.heappop(self._heap)
        else:
            self._heap.remove(item)
            heapq.heapify(self._heap)
        self._next = self._heap[0] if self._heap else None
        return item[2]

    def clear(self) -> None:
        """Forget them all."""
        self._heap.clear()
        self._next = None
