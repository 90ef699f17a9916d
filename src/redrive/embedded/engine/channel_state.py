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

    def stand_all(self) -> None:
        """There may be room again on the whole channel: every consumer may stand, and gets what there is."""
        for consumer in list(self.consumers.values()):
            consumer.queue.consumers.stand(consumer)
        for consumer in list(self.consumers.values()):
            consumer.queue.dispatch()

    def forget(self, consumer: Consumer) -> None:
        """The consumer is no more."""
        self.consumers.pop(consumer.tag, None)
        consumer.queue.consumers.remove(consumer)
