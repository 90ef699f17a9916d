"""The values of a decision: what becomes of a message."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from redrive.core.failures import Failure


class ParkReason(StrEnum):
    """Why a message was parked: one word for logs, metrics and the `x-redrive-reason` header."""

    ATTEMPTS = "attempts"
    """It has no runs left."""
    AGE = "age"
    """It is older than `age_ms_max`."""
    ASKED = "park"
    """The handler raised `Park`."""
    PERMANENT = "permanent"
    """A rule parks errors of this kind."""
    STATUS = "status"
    """An HTTP status that is not worth a retry."""
    UNDECODABLE = "undecodable"
    CRASHES = "crashes"
    """Its consumers crashed while they handled it."""
    OVERSIZED = "oversized"
    """It can't be retried: no copy of it can be sent."""
    QUEUE_GONE = "queue_gone"
    """Its queue was deleted while it was being handled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a handler that failed, as the `x-redrive-history` header keeps it."""

    number: int
    at_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class Done:
    """Ack it. The service document says ACK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Run it again after `delay_ms`; counted as an attempt. The service document says DROP.

    A shape takes its shortest wait that is long enough. If none is, the message waits in the longest and carries
    `not_before_ms` (now + delay, in ms since 1970); it waits again until then.
    """

    delay_ms: int
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """It came too early and waits again until `not_before_ms`. No handler has run; not counted."""

    wait_ms: int
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """Requeue it after a pause in the consumer; not counted as an attempt. The service document says REQUEUE."""

    pause_ms: int


@dataclass(frozen=True, slots=True)
class Skip:
    """A retry copy for another queue's consumer: ack it unhandled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """Move it to the dead letters."""

    reason: ParkReason


Decision: TypeAlias = Done | Retry | Defer | Requeued | Skip | Parked


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What else is known about the delivery when its decision is carried out.

    `retries` is how many there were before this delivery's run; `failure` is None if nothing failed; `history` has the
    known attempts, this one included, oldest first.
    """

    retries: int
    now_ms: int
    failure: Failure | None = None
    history: tuple[Attempt, ...] = ()
