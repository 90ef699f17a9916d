"""What a channel remembers: messages in hand, consumers, prefetch, confirm or transaction mode."""

from typing import TYPE_CHECKING, TypeAlias

from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.engine.messages import Entry, Message
from redrive.embedded.engine.profiles import Returning
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.refusals import Refusal

if TYPE_CHECKING:
    from redrive.embedded.engine.connections import Connection

InHand: TypeAlias = tuple[Entry, Queue, Consumer | None]
"""A message a client has and has not settled; without a consumer it came by basic.get."""


class Transaction:
    """What a channel in tx mode has said since the last commit or rollback."""

    __slots__ = ("publishes", "settlements")

    def __init__(self) -> None:
        self.publishes: list[tuple[Message, bool]] = []
        self.settlements: list[tuple[dict[int, InHand], Returning | None, bool]] = []
        """Messages by tag, how they were returned (None: acked), and whether they are wanted back."""


class ChannelState:
    """The memory of one channel."""

    def __init__(self, connection: "Connection", number: int) -> None:
        self.connection = connection
        self.number = number
        self.engine = connection.engine
        self.vhost = connection.vhost
        self.delivery_tag = 0
        self.unacked: dict[int, InHand] = {}
        self.released: dict[int, Consumer | None] = {}
        """What a queue took back after the consumer timeout, and the client has not settled."""
        self.is_timed_out = False
        self.consumers: dict[str, Consumer] = {}
        self.prefetch = 0
        self.shared_prefetch = 0
        self.shared_in_hand = 0
        self._refused: dict[Queue, None] = {}
        """Queues that had something for a consumer while the channel was full, the first to ask first."""
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
            raise Refusal(404, "no previously declared queue")
        return self.last_queue

    @property
    def is_full(self) -> bool:
        """Whether its consumers together hold as much as the shared prefetch allows."""
        return self.shared_prefetch != 0 and self.shared_in_hand >= self.shared_prefetch

    def share_prefetch(self, count: int) -> None:
        """All consumers together may hold so many, or with 0 any number.

        RabbitMQ begins with what the channel holds at that moment, basic.get's messages included, which then keep
        their places for good.
        """
        if self.shared_prefetch == 0:
            self.shared_in_hand = len(self.unacked)
        self.shared_prefetch = count
        if not self.is_full:
            self.serve_refused()

    def note_refused(self, queue: Queue) -> None:
        """A queue has something for a consumer of this channel, which has no room for it."""
        if self.is_full:
            self._refused[queue] = None

    def serve_refused(self, last: Queue | None = None) -> None:
        """There is room on the channel: the queues that were refused give out what they have, `last` too.

        RabbitMQ begins with any of them, by chance; here it is the one that has waited longest.
        """
        refused, self._refused = self._refused, {}
        if last is not None:
            refused.setdefault(last)
        still_refused: dict[Queue, None] = {}
        for queue in refused:
            if self.is_full:
                still_refused[queue] = None
            else:
                queue.consumers.stand_again(self)
                queue.dispatch()
        self._refused = still_refused | self._refused  # who was served asks again, after those who were not

    def stand_all(self) -> None:
        """The client reads again: every consumer may stand, and gets what there is."""
        for consumer in list(self.consumers.values()):
            consumer.queue.consumers.stand_again(self)
        for consumer in list(self.consumers.values()):
            consumer.queue.dispatch()

    def forget(self, consumer: Consumer) -> None:
        """The consumer is no more."""
        self.consumers.pop(consumer.tag, None)
        consumer.queue.consumers.remove(consumer)
