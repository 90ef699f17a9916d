"""What the rest of Redrive must know about a shape, declared by the shape itself.

No other room compares the names of shapes: it reads a trait, so that a new shape only has to declare its traits.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The traits of a shape. The defaults hold for most shapes, and for a queue with `retry: false`."""

    quorum_only: bool = False
    """The queues must be quorum queues, and are unless the author says otherwise."""

    min_version: tuple[int, int, int] | None = None
    """The oldest RabbitMQ on which the shape works; a consumer refuses to start on an older one. None: any."""

    counts_requeues: bool = True
    """Whether a requeue (basic.nack) may raise x-delivery-count: quorum queues up to 4.0 do that. False for a shape
    that only runs on newer brokers."""

    ends_by_delivery_limit: bool = False
    """Whether the queue's delivery limit is the number of runs. Without dead-lettering the broker would then drop a
    message after its last run."""

    honours_process_after: bool = False
    """Whether a message may say with `processAfterDelayMs` how long after its publishing it may be handled."""

    attempts_spent_tag: str | None = None
    """The `tag` of the log line about a message that was parked because its runs were spent."""


NO_TRAITS = Traits()
"""The traits of a queue without a shape."""
