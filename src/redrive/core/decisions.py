"""What is to become of a message: the values a decision can have."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from redrive.core.failures import Failure


class ParkReason(StrEnum):
    """Why a message was parked, as a word that logs, metrics and the `x-redrive-reason` header share."""

    ATTEMPTS = "attempts"
    """Its runs are spent."""
    AGE = "age"
    """It is older than its age budget."""
    ASKED = "park"
    """The handler said so."""
    PERMANENT = "permanent"
    """An error of a kind that is not worth a retry."""
    STATUS = "status"
    """An HTTP status that is not worth a retry."""
    UNDECODABLE = "undecodable"
    CRASHES = "crashes"
    """Its consumers died on it."""
    OVERSIZED = "oversized"
    """It can't be retried: no copy of it can be sent."""
    QUEUE_GONE = "queue_gone"
    """Its queue was deleted while it was in hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a handler that failed, as the `x-redrive-history` header keeps it."""

    number: int
    at_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class Done:
    """Ack. In the words of the service document: ACK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Run it again, not before `delay_ms` from now: DROP. Counted.

    A shape takes its shortest wait that is long enough. Where none is, the message waits in the longest and carries
    `not_before_ms` (since 1970, now + delay), until which it waits again.
    """

    delay_ms: int
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """It came before its time: let it wait again until `not_before_ms`. No handler has run; not counted."""

    wait_ms: int
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """Back to the queue after a local pause: REQUEUE. Not counted as an attempt."""

    pause_ms: int


@dataclass(frozen=True, slots=True)
class Skip:
    """A copy meant for another queue's consumer: ack it unhandled, and count it as skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """To the dead letters."""

    reason: ParkReason


Decision: TypeAlias = Done | Retry | Defer | Requeued | Skip | Parked


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is known besides the decision when it is carried out.

    `retries` were done before this delivery's run; `failure` is None where nothing went wrong; `history` are the
    attempts known so far, this one included, oldest first.
    """

    retries: int
    now_ms: int
    failure: Failure | None = None
    history: tuple[Attempt, ...] = ()
