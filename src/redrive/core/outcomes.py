"""How a handler ended, before anything is decided about the message."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Returned:
    """It returned."""


@dataclass(frozen=True, slots=True)
class Raised:
    """It raised; `Park`, `RetryAfter` and `Requeue` among others."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An HTTP endpoint answered, or a handler raised an error that carries a status. Outside 200–599: a failure.

    `retry_after_ms` is what the answer's Retry-After said, already as a delay.
    """

    status: int
    retry_after_ms: int | None = None
    detail: str = ""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """It did not end in time and was cancelled."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The body is not what the handler takes; no handler has run."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """Consumers died with it in hand, `deliveries` times, as often as is allowed; no handler has run now."""

    deliveries: int


Outcome: TypeAlias = Returned | Raised | Answered | TimedOut | Undecodable | Crashed
