"""The order in which a queue gives its messages out: one class for each kind of queue.

All of them answer in constant time or a heap's logarithm, however long the queue is. `peek` and `pop` are the head,
`append` is the end, `give_back` is where this kind of queue puts what a consumer returned.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from redrive.embedded.engine.messages import Entry
from redrive.embedded.engine.profiles import Profile, QuorumPriorities
from redrive.embedded.engine.settings import QUORUM, Settings
from redrive.embedded.engine.timers import NEVER

QUORUM_PRIORITY_DEFAULT = 4
QUORUM_PRIORITY_MAX = 31
_ROUND = 3


class Ready(Protocol):
    """The ready messages of a queue."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Entry]: ...

    def append(self, entry: Entry) -> None:
        """Put a message at the end."""

    def give_back(self, entry: Entry) -> None:
        """Put a message back that was out."""

    def peek(self) -> Entry | None:
        """The head."""

    def pop(self) -> Entry:
        """Take the head."""

    def first_to_expire(self) -> Entry | None:
        """The message whose deadline is looked at: the head, in most orders."""

    def pop_first_to_expire(self) -> Entry:
        """Take that one."""

    def clear(self) -> None:
        """Forget everything."""


class _HeadExpires(ABC):
    """Only the head expires."""

    __slots__ = ()

    @abstractmethod
    def peek(self) -> Entry | None:
        """The head."""

    @abstractmethod
    def pop(self) -> Entry:
        """Take the head."""

    def first_to_expire(self) -> Entry | None:
        """The head."""
        return self.peek()

    def pop_first_to_expire(self) -> Entry:
        """Take the head."""
        return self.pop()


class Classic(_HeadExpires):
    """First in, first out; what comes back returns to its original place."""

    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[Entry] = deque()
        # All of these were given out before the head of `_fresh` was, so the whole heap goes first.
        self._returned: list[Entry] = []

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned)

    def __iter__(self) -> Iterator[Entry]:
        yield from sorted(self._returned)
        yield from self._fresh

    def append(self, entry: Entry) -> None:
        """Put a message at the end."""
        self._fresh.append(entry)

    def give_back(self, entry: Entry) -> None:
        """Back to its original place."""
        heapq.heappush(self._returned, entry)

    def peek(self) -> Entry | None:
        """The head."""
        if self._returned:
            return self._returned[0]
        return self._fresh[0] if self._fresh else None

    def pop(self) -> Entry:
        """Take the head."""
        if self._returned:
            return heapq.heappop(self._returned)
        return self._fresh.popleft()

    def clear(self) -> None:
        """Forget everything."""
        self._fresh.clear()
        self._returned.clear()


class ClassicPriorities(_HeadExpires):
    """x-max-priority: a classic queue for each priority in use, the highest first; the head is the highest's."""

    __slots__ = ("_by_priority", "_count", "_highest_first", "_max")

    def __init__(self, priority_max: int) -> None:
        self._max = priority_max
        self._by_priority: dict[int, Classic] = {}
        self._highest_first: list[Classic] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for one in self._highest_first:
            yield from one

    def append(self, entry: Entry) -> None:
        """At the end of its priority."""
        self._of(entry).append(entry)
        self._count += 1

    def give_back(self, entry: Entry) -> None:
        """Back to its place in its priority."""
        self._of(entry).give_back(entry)
        self._count += 1

    def peek(self) -> Entry | None:
        """The head of the highest priority."""
        return next((one.peek() for one in self._highest_first if one), None)

    def pop(self) -> Entry:
        """Take the head of the highest priority."""
        self._count -= 1
        return next(one for one in self._highest_first if one).pop()

    def clear(self) -> None:
        """Forget everything."""
        self._by_priority.clear()
        self._highest_first.clear()
        self._count = 0

    def _of(self, entry: Entry) -> Classic:
        priority = min(entry.message.priority or 0, self._max)
        found = self._by_priority.get(priority)
        if found is None:
            found = self._by_priority[priority] = Classic()
            self._highest_first = [self._by_priority[each] for each in sorted(self._by_priority, reverse=True)]
        return found


class Quorum(_HeadExpires):
    """First in, first out; what comes back goes before all that was never out, in the order in which it came back."""

    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[Entry] = deque()
        self._returned: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned)

    def __iter__(self) -> Iterator[Entry]:
        yield from self._returned
        yield from self._fresh

    def append(self, entry: Entry) -> None:
        """Put a message at the end."""
        self._fresh.append(entry)

    def give_back(self, entry: Entry) -> None:
        """To the end of what came back."""
        self._returned.append(entry)

    def peek(self) -> Entry | None:
        """The head."""
        if self._returned:
            return self._returned[0]
        return self._fresh[0] if self._fresh else None

    def pop(self) -> Entry:
        """Take the head."""
        return self._returned.popleft() if self._returned else self._fresh.popleft()

    def clear(self) -> None:
        """Forget everything."""
        self._fresh.clear()
        self._returned.clear()


