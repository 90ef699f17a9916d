"""max-length and max-length-bytes: when a queue is full, and which publishers it refuses.

A classic queue refuses the message that would make it too long. A quorum queue takes that one too, then refuses every
publisher it knows until it has drained to four fifths of its length (its soft limit); a publisher that it does not know
yet is admitted even then, unless the queue is over its limit.
"""

from typing import TYPE_CHECKING

from redrive.embedded.engine.messages import Message
from redrive.embedded.engine.queue_settings import DROP_HEAD, QueueSettings

if TYPE_CHECKING:
    from redrive.embedded.engine.queues import Queue

_SOFT_LIMIT = 0.8


class LengthLimits:
    """One queue's limits; `bounded` if it has any, `refusing` if it refuses publishers rather than drop its head."""

    __slots__ = ("_blocked", "_bytes_max", "_known", "_length_max", "_quorum", "bounded", "refusing")

    def __init__(self, settings: QueueSettings, quorum: bool) -> None:
        self._length_max = settings.length_max
        self._bytes_max = settings.bytes_max
        self._quorum = quorum
        self.bounded = settings.length_max is not None or settings.bytes_max is not None
        self.refusing = self.bounded and settings.overflow != DROP_HEAD
        self._known: set[int] = set()
        self._blocked: set[int] = set()

    def is_over(self, queue: "Queue") -> bool:
        """Whether the queue holds more than it may. Unacked messages don't count, delayed and held ones do."""
        if self._length_max is not None and _length(queue) > self._length_max:
            return True
        return self._bytes_max is not None and queue.ready_bytes > self._bytes_max

    def admit(self, queue: "Queue", message: Message, publisher: object | None) -> bool:
        """Whether a queue that refuses takes one more message of this publisher."""
        if not self._quorum:
            too_long = self._length_max is not None and len(queue.ready) >= self._length_max
            size = queue.size_of(message)
            return not too_long and (self._bytes_max is None or queue.ready_bytes + size <= self._bytes_max)
        if publisher is None:
            return True  # at-most-once dead letters have no publisher that could be refused
        if id(publisher) not in self._known:
            self._known.add(id(publisher))
            if self.is_over(queue):
                self._blocked.add(id(publisher))
        return id(publisher) not in self._blocked

    def update(self, queue: "Queue") -> None:
        """The queue's length has changed."""
        if not self.refusing or not self._quorum:
            return
        if self.is_over(queue):
            self._blocked |= self._known
        elif self._blocked and self._is_low(queue):
            self._blocked.clear()

    def _is_low(self, queue: "Queue") -> bool:
        if self._length_max is not None and _length(queue) > int(self._length_max * _SOFT_LIMIT):
            return False
        return self._bytes_max is None or queue.ready_bytes <= int(self._bytes_max * _SOFT_LIMIT)


def _length(queue: "Queue") -> int:
    return len(queue.ready) + len(queue.delayed) + queue.held_count
