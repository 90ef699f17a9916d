"""Which consumer gets the next message: by priority, then round robin, as long as its prefetch has room.

An eligible consumer is in the ring of its priority. One without room leaves the ring when its turn comes and is
blocked; it joins the end of the ring when it has room again, so that a delivery never searches. Consumers of one
channel that are blocked by its shared prefetch come back in the order in which they left: each has its turn.
"""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redrive.embedded.engine.amqp_values import is_integer

if TYPE_CHECKING:
    from redrive.embedded.engine.channel_base import ChannelBase
    from redrive.embedded.engine.queues import Queue


QUORUM_LIMIT = 2_000
"""How a quorum queue reads a prefetch of 0 (measured on all three)."""


class Consumer:
    """A subscription. `prefetch` 0 is no limit; a later consumer has a higher `number`."""

    __slots__ = (
        "channel",
        "exclusive",
        "is_eligible",
        "limit",
        "no_ack",
        "number",
        "prefetch",
        "priority",
        "queue",
        "tag",
        "timed_out",
        "timeout_ms",
        "unacked_count",
    )

    def __init__(
        self,
        channel: "ChannelBase",
        queue: "Queue",
        tag: str,
        *,
        no_ack: bool,
        exclusive: bool,
        number: int,
        arguments: Mapping[str, Any],
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch = channel.prefetch
        self.number = number
        self.priority = int(arguments.get("x-priority", 0))
        self.limit = QUORUM_LIMIT if queue.is_quorum and prefetch == 0 else prefetch
        self.timeout_ms = queue.consumer_timeout_ms
        if queue.is_quorum and not queue.engine.profile.timeout_closes_channel:
            own_ms = arguments.get("x-consumer-timeout")
            self.timeout_ms = int(own_ms) if own_ms is not None and is_integer(own_ms) else self.timeout_ms
        self.timed_out = 0
        self.unacked_count = 0
        self.is_eligible = False

    def has_room(self) -> bool:
        """Whether a message may be delivered to it now.

        A consumer without acknowledgements uses nothing of the channel's shared prefetch, but waits while others have
        used it up (3.10 and 4.0).
        """
        return self.has_room_of_its_own() and (self.channel.shared_prefetch == 0 or not self.channel.is_full)

    def has_room_of_its_own(self) -> bool:
        """The same, without the channel's shared prefetch."""
        channel = self.channel
        if channel.paused or self.timed_out:
            return False
        if self.no_ack:
            return True
        return not (self.limit and self.unacked_count >= self.limit)


class Consumers:
    """The consumers of one queue. With `single_active` one gets all messages until it is cancelled, then the next."""

    __slots__ = ("_rings", "_waiting", "active", "all", "single_active")

    def __init__(self, single_active: bool) -> None:
        self.single_active = single_active
        self.active: Consumer | None = None
        self.all: list[Consumer] = []
        self._rings: list[tuple[int, deque[Consumer]]] = []
        self._waiting: dict[Consumer, None] = {}

    def __len__(self) -> int:
        return len(self.all)

    def add(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self.all.append(consumer)
        if self.single_active and self.active is None:
            self.active = consumer
        self.make_eligible(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer."""
        self.all.remove(consumer)
        if consumer.is_eligible:
            self._ring(consumer.priority).remove(consumer)
            consumer.is_eligible = False
        self._waiting.pop(consumer, None)
        if self.active is consumer:
            self.active = max(self.all, key=lambda one: one.priority) if self.all else None

    def make_eligible(self, consumer: Consumer) -> None:
        """It has room: put it at the end of its ring, unless it is in there."""
        if not consumer.is_eligible:
            consumer.is_eligible = True
            self._waiting.pop(consumer, None)
            self._ring(consumer.priority).append(consumer)

    def unblock_channel(self, channel: "ChannelBase") -> None:
        """There is room on the channel: those of its consumers that waited for it stand, the first to leave first."""
        for consumer in list(self._waiting):
            if consumer.channel is channel and consumer.has_room_of_its_own():
                self.make_eligible(consumer)

    def take(self) -> Consumer | None:
        """The consumer whose turn it is; None if none has room."""
        if self.single_active:
            active = self.active
            if active is None or active.has_room():
                return active
            active.channel.note_blocked_queue(active.queue)
            return None
        for _, ring in self._rings:
            while ring:
                consumer = ring[0]
                if consumer.has_room():
                    if len(ring) > 1:
                        ring.rotate(-1)
                    return consumer
                ring.popleft()
                consumer.is_eligible = False
                self._waiting[consumer] = None
                consumer.channel.note_blocked_queue(consumer.queue)
        return None

    def _ring(self, priority: int) -> deque[Consumer]:
        for known, ring in self._rings:
            if known == priority:
                return ring
        fresh: deque[Consumer] = deque()
        self._rings.append((priority, fresh))
        self._rings.sort(key=lambda pair: -pair[0])
        return fresh
