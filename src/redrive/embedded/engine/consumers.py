"""Who gets the next message: consumers by priority, then in turn, as long as they have room for one.

A consumer stands in its priority's ring while it may take messages. One without room leaves the ring when its turn
comes and waits; it is put at the end of the ring when it has room again, so that giving out a message never searches.
Those of one channel that all wait for its shared prefetch come back in the order in which they left: each has its turn.
"""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redrive.embedded.engine.amqp_values import is_integer

if TYPE_CHECKING:
    from redrive.embedded.engine.channel_state import ChannelState
    from redrive.embedded.engine.queues import Queue


QUORUM_LIMIT = 2_000
"""What a quorum queue takes a prefetch of 0 for (measured on all three)."""


class Consumer:
    """A subscription. `in_hand` counts its unsettled messages; `prefetch` 0 is no limit; younger, higher `number`."""

    __slots__ = (
        "channel",
        "exclusive",
        "in_hand",
        "limit",
        "no_ack",
        "number",
        "prefetch",
        "priority",
        "queue",
        "released",
        "standing",
        "tag",
        "timeout_ms",
    )

    def __init__(
        self,
        channel: "ChannelState",
        queue: "Queue",
        tag: str,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        number: int,
        arguments: Mapping[str, Any],
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.number = number
        self.priority = int(arguments.get("x-priority", 0))
        self.limit = QUORUM_LIMIT if queue.is_quorum and prefetch == 0 else prefetch
        self.timeout_ms = queue.consumer_timeout_ms
        if queue.is_quorum and not queue.house.profile.overdue_closes_channel:
            own_ms = arguments.get("x-consumer-timeout")
            self.timeout_ms = int(own_ms) if own_ms is not None and is_integer(own_ms) else self.timeout_ms
        self.released = 0
        self.in_hand = 0
        self.standing = False

    def has_room(self) -> bool:
        """Whether it may be given a message now.

        A consumer without acknowledgements takes no place of the channel's shared prefetch, but waits while others
        have taken them all (3.10 and 4.0).
        """
        return self.has_room_of_its_own() and (self.channel.shared_prefetch == 0 or not self.channel.is_full)

    def has_room_of_its_own(self) -> bool:
        """The same, whatever the channel's other consumers hold."""
        channel = self.channel
        if channel.paused or self.released:
            return False
        if self.no_ack:
            return True
        return not (self.limit and self.in_hand >= self.limit)


class Consumers:
    """The consumers of one queue. With `single_active` one at a time gets messages, the others wait for its end."""

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
        """A consumer arrives."""
        self.all.append(consumer)
        if self.single_active and self.active is None:
            self.active = consumer
        self.stand(consumer)

    def remove(self, consumer: Consumer) -> None:
        """A consumer goes."""
        self.all.remove(consumer)
        if consumer.standing:
            self._ring(consumer.priority).remove(consumer)
            consumer.standing = False
        self._waiting.pop(consumer, None)
        if self.active is consumer:
            self.active = max(self.all, key=lambda one: one.priority) if self.all else None

    def stand(self, consumer: Consumer) -> None:
        """It has room: put it at the end of its ring, unless it stands there."""
        if not consumer.standing:
            consumer.standing = True
            self._waiting.pop(consumer, None)
            self._ring(consumer.priority).append(consumer)

    def stand_again(self, channel: "ChannelState") -> None:
        """There is room on the channel: those of its consumers that waited for it stand, the first to leave first."""
        for consumer in list(self._waiting):
            if consumer.channel is channel and consumer.has_room_of_its_own():
                self.stand(consumer)

    def take(self) -> Consumer | None:
        """The consumer whose turn it is, None if none has room."""
        if self.single_active:
            active = self.active
            if active is None or active.has_room():
                return active
            active.channel.note_refused(active.queue)
            return None
        for _, ring in self._rings:
            while ring:
                consumer = ring[0]
                if consumer.has_room():
                    if len(ring) > 1:
                        ring.rotate(-1)
                    return consumer
                ring.popleft()
                consumer.standing = False
                self._waiting[consumer] = None
                consumer.channel.note_refused(consumer.queue)
        return None

    def _ring(self, priority: int) -> deque[Consumer]:
        for known, ring in self._rings:
            if known == priority:
                return ring
        fresh: deque[Consumer] = deque()
        self._rings.append((priority, fresh))
        self._rings.sort(key=lambda pair: -pair[0])
        return fresh
