"""What the broker did with every message, for the auditor: which copies came from outside, and which deliveries were
unsettled when their channel or connection ended.

The engine's journal knows messages by their id, and not every message has one; here every message has a number. The
engine has no hook for that, so two of its methods are wrapped while a scenario runs.
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


class Ledger:
    """What the broker did with every unit."""

    def __init__(self, engine: Engine, *, sources: Iterable[str], queues: Iterable[str]) -> None:
        self.engine = engine
        self._sources = frozenset(sources)
        self._queues = frozenset(queues)
        self.entered: Counter[Unit] = Counter()
        """Copies that came into a consumed queue from a publisher, not from the runtime."""
        self.lost_unsettled: Counter[Unit] = Counter()
        """How often a copy was unsettled when its channel or connection ended."""

    def hops(self, number: int) -> list[tuple[Any, ...]]:
        """Every hop of a message's copies."""
        return self.engine.journal.history_of(f"#{number}")

    def sent(self, channel: PublisherMethods, message: Message) -> None:
        """A publish is about to be routed."""
        number = number_of(message.body)
        if number is not None:
            message.history = self.hops(number)

    def routed(self, channel: PublisherMethods, message: Message) -> None:
        """A publish was routed."""
        number = number_of(message.body)
        if number is None or not (channel.connection.user == OUTSIDE or message.exchange in self._sources):
            return
        hop = next(hop for hop in reversed(self.hops(number)) if hop[1] == journal.PUBLISHED)
        for name in hop[4]:
            if name in self._queues:
                self.entered[number, name] += 1

    def settled(self, items: list[Unacked], how: SettledBy | None) -> None:
        """Deliveries were settled, or lost with their channel."""
        if how is not SettledBy.CHANNEL_CLOSED:
            return
        for entry, queue, _ in items:
            number = number_of(entry.message.body)
            if number is not None:
                self.lost_unsettled[number, queue.name] += 1

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
def recording(ledger: Ledger, refusals: Refusals) -> Iterator[None]:
    """Makes the engine report to the ledger, and refuse what it is to refuse."""
    send, settle = PublisherMethods._send, ConsumerMethods.apply_settlement

    def _send(self: PublisherMethods, message: Message, mandatory: bool) -> bool:
        ledger.sent(self, message)
        refused = refusals.take(self, message, mandatory)
        if refused is not None:
            return refused
        taken = send(self, message, mandatory)
        ledger.routed(self, message)
        return taken

    def apply_settlement(
        self: ConsumerMethods, items: Iterable[Unacked], how: SettledBy | None, *, requeue: bool
    ) -> None:
        listed = list(items)
        ledger.settled(listed, how)
        settle(self, listed, how, requeue=requeue)

    with (
        mock.patch.object(PublisherMethods, "_send", _send),
        mock.patch.object(ConsumerMethods, "apply_settlement", apply_settlement),
    ):
        yield