class QuorumTwoToOne(_HeadExpires):
    """4.0: two of high priority (above 4), then one of the others; what came back before both.

    It is every third read that prefers the others, whatever the reads before it found, and only if the other has
    waited longer.
    """

    __slots__ = ("_high", "_low", "_reads", "_returned")

    def __init__(self) -> None:
        self._returned: deque[Entry] = deque()
        self._high: deque[Entry] = deque()
        self._low: deque[Entry] = deque()
        self._reads = 0

    def __len__(self) -> int:
        return len(self._returned) + len(self._high) + len(self._low)

    def __iter__(self) -> Iterator[Entry]:
        yield from self._returned
        yield from self._high
        yield from self._low

    def append(self, entry: Entry) -> None:
        """At the end of its half."""
        priority = entry.message.priority
        (self._high if priority is not None and priority > QUORUM_PRIORITY_DEFAULT else self._low).append(entry)

    def give_back(self, entry: Entry) -> None:
        """To the end of what came back."""
        self._returned.append(entry)

    def peek(self) -> Entry | None:
        """The head."""
        source = self._source()
        return source[0] if source else None

    def pop(self) -> Entry:
        """Take the head."""
        source = self._source()
        if source is not self._returned:
            self._reads = (self._reads + 1) % _ROUND
        return source.popleft()

    def clear(self) -> None:
        """Forget everything, the reads too."""
        self._returned.clear()
        self._high.clear()
        self._low.clear()
        self._reads = 0

    def _source(self) -> deque[Entry]:
        if self._returned:
            return self._returned
        high, low = self._high, self._low
        if not low:
            return high
        if high and (self._reads < _ROUND - 1 or high[0].sequence < low[0].sequence):
            return high
        return low


class QuorumStrict:
    """4.3: 32 priorities, the highest first, 4 where a message has none; what came back before all.

    Each priority has a head of its own, and each of them expires.
    """

    __slots__ = ("_by_priority", "_count", "_levels", "_returned")

    def __init__(self) -> None:
        self._returned: deque[Entry] = deque()
        self._by_priority: dict[int, deque[Entry]] = {}
        self._levels: list[deque[Entry]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._returned) + self._count

    def __iter__(self) -> Iterator[Entry]:
        yield from self._returned
        for level in self._levels:
            yield from level

    def append(self, entry: Entry) -> None:
        """At the end of its priority."""
        priority = entry.message.priority
        level = QUORUM_PRIORITY_DEFAULT if priority is None else min(priority, QUORUM_PRIORITY_MAX)
        found = self._by_priority.get(level)
        if found is None:
            found = self._by_priority[level] = deque()
            self._levels = [self._by_priority[each] for each in sorted(self._by_priority, reverse=True)]
        found.append(entry)
        self._count += 1

    def give_back(self, entry: Entry) -> None:
        """To the end of what came back."""
        self._returned.append(entry)

    def peek(self) -> Entry | None:
        """The head."""
        if self._returned:
            return self._returned[0]
        return next((level[0] for level in self._levels if level), None)

    def pop(self) -> Entry:
        """Take the head."""
        if self._returned:
            return self._returned.popleft()
        self._count -= 1
        return next(level for level in self._levels if level).popleft()

    @property
    def returned(self) -> int:
        """How many came back and wait to be given out again."""
        return len(self._returned)

    def count_by_priority(self) -> dict[int, int]:
        """How many wait in each priority, apart from what came back; the lowest first."""
        return {level: len(self._by_priority[level]) for level in sorted(self._by_priority) if self._by_priority[level]}

    def first_to_expire(self) -> Entry | None:
        """Of all heads the one whose time is up first; a head without a deadline holds up its own priority only."""
        source = self._expiring()
        return None if source is None else source[0]

    def pop_first_to_expire(self) -> Entry:
        """Take that one."""
        source = self._expiring()
        assert source is not None
        if source is not self._returned:
            self._count -= 1
        return source.popleft()

    def clear(self) -> None:
        """Forget everything."""
        self._returned.clear()
        for level in self._levels:
            level.clear()
        self._count = 0

    def _expiring(self) -> deque[Entry] | None:
        first: deque[Entry] | None = None
        first_ms = NEVER
        for source in (self._returned, *self._levels):
            deadline_ms = source[0].deadline_ms if source else None
            if deadline_ms is not None and deadline_ms < first_ms:
                first, first_ms = source, deadline_ms
        return first


def order_of(settings: Settings, profile: Profile) -> Ready:
    """The order that a queue with these settings keeps."""
    if settings.kind != QUORUM:
        return Classic() if settings.priority_max is None else ClassicPriorities(settings.priority_max)
    match profile.quorum_priorities:
        case QuorumPriorities.NONE:
            return Quorum()
        case QuorumPriorities.TWO_TO_ONE:
            return QuorumTwoToOne()
        case QuorumPriorities.STRICT:
            return QuorumStrict()
