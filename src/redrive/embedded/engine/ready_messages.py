"""The ready messages of a queue, in the order in which it delivers them: one class for each kind of queue.

All of them answer in constant time or a heap's logarithm, however long the queue is. `peek` and `pop` are the head,
`append` is the end, `requeue` puts a requeued message where this kind of queue does.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from redrive.embedded.engine.messages import QueueEntry
from redrive.embedded.engine.profiles import Profile, QuorumPriorities
from redrive.embedded.engine.queue_settings import QUORUM, QueueSettings
from redrive.embedded.engine.timers import NEVER

QUORUM_PRIORITY_DEFAULT = 4
QUORUM_PRIORITY_MAX = 31
_ROUND = 3


class ReadyMessages(Protocol):
    """The ready messages of a queue."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[QueueEntry]: ...

    def append(self, entry: QueueEntry) -> None:
        """Put a message at the end."""

    def requeue(self, entry: QueueEntry) -> None:
        """Put back a message that was delivered."""

    def peek(self) -> QueueEntry | None:
        """The head."""

    def pop(self) -> QueueEntry:
        """Take the head."""

    def first_to_expire(self) -> QueueEntry | None:
        """The message whose deadline is looked at: the head, in most orders."""

    def pop_first_to_expire(self) -> QueueEntry:
        """Take that one."""

    def clear(self) -> None:
        """Forget everything."""


class _HeadExpires(ABC):
    """Only the head expires."""

    __slots__ = ()

    @abstractmethod
    def peek(self) -> QueueEntry | None:
        """The head."""

    @abstractmethod
    def pop(self) -> QueueEntry:
        """Take the head."""

    def first_to_expire(self) -> QueueEntry | None:
        """The head."""
        return self.peek()

    def pop_first_to_expire(self) -> QueueEntry:
        """Take the head."""
        return self.pop()


class ClassicOrder(_HeadExpires):
    """First in, first out; a requeued message goes to its original place."""

    __slots__ = ("_fresh", "_requeued")

    def __init__(self) -> None:
        self._fresh: deque[QueueEntry] = deque()
        # All of these were delivered before the head of `_fresh` was, so the whole heap goes first.
        self._requeued: list[QueueEntry] = []

    def __len__(self) -> int:
        return len(self._fresh) + len(self._requeued)

    def __iter__(self) -> Iterator[QueueEntry]:
        yield from sorted(self._requeued)
        yield from self._fresh

    def append(self, entry: QueueEntry) -> None:
        """Put a message at the end."""
        self._fresh.append(entry)

    def requeue(self, entry: QueueEntry) -> None:
        """Back to its original place."""
        heapq.heappush(self._requeued, entry)

    def peek(self) -> QueueEntry | None:
        """The head."""
        if self._requeued:
            return self._requeued[0]
        return self._fresh[0] if self._fresh else None

    def pop(self) -> QueueEntry:
        """Take the head."""
        if self._requeued:
            return heapq.heappop(self._requeued)
        return self._fresh.popleft()

    def clear(self) -> None:
        """Forget everything."""
        self._fresh.clear()
        self._requeued.clear()


class ClassicPriorityOrder(_HeadExpires):
    """x-max-priority: a classic queue for each priority in use, the highest first; the head is the highest's."""

    __slots__ = ("_by_priority", "_count", "_highest_first", "_max")

    def __init__(self, priority_max: int) -> None:
        self._max = priority_max
        self._by_priority: dict[int, ClassicOrder] = {}
        self._highest_first: list[ClassicOrder] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[QueueEntry]:
        for one in self._highest_first:
            yield from one

    def append(self, entry: QueueEntry) -> None:
        """At the end of its priority."""
        self._of(entry).append(entry)
        self._count += 1

    def requeue(self, entry: QueueEntry) -> None:
        """Back to its place in its priority."""
        self._of(entry).requeue(entry)
        self._count += 1

    def peek(self) -> QueueEntry | None:
        """The head of the highest priority."""
        return next((one.peek() for one in self._highest_first if one), None)

    def pop(self) -> QueueEntry:
        """Take the head of the highest priority."""
        self._count -= 1
        return next(one for one in self._highest_first if one).pop()

    def clear(self) -> None:
        """Forget everything."""
        self._by_priority.clear()
        self._highest_first.clear()
        self._count = 0

    def _of(self, entry: QueueEntry) -> ClassicOrder:
        priority = min(entry.message.priority or 0, self._max)
        found = self._by_priority.get(priority)
        if found is None:
            found = self._by_priority[priority] = ClassicOrder()
            self._highest_first = [self._by_priority[each] for each in sorted(self._by_priority, reverse=True)]
        return found


class QuorumOrder(_HeadExpires):
    """First in, first out; requeued messages go before all others, in the order in which they were requeued."""

    __slots__ = ("_fresh", "_requeued")

    def __init__(self) -> None:
        self._fresh: deque[QueueEntry] = deque()
        self._requeued: deque[QueueEntry] = deque()

    def __len__(self) -> int:
        return len(self._fresh) + len(self._requeued)

    def __iter__(self) -> Iterator[QueueEntry]:
        yield from self._requeued
        yield from self._fresh

    def append(self, entry: QueueEntry) -> None:
        """Put a message at the end."""
        self._fresh.append(entry)

    def requeue(self, entry: QueueEntry) -> None:
        """To the end of the requeued messages."""
        self._requeued.append(entry)

    def peek(self) -> QueueEntry | None:
        """The head."""
        if self._requeued:
            return self._requeued[0]
        return self._fresh[0] if self._fresh else None

    def pop(self) -> QueueEntry:
        """Take the head."""
        return self._requeued.popleft() if self._requeued else self._fresh.popleft()

    def clear(self) -> None:
        """Forget everything."""
        self._fresh.clear()
        self._requeued.clear()


