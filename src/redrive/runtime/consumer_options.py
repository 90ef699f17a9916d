"""The options of one consumer, checked where the author writes them."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar, cast

from redrive.core import (
    Backoff,
    Cause,
    Decision,
    Outcome,
    RetryPolicy,
    Rule,
    Situation,
    backoff_of,
    causes_of,
    delay_ms_of,
)
from redrive.runtime.codecs import Codec, is_codec
from redrive.runtime.errors import InvalidApp
from redrive.runtime.message import Message
from redrive.runtime.signatures import (
    callable_name,
    check_middleware,
    is_coroutine_function,
    is_generator_function,
    takes_positional,
)

_Value = TypeVar("_Value")

Middleware: TypeAlias = Callable[[Message, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""`async def audit(message, proceed): …; await proceed(); …`: around the handler, inside its timeout. A middleware that
does not call `proceed` has done the work itself."""

Delay: TypeAlias = str | float | timedelta
"""A duration as people give it: "30s", 30 (seconds), or a timedelta."""

PREFETCH = 100
THREADS = 10
CRASHES_MAX = 3
PAUSE_ON: tuple[type[BaseException] | int, ...] = (ConnectionError, 502, 503, 504)
"""Not TimeoutError: a handler that is too slow is not a dependency that is down, unless its author says so."""
_PREFETCH_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """One consumer's own options; None where the queue's declaration or the app decides.

    `concurrency` None: as many as the prefetch for coroutines, `THREADS` for plain functions. `crashes_max` None:
    crashes are not counted. `pause_after` None: as the queue's declaration says (never by default); 0: never.
    `needs_id`: a message without an id gets one before its first run, by a copy to its queue's end.
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
    pause_after: int | None = None
    pause_on: Rule = field(default=Rule(PAUSE_ON, "retry"))
    needs_id: bool = False

    def pauses_after(self, declared: int | None) -> int | None:
        """How many failures in a row pause the queue, None for never; `declared` is the declaration's value."""
        chosen = declared if self.pause_after is None else self.pause_after
        return None if chosen == 0 else chosen

    def policy(self, declared: RetryPolicy) -> RetryPolicy:
        """The queue's policy with this consumer's own options. Raises ValueError."""
        return replace(
            declared,
            rules=(*self.rules, *declared.rules),
            backoff=declared.backoff if self.backoff is None else self.backoff,
            jitter=declared.jitter if self.jitter is None else self.jitter,
            age_ms_max=declared.age_ms_max if self.age_ms_max is None else self.age_ms_max,
            own=declared.own if self.decide is None else self.decide,
        )


def read_options(
    *,
    rules: object,
    park_on: object,
    retry_on: object,
    backoff: object,
    jitter: object,
    age_max: object,
    decide: object,
    timeout: object,
    prefetch: object,
    concurrency: object,
    codec: object,
    middleware: object,
    crashes_max: object,
    pause_after: object,
    pause_on: object,
    needs_id: object,
) -> ConsumerOptions:
    """Checks the options that an author wrote, whatever they are. Raises `InvalidApp`, which names the option."""
    pauses_after = None if pause_after is None else _whole("pause_after", pause_after, 0, "; 0 is never")
    return ConsumerOptions(
        rules=_error_rules(rules, park_on, retry_on),
        backoff=None if backoff is None else _named("backoff", lambda: backoff_of(cast("Backoff", backoff))),
        jitter=None if jitter is None else _part("jitter", jitter),
        age_ms_max=None if age_max is None else _delay_ms("age_max", age_max),
        decide=None if decide is None else _decider(decide),
        timeout_ms=None if timeout is None else _timeout_ms(timeout),
        prefetch=_whole("prefetch", prefetch, 1, most=_PREFETCH_MAX),
        concurrency=None if concurrency is None else _whole("concurrency", concurrency, 1),
        codec=None if codec is None else read_codec(codec),
        middleware=_middleware(middleware),
        crashes_max=None
        if crashes_max is None
        else _whole("crashes_max", crashes_max, 2, " (one crash may be a neighbour's), or None"),
        pause_after=pauses_after,
        pause_on=_pause_rule(pause_on, is_used=pauses_after != 0),
        needs_id=_yes_or_no("needs_id", needs_id),
    )


def read_codec(given: object) -> Codec:
    """A codec, if it is one. Raises `InvalidApp`."""
    if not is_codec(given):
        raise InvalidApp(f"codec is {given!r}; give an object with reader(body_type), write(value) and a content_type")
    return cast("Codec", given)


def _error_rules(rules: object, park_on: object, retry_on: object) -> tuple[Rule, ...]:
    """The rules in their order: the author's own, then `park_on`, then `retry_on`; with `retry_on` all else is
    parked."""
    found = [*_rules(rules)]
    parks = _causes("park_on", park_on)
    if parks:
        found.append(Rule(parks, "park"))
    if retry_on is not None:
        retries = _causes("retry_on", retry_on)
        if retries:
            found.append(Rule(retries, "retry"))
        found.append(Rule(Exception, "park"))
    return tuple(found)


def _rules(given: object) -> tuple[Rule, ...]:
    rules = _several(given)
    for one in rules:
        if not isinstance(one, Rule):
            raise InvalidApp(f'rules has {one!r}, which is no rule; write Rule(ValueError, "park")')
    return rules


def _pause_rule(given: object, *, is_used: bool) -> Rule:
    causes = _causes("pause_on", given)
    if not causes and is_used:
        raise InvalidApp("pause_on is empty; leave it out, or say pause_after=0, which is never")
    return Rule(causes if causes else Exception, "retry")


def _causes(name: str, given: object) -> tuple[Cause, ...]:
    return _named(name, lambda: causes_of(cast("Cause", given)))


def _decider(given: object) -> Any:
    if not callable(given):
        raise InvalidApp(f"decide is {given!r}, which can't be called; give a function of an outcome and a situation")
    if is_coroutine_function(given) or is_generator_function(given):
        raise InvalidApp(f"decide is {callable_name(given)}, which nobody awaits; give a plain function")
    if not takes_positional(given, 2):
        raise InvalidApp(f"decide is {callable_name(given)}, which does not take an outcome and a situation")
    return given


def _middleware(given: object) -> tuple[Middleware, ...]:
    functions = _several(given)
    for one in functions:
        check_middleware(one)
    return functions


def _several(given: object) -> tuple[Any, ...]:
    """An option that takes one value or several."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def _delay_ms(name: str, given: object) -> int:
    return _named(name, lambda: delay_ms_of(cast("Delay", given)))


def _timeout_ms(given: object) -> int:
    timeout_ms = _delay_ms("timeout", given)
    if timeout_ms <= 0:
        raise InvalidApp("a timeout must leave the handler some time")
    return timeout_ms


def _part(name: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise InvalidApp(f"{name} is {given!r}; give a part, 0 to 1")
    return given


def _yes_or_no(name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise InvalidApp(f"{name} is {given!r}; give True or False")
    return given


def _whole(name: str, given: object, least: int, hint: str = "", *, most: int | None = None) -> int:
    wanted = f"give {least} to {most}" if most is not None else f"give {least} or more{hint}"
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidApp(f"{name} is {given!r}, which is no whole number; {wanted}")
    if given < least or (most is not None and given > most):
        raise InvalidApp(f"{name} is {given}; {wanted}")
    return given


def _named(name: str, read: Callable[[], _Value]) -> _Value:
    """An option as core reads it; a refusal gets the option's name."""
    try:
        return read()
    except ValueError as error:
        raise InvalidApp(f"{name}: {error}") from None
