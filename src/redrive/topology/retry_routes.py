"""What a shape built around one queue, in the words of retry and parking rather than of AMQP.

A shape returns an `RetryRoutes` beside the objects it emits: who needs to know where a message waits, how it gets there
and where it ends (diagrams, permissions, the consumer runtime, the dead-letter collector) reads it here and never
guesses from names.
"""

from dataclasses import dataclass
from enum import StrEnum

from redrive.core import Counter


class MoveBy(StrEnum):
    """How a message leaves a queue for its wait or its parking."""

    PUBLISH = "publish"
    """The consumer publishes a copy, confirmed and mandatory, then acks."""
    REJECT = "reject"
    """The consumer rejects without requeue; the queue's DLX does the rest."""
    REQUEUE = "requeue"
    """The consumer rejects or nacks with requeue; the queue itself delays the message, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One delay: publishing to `exchange` with `routing_key` (or rejecting) ends in `queue` for `delay_ms`."""

    delay_ms: int
    queue: str
    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking:
    """Where a message ends: publishing to `exchange` with `routing_key` (None: the message's own) ends in `queue`."""

    queue: str
    exchange: str
    routing_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRoutes:
    """Retry and parking around one queue.

    `attempts` counts handler runs. `waits` are in the order of the declared delays, each wait queue once; it is empty
    where no queue waits (`requeue`, `native`). `retry_by` and `park_by` say how the consumer gets a message there,
    `counted_by` where a delivery tells how often it was tried. `reentry` is the exchange and the key with which a
    message comes back from its wait; None is the default exchange and the queue's own name.
    """

    shape: str
    queue: str
    attempts: int
    retry_by: MoveBy
    park_by: MoveBy
    parking: Parking
    waits: tuple[Wait, ...] = ()
    counted_by: Counter = Counter.HEADER
    vhost: str = "/"
    reentry: tuple[str, str] | None = None

    @property
    def longest_wait_ms(self) -> int:
        """0 where nothing waits in a queue."""
        return max([wait.delay_ms for wait in self.waits], default=0)
