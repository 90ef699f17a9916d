"""What an author says about retries: how long to wait, how often, and for which errors otherwise.

A policy is a value; `deciding` reads it. Backoffs say how long, and know neither clock nor chance: jitter is the
policy's, the draw is passed in with the `Situation`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias, get_args

from redrive.core.decisions import Decision
from redrive.core.outcomes import Outcome
from redrive.core.signals import delay_ms_of

Delay: TypeAlias = "str | float | timedelta"
"""A delay as people give it: "30s", 30 (seconds), or a timedelta."""

Verdict: TypeAlias = Literal["ack", "retry", "park", "requeue"]
Cause: TypeAlias = "type[BaseException] | int | range"
"""An exception type (its subclasses too), an HTTP status, or a range of them."""


class Backoff(Protocol):
    """How long to wait before a retry."""

    def delay_ms(self, retry: int, /) -> int:
        """Milliseconds before the retry of that number; the first is 1. 0 is at once."""


@dataclass(frozen=True, slots=True, init=False)
class Fixed:
    """The same delay every time."""

    every_ms: int

    def __init__(self, delay: Delay) -> None:
        object.__setattr__(self, "every_ms", delay_ms_of(delay))

    def delay_ms(self, retry: int, /) -> int:
        """The delay."""
        return self.every_ms


@dataclass(frozen=True, slots=True, init=False)
class Listed:
    """The delays of a list in order; the last repeats."""

    delays_ms: tuple[int, ...]

    def __init__(self, delays: Iterable[Delay]) -> None:
        listed = tuple(delay_ms_of(delay) for delay in delays)
        if not listed:
            raise ValueError("a list of delays needs at least one; for none at all use attempts_max=1")
        object.__setattr__(self, "delays_ms", listed)

    def delay_ms(self, retry: int, /) -> int:
        """The delay at that place of the list."""
        return self.delays_ms[min(max(retry, 1), len(self.delays_ms)) - 1]


@dataclass(frozen=True, slots=True, init=False)
class Exponential:
    """first, first × factor, first × factor², …, never above `longest`."""

    first_ms: int
    factor: float
    longest_ms: int

    def __init__(self, first: Delay, factor: float = 2, longest: Delay = "10m") -> None:
        if not 1 <= factor < float("inf"):
            raise ValueError(f"a factor of {factor} does not back off; give one of 1 or more")
        object.__setattr__(self, "first_ms", delay_ms_of(first))
        object.__setattr__(self, "factor", float(factor))
        object.__setattr__(self, "longest_ms", delay_ms_of(longest))

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
        object.__setattr__(self, "step_ms", delay_ms_of(step))
        object.__setattr__(self, "longest_ms", delay_ms_of(longest))

    def delay_ms(self, retry: int, /) -> int:
        """step × retry, at most `longest`."""
        return min(self.step_ms * max(retry, 1), self.longest_ms)


@dataclass(frozen=True, slots=True)
class Immediate:
    """At once for the first `times` retries, then by another backoff, which counts from 1 again.

    At once is a counted copy to the queue's own end where the shape retries by copies.
    """

    then: Backoff
    times: int = 2

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError(f"{self.times} immediate retries are not possible; give 0 or more")

    def delay_ms(self, retry: int, /) -> int:
        """0 at first, then the other's delay."""
        return 0 if retry <= self.times else self.then.delay_ms(retry - self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a decision depends on besides the outcome and the policy.

    `retries` were done before this run. `age_ms` is since the message was published, None if nobody knows. `draw` is
    the randomness, 0 ≤ draw < 1.
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
    """Certain errors or statuses have a way of their own.

    `on` is one cause or several. A rule that retries may have a backoff and a number of runs of its own; what it
    leaves out is the policy's. A handler that ran out of time counts as TimeoutError.
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
        backoff: Backoff | None = None,
        attempts_max: int | None = None,
    ) -> None:
        causes = (on,) if isinstance(on, type | int | range) else tuple(on)
        for cause in causes:
            if not _is_cause(cause):
                raise ValueError(f"{cause!r} is neither an exception type nor a status nor a range of statuses")
        if not causes:
            raise ValueError("a rule needs an exception type or a status to be about")
        if then not in get_args(Verdict):
            raise ValueError(f"{then!r} is no verdict; known: {', '.join(get_args(Verdict))}")
        if then != "retry" and not (backoff is None and attempts_max is None):
            raise ValueError(f"a rule that says {then!r} never waits; backoff and attempts_max go with 'retry'")
        _check_attempts(attempts_max)
        object.__setattr__(self, "on", causes)
        object.__setattr__(self, "then", then)
        object.__setattr__(self, "backoff", backoff)
        object.__setattr__(self, "attempts_max", attempts_max)

    def matches(self, *, error: BaseException | None, status: int | None) -> bool:
        """Whether the rule is about this error or this status."""
        for cause in self.on:
            if isinstance(cause, type):
                if error is not None and isinstance(error, cause):
                    return True
            elif status is not None and (status in cause if isinstance(cause, range) else status == cause):
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often and how fast a handler is run again, and what is not worth it.

    `attempts_max` counts runs, the first included. `jitter` (0 to 1) shortens a backoff's delay by up to that part of
    it, never lengthens it: a wait queue's TTL is the longest it can hold. `rules` are asked in order, the first that
    matches counts. `age_ms_max` is the oldest a message may be when it is run again. `own` is asked before all else and
    may answer None; it must not block, and if it raises it has answered None.
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
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"a jitter of {self.jitter} is not a part; give 0 to 1")
        if self.age_ms_max is not None and self.age_ms_max < 0:
            raise ValueError(f"an age budget of {self.age_ms_max} ms is spent before it begins")
        if self.other_4xx not in ("park", "retry"):
            raise ValueError(f"other_4xx is 'park' or 'retry', not {self.other_4xx!r}")


def _is_cause(cause: object) -> bool:
    if isinstance(cause, type):
        return issubclass(cause, BaseException)
    return isinstance(cause, int | range) and not isinstance(cause, bool)


def _check_attempts(attempts_max: int | None) -> None:
    if attempts_max is not None and attempts_max < 1:
        raise ValueError(f"{attempts_max} runs are too few: the first run is one")
