"""How messages of one queue are retried and parked: where they wait, how they get there, and where they end.

A shape gives `RetryRoutes` beside the exchanges and queues it builds. Diagrams, permissions, the runtime and the
dead-letter collector read the routes here and never guess from names.
"""

from dataclasses import dataclass
from enum import StrEnum

from redrive.core import Counter


class MoveBy(StrEnum):
    """How a consumer moves a message to its wait or to its parking queue."""

    PUBLISH = "publish"
    """The consumer publishes a copy, confirmed and mandatory, then acks."""
    REJECT = "reject"
    """The consumer rejects without requeue; the queue's DLX does the rest."""
    REQUEUE = "requeue"
    """The consumer rejects or nacks with requeue; the queue itself delays the message, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One delay: a message published to `exchange` with `routing_key` (or rejected) waits in `queue` for `delay_ms`."""

    delay_ms: int
    queue: str
    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking:
    """Where a message is parked: published to `exchange` with `routing_key` (None: its own) it ends in `queue`."""

    queue: str
    exchange: str
    routing_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRoutes:
    """Retry and parking around one queue.

    `attempts` counts handler runs. `waits` are in the order of the declared delays, each wait queue once; shapes
    without wait queues have none (`requeue`, `native`). `retry_by` and `park_by` say how the consumer moves a message,
    `counted_by` says what counts its attempts. `reentry` is the exchange and the routing key with which a message comes
    back from its wait; None is the default exchange and the queue's own name."""

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
        """The longest delay of a wait queue; 0 without wait queues."""
        return max([wait.delay_ms for wait in self.waits], default=0)
