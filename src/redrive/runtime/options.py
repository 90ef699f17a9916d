"""What an author may say about one consumer, checked when it is said."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeAlias

from redrive.core import Backoff, Decision, Outcome, Policy, Rule, Situation
from redrive.runtime.codecs import Codec
from redrive.runtime.errors import InvalidApp
from redrive.runtime.message import Message

Middleware: TypeAlias = Callable[[Message, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""`async def audit(message, proceed): …; await proceed(); …`: around the handler, inside its timeout."""

Delay: TypeAlias = str | float | timedelta
"""A duration as people give it: "30s", 30 (seconds), or a timedelta."""

PREFETCH = 100
THREADS = 10
CRASHES_MAX = 3
PAUSE_AFTER = 20
PAUSE_ON: tuple[type[BaseException] | int, ...] = (ConnectionError, TimeoutError, 502, 503, 504)
_PREFETCH_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """One consumer's own settings; None where the queue's declaration or the app's setting holds.

    `concurrency` None: as many as the prefetch for coroutines, `THREADS` for plain functions. `crashes_max` None:
    crashes are not counted. `pause_after` None: it never pauses.
    """

    rules: tuple[Rule, ...] = ()
    backoff: Backoff | None = None
    jitter: float | None = None
    age_ms_max: int | None = None
    decide: Callable[[Outcome, Situation], Decision | None] | None = None
    timeout_ms: int | None = None
    prefetch: int = PREFETCH
    concurrency: int | None = None
    codec: Codec | None = None
    middleware: tuple[Middleware, ...] = ()
    crashes_max: int | None = CRASHES_MAX
    pause_after: int | None = PAUSE_AFTER
    pause_on: Rule = field(default=Rule(PAUSE_ON, "retry"))

    def __post_init__(self) -> None:
        if not 1 <= self.prefetch <= _PREFETCH_MAX:
            raise InvalidApp(f"prefetch is {self.prefetch}; give 1 to {_PREFETCH_MAX}")
        if self.concurrency is not None and self.concurrency < 1:
            raise InvalidApp(f"concurrency is {self.concurrency}; at least one handler must run")
        if self.timeout_ms is not None and self.timeout_ms <= 0:
            raise InvalidApp("a timeout must leave the handler some time")
        if self.crashes_max is not None and self.crashes_max < 2:
            raise InvalidApp(
                f"crashes_max is {self.crashes_max}; give 2 or more (one crash may be a neighbour's), or None"
            )
        if self.pause_after is not None and self.pause_after < 1:
            raise InvalidApp(f"pause_after is {self.pause_after}; give 1 or more, or None for never")

    def policy(self, declared: Policy) -> Policy:
        """The queue's policy with what this consumer says otherwise. Raises ValueError."""
        return replace(
            declared,
            rules=(*self.rules, *declared.rules),
            backoff=declared.backoff if self.backoff is None else self.backoff,
            jitter=declared.jitter if self.jitter is None else self.jitter,
            age_ms_max=declared.age_ms_max if self.age_ms_max is None else self.age_ms_max,
            own=declared.own if self.decide is None else self.decide,
        )


def error_rules(rules: Iterable[Rule], park_on: Iterable[Any], retry_on: Iterable[Any] | None) -> tuple[Rule, ...]:
    """The rules in the order they are asked: an author's own, what parks, what is retried; then, if that was said,
    everything else parks. Raises ValueError."""
    found = [*rules]
    parks = tuple(park_on)
    if parks:
        found.append(Rule(parks, "park"))
    if retry_on is not None:
        retries = tuple(retry_on)
        if retries:
            found.append(Rule(retries, "retry"))
        found.append(Rule(Exception, "park"))
    return tuple(found)
