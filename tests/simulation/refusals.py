"""Copies that the broker refuses and does not keep: then only the delivery that was not acked has the message.

The faults of `redrive.embedded` hit the confirms of copies that are in their queue already, so a client that takes a
refusal for a confirm loses nothing. Here the copy is not kept, and the broker reports it in one of its ways:

    nack      basic.nack: a full queue, a quorum queue without its leader
    return    basic.return, then a confirm: nowhere to route it
    close     the connection is closed with 541, and what becomes of it is in doubt

Only the runtime's own copies are refused; those of publishers outside, and of handlers, are not.
"""

from collections import Counter
from dataclasses import dataclass
from random import Random

from redrive.core import headers
from redrive.embedded.engine import journal
from redrive.embedded.engine.amqp_errors import AmqpError
from redrive.embedded.engine.channel_publisher import PublisherMethods
from redrive.embedded.engine.effects import BasicReturn
from redrive.embedded.engine.messages import Message
from redrive.wire import Properties
from tests.simulation.workloads import OUTSIDE, Unit, number_of

WAYS = ("nack", "return", "close")
_INTERNAL_ERROR = 541
_COPIED = headers.ORIGINAL_QUEUE.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRates:
    """The chance of each copy to be refused, until `most` were: then nothing more is, so that a run can end."""

    chance: float
    ways: tuple[str, ...]
    most: int


def draw_refusals(seed: int) -> RefusalRates | None:
    """For a seed that is not calm; from a random generator of its own, so that the rest of the seed stays the same."""
    random = Random(f"refusals {seed}")
    if random.random() < 0.4:
        return None
    return RefusalRates(
        chance=random.choice((0.1, 0.3, 1.0)),
        ways=random.choice((WAYS, ("nack",), ("return",), ("nack", "return"))),
        most=random.choice((2, 5, 10)),
    )


class Refusals:
    """Refuses the copies of one scenario."""

    def __init__(self, seed: int, rates: RefusalRates | None) -> None:
        self._rates = rates
        self._random = Random(f"refused {seed}")
        self.done: Counter[str] = Counter()
        """How many copies were refused, by the way of refusal."""
        self.reported: Counter[Unit] = Counter()
        """How many refusals of a unit's copies its runtime has got: these copies can't excuse a duplicate."""

    def take(self, channel: PublisherMethods, message: Message, mandatory: bool) -> bool | None:
        """Whether the broker claims to have routed a copy that it did not keep; None if it is not to be refused.

        Raises `AmqpError`.
        """
        rates = self._rates
        if rates is None or self.done.total() >= rates.most or not _is_copy(channel, message):
            return None
        if self._random.random() >= rates.chance:
            return None
        way = self._random.choice(rates.ways)
        self.done[way] += 1
        if way == "close":
            raise AmqpError(_INTERNAL_ERROR, "a copy is refused")
        unit = _unit(message)
        if unit is not None:
            self.reported[unit] += 1
        engine, route = channel.engine, (message.exchange, message.keys[0])
        if way == "return" and mandatory:
            engine.effects.append(BasicReturn(channel, message))
            _write(message, (engine.now_ms, journal.RETURNED, *route))
            return True
        _write(message, (engine.now_ms, journal.REFUSED, f"{route[0]} {route[1]}"))
        return False


def _is_copy(channel: PublisherMethods, message: Message) -> bool:
    return channel.connection.user != OUTSIDE and _COPIED in message.header


def _unit(message: Message) -> Unit | None:
    number, home = number_of(message.body), Properties(message.header).header(headers.ORIGINAL_QUEUE)
    return (number, home) if number is not None and isinstance(home, str) else None


def _write(message: Message, hop: tuple[object, ...]) -> None:
    if message.history is not None:
        message.history.append(hop)
