"""The broker's own books, kept for the auditor: which copies came from outside, what was in hand when somebody went.

The engine's journal knows lives by message id, and not every message has one; here every message has its number. The
engine offers no hook for that, so two of its methods are wrapped while a scenario runs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from redrive import wire
from redrive.embedded.engine import journal
from redrive.embedded.engine.channel_base import Unacked
from redrive.embedded.engine.channel_consumer import ConsumerMethods
from redrive.embedded.engine.channel_publisher import PublisherMethods
from redrive.embedded.engine.engine import Engine
from redrive.embedded.engine.messages import Message, QueueEntry
from redrive.embedded.engine.profiles import SettledBy
from redrive.embedded.engine.queues import Queue
from tests.simulation.refusals import Refusals
from tests.simulation.workloads import OUTSIDE, Unit, number_of


class Books:
    """What the broker did with every unit."""

    def __init__(self, engine: Engine, *, sources: Iterable[str], queues: Iterable[str]) -> None:
        self.engine = engine
        self._sources = frozenset(sources)
        self._queues = frozenset(queues)
        self.entered: Counter[Unit] = Counter()
        """Copies that came into a consumed queue from whoever published, not from the runtime."""
        self.lost_in_hand: Counter[Unit] = Counter()
        """Times a copy was in hand when its channel or connection ended."""

    def life(self, number: int) -> list[tuple[Any, ...]]:
        """Every hop of a message's copies."""
        return self.engine.journal.history_of(f"#{number}")

    def sent(self, channel: PublisherMethods, message: Message) -> None:
        """A publish is about to be routed."""
        number = number_of(message.body)
        if number is not None:
            message.history = self.life(number)

    def routed(self, channel: PublisherMethods, message: Message) -> None:
        """A publish was routed."""
        number = number_of(message.body)
        if number is None or not (channel.connection.user == OUTSIDE or message.exchange in self._sources):
            return
        hop = next(hop for hop in reversed(self.life(number)) if hop[1] == journal.PUBLISHED)
        for name in hop[4]:
            if name in self._queues:
                self.entered[number, name] += 1

    def settled(self, items: list[Unacked], how: SettledBy | None) -> None:
        """Messages in hand were settled, or lost."""
        if how is not SettledBy.CHANNEL_CLOSED:
            return
        for entry, queue, _ in items:
            number = number_of(entry.message.body)
            if number is not None:
                self.lost_in_hand[number, queue.name] += 1

    def contents(self) -> Iterator[tuple[Queue, str, QueueEntry]]:
        """Every copy there is: its queue, its state there, itself."""
        for queue in self.engine.queues():
            for entry in queue.ready:
                yield queue, "ready", entry
            for entry in queue.delayed:
                yield queue, "delayed", entry
            for entry in () if queue.held_dead_letters is None else queue.held_dead_letters.entries():
                yield queue, "held", entry
        for connection in self.engine.connections:
            for channel in connection.channels.values():
                for entry, queue, _ in channel.unacked.values():
                    yield queue, "in hand", entry


def properties_of(entry: QueueEntry) -> wire.Properties:
    """What a copy carries."""
    return wire.Properties(entry.message.header)


@contextmanager
def kept(books: Books, refusals: Refusals) -> Iterator[None]:
    """While it lasts, the engine tells the books, and refuses what it is to refuse."""
    send, settle = PublisherMethods._send, ConsumerMethods.apply_settlement

    def _send(self: PublisherMethods, message: Message, mandatory: bool) -> bool:
        books.sent(self, message)
        refused = refusals.take(self, message, mandatory)
        if refused is not None:
            return refused
        taken = send(self, message, mandatory)
        books.routed(self, message)
        return taken

    def apply_settlement(
        self: ConsumerMethods, items: Iterable[Unacked], how: SettledBy | None, *, requeue: bool
    ) -> None:
        listed = list(items)
        books.settled(listed, how)
        settle(self, listed, how, requeue=requeue)

    with (
        mock.patch.object(PublisherMethods, "_send", _send),
        mock.patch.object(ConsumerMethods, "apply_settlement", apply_settlement),
    ):
        yield