class QuorumTwoToOneOrder(_HeadExpires):
    """4.0: two of high priority (above 4), then one of the others; requeued messages before both.

    It is every third read that prefers the others, whatever the reads before it found, and only if the other has
    waited longer.
    """

    __slots__ = ("_high", "_low", "_reads", "_requeued")

    def __init__(self) -> None:
        self._requeued: deque[QueueEntry] = deque()
        self._high: deque[QueueEntry] = deque()
        self._low: deque[QueueEntry] = deque()
        self._reads = 0

    def __len__(self) -> int:
        return len(self._requeued) + len(self._high) + len(self._low)

    def __iter__(self) -> Iterator[QueueEntry]:
        yield from self._requeued
        yield from self._high
        yield from self._low

    def append(self, entry: QueueEntry) -> None:
        """At the end of its half."""
        priority = entry.message.priority
        (self._high if priority is not None and priority > QUORUM_PRIORITY_DEFAULT else self._low).append(entry)

    def requeue(self, entry: QueueEntry) -> None:
        """To the end of the requeued messages."""
        self._requeued.append(entry)

    def peek(self) -> QueueEntry | None:
        """The head."""
        source = self._source()
        return source[0] if source else None

    def pop(self) -> QueueEntry:
        """Take the head."""
        source = self._source()
        if source is not self._requeued:
            self._reads = (self._reads + 1) % _ROUND
        return source.popleft()

    def clear(self) -> None:
        """Forget everything, the reads too."""
        self._requeued.clear()
        self._high.clear()
        self._low.clear()
        self._reads = 0

    def _source(self) -> deque[QueueEntry]:
        if self._requeued:
            return self._requeued
        high, low = self._high, self._low
        if not low:
            return high
        if high and (self._reads < _ROUND - 1 or high[0].sequence < low[0].sequence):
            return high
        return low


class QuorumStrictOrder:
    """4.3: 32 priorities, the highest first, 4 where a message has none; requeued messages before all.

    Each priority has a head of its own, and each of them expires.
    """

    __slots__ = ("_by_priority", "_count", "_levels", "_requeued")

    def __init__(self) -> None:
        self._requeued: deque[QueueEntry] = deque()
        self._by_priority: dict[int, deque[QueueEntry]] = {}
        self._levels: list[deque[QueueEntry]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._requeued) + self._count

    def __iter__(self) -> Iterator[QueueEntry]:
        yield from self._requeued
        for level in self._levels:
            yield from level

    def append(self, entry: QueueEntry) -> None:
        """At the end of its priority."""
        priority = entry.message.priority
        level = QUORUM_PRIORITY_DEFAULT if priority is None else min(priority, QUORUM_PRIORITY_MAX)
        found = self._by_priority.get(level)
        if found is None:
            found = self._by_priority[level] = deque()
            self._levels = [self._by_priority[each] for each in sorted(self._by_priority, reverse=True)]
        found.append(entry)
        self._count += 1

    def requeue(self, entry: QueueEntry) -> None:
        """To the end of the requeued messages."""
        self._requeued.append(entry)

    def peek(self) -> QueueEntry | None:
        """The head."""
        if self._requeued:
            return self._requeued[0]
        return next((level[0] for level in self._levels if level), None)

    def pop(self) -> QueueEntry:
        """Take the head."""
        if self._requeued:
            return self._requeued.popleft()
        self._count -= 1
        return next(level for level in self._levels if level).popleft()

    @property
    def requeued(self) -> int:
        """How many requeued messages are ready."""
        return len(self._requeued)

    def count_by_priority(self) -> dict[int, int]:
        """How many wait in each priority, without requeued messages; the lowest first."""
        return {level: len(self._by_priority[level]) for level in sorted(self._by_priority) if self._by_priority[level]}

    def first_to_expire(self) -> QueueEntry | None:
        """Of all heads the one whose time is up first; a head without a deadline holds up its own priority only."""
        source = self._expiring()
        return None if source is None else source[0]

    def pop_first_to_expire(self) -> QueueEntry:
        """Take that one."""
        source = self._expiring()
        assert source is not None
        if source is not self._requeued:
            self._count -= 1
        return source.popleft()

    def clear(self) -> None:
        """Forget everything."""
        self._requeued.clear()
        for level in self._levels:
            level.clear()
        self._count = 0

    def _expiring(self) -> deque[QueueEntry] | None:
        first: deque[QueueEntry] | None = None
        first_ms = NEVER
        for source in (self._requeued, *self._levels):
            deadline_ms = source[0].deadline_ms if source else None
            if deadline_ms is not None and deadline_ms < first_ms:
                first, first_ms = source, deadline_ms
        return first


def order_of(settings: QueueSettings, profile: Profile) -> ReadyMessages:
    """The order that a queue with these settings keeps."""
    if settings.kind != QUORUM:
        return ClassicOrder() if settings.priority_max is None else ClassicPriorityOrder(settings.priority_max)
    match profile.quorum_priorities:
        case QuorumPriorities.NONE:
            return QuorumOrder()
        case QuorumPriorities.TWO_TO_ONE:
            return QuorumTwoToOneOrder()
        case QuorumPriorities.STRICT:
            return QuorumStrictOrder()
