"""The state of a channel: unacked messages, consumers, prefetch, confirm or transaction mode.

`channel_publisher` and `channel_consumer` add what a publisher and a consumer may call, `channels` the rest.
"""

from typing import TYPE_CHECKING, TypeAlias

from redrive.embedded.engine.amqp_errors import AmqpError
from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.engine.messages import Message, QueueEntry
from redrive.embedded.engine.profiles import SettledBy
from redrive.embedded.engine.queues import Queue

if TYPE_CHECKING:
    from redrive.embedded.engine.connections import Connection

REPLY_TO = "amq.rabbitmq.reply-to"
REPLY_ADDRESS = f"{REPLY_TO}.g1h"
"""The start of every channel's reply address; RabbitMQ's go on with an Erlang pid in base64, whose first octets these
are."""

Unacked: TypeAlias = tuple[QueueEntry, Queue, Consumer | None]
"""A message that a client has not settled yet; without a consumer it was fetched by basic.get."""


class Transaction:
    """What a channel in tx mode has published and settled since the last commit or rollback."""

    __slots__ = ("publishes", "settlements")

    def __init__(self) -> None:
        self.publishes: list[tuple[Message, bool]] = []
        self.settlements: list[tuple[dict[int, Unacked], SettledBy | None, bool]] = []
        """Messages by tag, how they were settled (None: acked), and whether they are requeued."""


class ChannelBase:
    """The state of one channel."""

    def __init__(self, connection: "Connection", number: int) -> None:
        self.connection = connection
        self.number = number
        self.engine = connection.engine
        self.vhost = connection.vhost
        self.delivery_tag = 0
        self.unacked: dict[int, Unacked] = {}
        self.timed_out: dict[int, Consumer | None] = {}
        """Delivery tags that a queue requeued after the consumer timeout, and that the client has not settled yet."""
        self.timeout_reported = False
        self.consumers: dict[str, Consumer] = {}
        self.prefetch = 0
        self.shared_prefetch = 0
        self.shared_unacked = 0
        self._blocked_queues: dict[Queue, None] = {}
        """Queues that had a message for a consumer while the channel's shared prefetch was used up, the first first."""
        self.paused = False
        self.is_open = True
        self.confirms = False
        self.publish_number = 0
        self.transaction: Transaction | None = None
        self.last_queue = ""
        self.reply_tag: str | None = None
        self.reply_address = ""

    def named_queue(self, name: str) -> str:
        """The name itself, or for the empty one the queue that was declared last on this channel."""
        if name:
            return name
        if not self.last_queue:
            raise AmqpError(404, "no previously declared queue")
        return self.last_queue

    @property
    def is_full(self) -> bool:
        """Whether its consumers together hold as much as the shared prefetch allows."""
        return self.shared_prefetch != 0 and self.shared_unacked >= self.shared_prefetch

    def share_prefetch(self, count: int) -> None:
        """All consumers together may hold so many messages; 0 is any number.

        RabbitMQ starts counting with what the channel holds at that moment, messages of basic.get included, and these
        count for good.
        """
        if self.shared_prefetch == 0:
            self.shared_unacked = len(self.unacked)
        self.shared_prefetch = count
        if not self.is_full:
            self.serve_blocked_queues()

    def note_blocked_queue(self, queue: Queue) -> None:
        """A queue has a message for a consumer of this channel, and the shared prefetch is used up."""
        if self.is_full:
            self._blocked_queues[queue] = None

    def serve_blocked_queues(self, last: Queue | None = None) -> None:
        """The shared prefetch has room again: the blocked queues deliver what they have, `last` too.

        RabbitMQ begins with any of them, by chance; here it is the one that has waited longest.
        """
        blocked, self._blocked_queues = self._blocked_queues, {}
        if last is not None:
            blocked.setdefault(last)
        still_blocked: dict[Queue, None] = {}
        for queue in blocked:
            if self.is_full:
                still_blocked[queue] = None
            else:
                queue.consumers.unblock_channel(self)
                queue.dispatch()
        # A queue that was served and is blocked again comes after those that were not served.
        self._blocked_queues = still_blocked | self._blocked_queues

    def resume_consumers(self) -> None:
        """The client reads again: every consumer is eligible, and gets what there is."""
        for consumer in list(self.consumers.values()):
            consumer.queue.consumers.unblock_channel(self)
        for consumer in list(self.consumers.values()):
            consumer.queue.dispatch()

    def forget(self, consumer: Consumer) -> None:
        """The consumer is cancelled."""
        self.consumers.pop(consumer.tag, None)
        consumer.queue.consumers.remove(consumer)
