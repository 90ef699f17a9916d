"""What a consumer tells the broker about one delivery: a decision, after a shape has turned it into AMQP.

Commands are done in order, and one that fails ends the row: an `Ack` that follows a `Publish` is only reached when the
copy was confirmed and not returned. What was not reached leaves the delivery unsettled, so it comes again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """A copy of the delivery: same body, same properties and headers, but for what is said here.

    `set_headers` are written, `drop_headers` taken away; one that is in both is written. The copy is persistent,
    mandatory and confirmed, carries no user_id, and has `expiration_ms` or none. What was taken away and can't be known
    otherwise goes into `x-redrive-stripped`; a message without message_id gets `x-redrive-id`.
    """

    exchange: str
    routing_key: str
    set_headers: Mapping[str, Any] = field(default_factory=dict)
    drop_headers: frozenset[str] = frozenset()
    expiration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """Done."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Reject without requeue: to the queue's dead-letter exchange, or gone where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Back to the queue. `counted`: by basic.reject, which every version counts; else by nack, which 4.3 does not."""

    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Hold the delivery for a moment; it counts towards the prefetch meanwhile."""

    pause_ms: int


Command: TypeAlias = Publish | Ack | Discard | Return | Pause
