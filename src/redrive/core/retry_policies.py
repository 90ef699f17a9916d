"""What an author declares about retries: how long to wait, how often, and which errors are treated otherwise.

A policy is a value; `decision_table` reads it. Backoffs return how long to wait, and know neither clock nor randomness:
jitter belongs to the policy, and the random draw is passed in with the `Situation`. A value that makes no sense raises
`InvalidPolicy` where it is written.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias, cast, get_args

from redrive.core.decisions import Decision
from redrive.core.errors import InvalidPolicy
from redrive.core.outcomes import Outcome
from redrive.core.signals import delay_ms_of
from redrive.core.suggestions import did_you_mean

Delay: TypeAlias = "str | float | timedelta"
"""A delay as people give it: "30s", 30 (seconds), or a timedelta."""

Verdict: TypeAlias = Literal["ack", "retry", "park", "requeue"]
Cause: TypeAlias = type[BaseException] | int | range
"""An exception type (its subclasses too), an HTTP status, or a range of them."""
_STATUSES = range(100, 1000)


class Backoff(Protocol):
    """How long to wait before a retry."""

    def delay_ms(self, retry: int, /) -> int:
        """Milliseconds before the retry of that number; the first is 1. 0 is at once."""


@dataclass(frozen=True, slots=True, init=False)
class Fixed:
    """The same delay every time."""

    every_ms: int

    def __init__(self, delay: Delay) -> None:
        object.__setattr__(self, "every_ms", _delay_ms(delay))

    def delay_ms(self, retry: int, /) -> int:
        """The delay."""
        return self.every_ms


@dataclass(frozen=True, slots=True, init=False)
class Listed:
    """The delays of a list in order; the last repeats."""

    delays_ms: tuple[int, ...]

    def __init__(self, delays: Iterable[Delay]) -> None:
        if isinstance(delays, str) or not isinstance(delays, Iterable):
            raise InvalidPolicy(f"{delays!r} is no list of delays; give several, or use Fixed")
        listed = tuple(_delay_ms(delay) for delay in delays)
        if not listed:
            raise InvalidPolicy("a list of delays needs at least one; for none at all use attempts_max=1")
        object.__setattr__(self, "delays_ms", listed)

    def delay_ms(self, retry: int, /) -> int:
        """The delay at that position of the list."""
        return self.delays_ms[min(max(retry, 1), len(self.delays_ms)) - 1]


@dataclass(frozen=True, slots=True, init=False)
class Exponential:
    """first, first × factor, first × factor², …, never above `longest`."""

    first_ms: int
    factor: float
    longest_ms: int

    def __init__(self, first: Delay, factor: float = 2, longest: Delay = "10m") -> None:
        if not _is_number(factor) or not 1 <= factor < float("inf"):
            raise InvalidPolicy(f"a factor of {factor} does not back off; give one of 1 or more")
        object.__setattr__(self, "first_ms", _delay_ms(first))
        object.__setattr__(self, "factor", float(factor))
        object.__setattr__(self, "longest_ms", _delay_ms(longest))

    def delay_ms(self, retry: int, /) -> int:
        """first × factor ^ (retry − 1), at most `longest`."""
        if self.first_ms == 0:
            return 0
        try:
            grown = self.first_ms * self.factor ** (max(retry, 1) - 1)
        except OverflowError:
            return self.longest_ms
        return self.longest_ms if grown >= self.longest_ms else round(grown)


@dataclass(frozen=True, slots=True, init=False)
class Linear:
    """step, 2 × step, 3 × step, …, never above `longest`; as RabbitMQ 4.3 itself delays."""

    step_ms: int
    longest_ms: int

    def __init__(self, step: Delay, longest: Delay = "10m") -> None:
        object.__setattr__(self, "step_ms", _delay_ms(step))
        object.__setattr__(self, "longest_ms", _delay_ms(longest))

    def delay_ms(self, retry: int, /) -> int:
        """step × retry, at most `longest`."""
        return min(self.step_ms * max(retry, 1), self.longest_ms)


@dataclass(frozen=True, slots=True)
class Immediate:
    """No delay for the first `times` retries, then another backoff, which counts from 1 again.

    Without a delay a retry is a counted copy to the queue's own end, if the shape retries by copies.
    """

    then: Backoff
    times: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "then", backoff_of(self.then))
        if not _is_whole(self.times) or self.times < 0:
            raise InvalidPolicy(f"{self.times} immediate retries are not possible; give 0 or more")

    def delay_ms(self, retry: int, /) -> int:
        """0 at first, then the other backoff's delay."""
        return 0 if retry <= self.times else self.then.delay_ms(retry - self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a decision depends on besides the outcome and the policy.

    `retries` is how many there were before this run. `age_ms` is the time since the message was published, None if it
    is not known. `draw` is a random number, 0 ≤ draw < 1.
    """

    retries: int
    now_ms: int
    age_ms: int | None = None
    draw: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.draw < 1:
            raise ValueError(f"a draw of {self.draw} is not in [0, 1)")


@dataclass(frozen=True, slots=True, init=False)
class Rule:
    """What to do about certain errors or statuses.

    `on` is one cause or several. A rule that retries may have its own backoff (a plain delay is `Fixed`) and its own
    `attempts_max`; the policy's hold if it has none. A handler that timed out counts as TimeoutError.
    """

    on: tuple[Cause, ...]
    then: Verdict
    backoff: Backoff | None
    attempts_max: int | None

    def __init__(
        self,
        on: "Cause | Iterable[Cause]",
        then: Verdict,
        *,
        backoff: "Backoff | Delay | None" = None,
        attempts_max: int | None = None,
    ) -> None:
        causes = causes_of(on)
        if not causes:
            raise InvalidPolicy("a rule needs an exception type or a status to be about")
        if then not in get_args(Verdict):
            raise InvalidPolicy(f"{then!r} is no verdict; {did_you_mean(str(then), get_args(Verdict))}")
        if then != "retry" and not (backoff is None and attempts_max is None):
            raise InvalidPolicy(f"a rule that says {then!r} never waits; backoff and attempts_max go with 'retry'")
        _check_attempts(attempts_max)
        object.__setattr__(self, "on", causes)
        object.__setattr__(self, "then", then)
        object.__setattr__(self, "backoff", None if backoff is None else backoff_of(backoff))
        object.__setattr__(self, "attempts_max", attempts_max)

    def matches(self, *, error: BaseException | None, status: int | None) -> bool:
        """Whether the rule covers this error or this status."""
        for cause in self.on:
            if isinstance(cause, type):
                if error is not None and isinstance(error, cause):
                    return True
            elif status is not None and (status in cause if isinstance(cause, range) else status == cause):
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how fast a handler is run again, and for which errors it is not.

    `attempts_max` counts runs, the first included. `jitter` (0 to 1) shortens a backoff's delay by up to that fraction
    and never lengthens it: a wait queue can't hold a message longer than its TTL. The first of `rules` that matches
    decides. `age_ms_max` is the oldest a message may be when it is run again. `own` is called before all else and may
    return None; it must not block, and if it raises that counts as None.
    """

    attempts_max: int
    backoff: Backoff
    jitter: float = 0.0
    rules: tuple[Rule, ...] = ()
    age_ms_max: int | None = None
    other_4xx: Literal["park", "retry"] = "park"
    own: Callable[[Outcome, Situation], Decision | None] | None = None

    def __post_init__(self) -> None:
        _check_attempts(self.attempts_max)
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise InvalidPolicy(f"a jitter of {self.jitter} is not a part; give 0 to 1")
        if self.age_ms_max is not None and self.age_ms_max < 0:
            raise InvalidPolicy(f"an age budget of {self.age_ms_max} ms is spent before it begins")
        if self.other_4xx not in ("park", "retry"):
            raise InvalidPolicy(f"other_4xx is 'park' or 'retry', not {self.other_4xx!r}")


def backoff_of(given: "Backoff | Delay") -> Backoff:
    """A backoff from what an author wrote; a plain delay becomes `Fixed`. Raises `InvalidPolicy`."""
    if isinstance(given, type):
        raise InvalidPolicy(f"{given.__name__} is a class; give a backoff made by it, for example {given.__name__}(…)")
    if callable(getattr(given, "delay_ms", None)):
        return cast("Backoff", given)
    if isinstance(given, str | int | float | timedelta):
        return Fixed(given)
    raise InvalidPolicy(f"{given!r} is no backoff; give a delay, Fixed, Listed, Exponential, Linear or Immediate")


def causes_of(given: "Cause | Iterable[Cause]") -> tuple[Cause, ...]:
    """One cause or several, as a tuple. Raises `InvalidPolicy`."""
    if isinstance(given, str | type | range) or not isinstance(given, Iterable):
        causes: tuple[Cause, ...] = (given,)
    else:
        causes = tuple(given)
    for cause in causes:
        if not _is_cause(cause):
            raise InvalidPolicy(
                f"{cause!r} is neither an exception type nor a status nor a range of statuses"
                f" ({_STATUSES[0]} to {_STATUSES[-1]})"
            )
    return causes


def _is_number(value: object) -> bool:
    """Whether it is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    """Whether it is a whole number; True and False are none, nor is 2.0."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_cause(cause: object) -> bool:
    if isinstance(cause, type):
        return issubclass(cause, BaseException)
    if isinstance(cause, range):
        return len(cause) > 0 and cause[0] in _STATUSES and cause[-1] in _STATUSES
    return _is_whole(cause) and cause in _STATUSES


def _delay_ms(delay: Delay) -> int:
    try:
        return delay_ms_of(delay)
    except ValueError as error:
        raise InvalidPolicy(str(error)) from None


def _check_attempts(attempts_max: int | None) -> None:
    if attempts_max is None:
        return
    if not _is_whole(attempts_max):
        raise InvalidPolicy(f"attempts_max is {attempts_max!r}; give a whole number")
    if attempts_max < 1:
        raise InvalidPolicy(f"{attempts_max} runs are too few: the first run is one")
