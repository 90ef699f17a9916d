"""What a consumer does at the broker about one delivery: a decision, after a shape has turned it into AMQP.

Commands are executed in order, and one that fails ends the sequence: an `AckDelivery` after a `PublishCopy` is reached
only if the broker confirmed the copy and did not return it. A delivery whose commands did not all run is unsettled, so
the broker delivers it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCopy:
    """Publish a copy of the delivery: same body, properties and headers, except for the fields here.

    `set_headers` are written, `drop_headers` removed; a header in both is written. The copy is persistent, mandatory
    and confirmed, carries no user_id, and has `expiration_ms` or no expiration. What was removed and can't be known
    otherwise goes into `x-redrive-stripped`; a message without message_id gets `x-redrive-id`.
    """

    exchange: str
    routing_key: str
    set_headers: Mapping[str, Any] = field(default_factory=dict)
    drop_headers: frozenset[str] = frozenset()
    expiration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AckDelivery:
    """basic.ack."""


@dataclass(frozen=True, slots=True)
class RejectDelivery:
    """Reject without requeue: to the queue's dead-letter exchange, or lost if the queue has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueDelivery:
    """Requeue. `counted`: by basic.reject, which every version counts; else by basic.nack, which 4.3 does not count."""

    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Hold the delivery for `pause_ms`; meanwhile it counts towards the prefetch."""

    pause_ms: int


Command: TypeAlias = PublishCopy | AckDelivery | RejectDelivery | RequeueDelivery | Pause
