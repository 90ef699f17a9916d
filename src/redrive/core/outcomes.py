"""How a handler ended, before anything is decided about the message."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Succeeded:
    """It returned without an error."""


@dataclass(frozen=True, slots=True)
class Raised:
    """It raised an error, or one of the signals `Park`, `RetryAfter` and `Requeue`."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An HTTP endpoint answered, or a handler raised an error that carries a status. One outside 200–599 is a failure.

    `retry_after_ms` is the answer's Retry-After as a delay.
    """

    status: int
    retry_after_ms: int | None = None
    detail: str = ""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """It did not end in time, so it was cancelled."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The body can't be decoded to what the handler takes; no handler has run."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """Consumers died while they handled it, `deliveries` times, which is the maximum; no handler has run this time."""

    deliveries: int


Outcome: TypeAlias = Succeeded | Raised | Answered | TimedOut | Undecodable | Crashed
