"""`App`: which handler takes which queue. It holds and checks, and never connects; running it is wiring's."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from redrive.core import Backoff, Decision, InvalidDuration, InvalidInput, Outcome, Policy, Rule, Situation, delay_ms_of
from redrive.runtime.codecs import JSON, Codec, Reader, UnsupportedType, body_reader
from redrive.runtime.errors import InvalidApp
from redrive.runtime.options import (
    CRASHES_MAX,
    PAUSE_AFTER,
    PAUSE_ON,
    PREFETCH,
    ConsumerOptions,
    Delay,
    Middleware,
    error_rules,
)
from redrive.runtime.signatures import Signature, handler_name, read_signature
from redrive.topology import Compiled, Declaration, QueuePlan

_Handler = TypeVar("_Handler", bound=Callable[..., Any])
_Middleware = TypeVar("_Middleware", bound=Middleware)
Source = str | os.PathLike[str] | Declaration | Compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A handler for a queue."""

    queue: str
    handler: Callable[..., Any]
    signature: Signature
    options: ConsumerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """A registration after it has met the declaration: everything needed to consume one queue."""

    plan: QueuePlan
    policy: Policy
    handler: Callable[..., Any]
    signature: Signature
    reader: Reader | None
    codec: Codec
    options: ConsumerOptions
    middleware: tuple[Middleware, ...]


class App:
    """Handlers for the queues of one declaration.

        app = App("redrive.yaml")

        @app.consumer("orders", park_on=[ValueError])
        async def place(order: Order, message: Message) -> None: ...

    `source` is a file, relative to the working directory, a declaration, or one that is compiled already. Run it with
    `redrive run module:app`, or `redrive.run(app)`.
    """

    def __init__(self, source: Source = "redrive.yaml", *, codec: Codec = JSON, name: str | None = None) -> None:
        self.source = source
        self.codec = codec
        self.name = name
        """What the broker's connection list calls it."""
        self.registrations: list[Registration] = []
        self._middleware: list[Middleware] = []

    def consumer(
        self,
        queue: str,
        *,
        park_on: Iterable[Any] = (),
        retry_on: Iterable[Any] | None = None,
        rules: Iterable[Rule] = (),
        backoff: Backoff | None = None,
        jitter: float | None = None,
        age_max: Delay | None = None,
        decide: Callable[[Outcome, Situation], Decision | None] | None = None,
        timeout: Delay | None = None,
        prefetch: int = PREFETCH,
        concurrency: int | None = None,
        codec: Codec | None = None,
        middleware: Iterable[Middleware] = (),
        crashes_max: int | None = CRASHES_MAX,
        pause_after: int | None = PAUSE_AFTER,
        pause_on: Iterable[Any] = PAUSE_ON,
    ) -> Callable[[_Handler], _Handler]:
        """Registers a handler. Returning acks; raising retries by the queue's policy; `Park`, `RetryAfter` and
        `Requeue` say otherwise.

        `park_on`: exception types and statuses that are not worth a retry. `retry_on`: if given, only these are. Raises
        `InvalidApp`, at once, for options that can't be and handlers that can't be called.
        """
        try:
            options = ConsumerOptions(
                rules=error_rules(rules, park_on, retry_on),
                backoff=backoff,
                jitter=jitter,
                age_ms_max=None if age_max is None else delay_ms_of(age_max),
                decide=decide,
                timeout_ms=None if timeout is None else delay_ms_of(timeout),
                prefetch=prefetch,
                concurrency=concurrency,
                codec=codec,
                middleware=tuple(middleware),
                crashes_max=crashes_max,
                pause_after=pause_after,
                pause_on=Rule(tuple(pause_on), "retry") if pause_after is not None else Rule(Exception, "retry"),
            )
        except (InvalidDuration, ValueError, InvalidApp) as error:
            raise InvalidApp(f"consumer of {queue}: {error}") from None

        def register(handler: _Handler) -> _Handler:
            if not callable(handler):
                raise InvalidApp(f"consumer of {queue}: {handler!r} can't be called")
            signature = read_signature(handler)
            self.registrations.append(Registration(queue=queue, handler=handler, signature=signature, options=options))
            return handler

        return register

    def middleware(self, function: _Middleware) -> _Middleware:
        """Wraps every handler of the app, the first registered outermost: `async def audit(message, proceed)`."""
        self._middleware.append(function)
        return function

    def consumptions(self, compiled: Compiled) -> tuple[Consumption, ...]:
        """Every registration with its queue's plan. Raises `InvalidApp` with everything that is wrong at once."""
        problems: list[str] = []
        found: list[Consumption] = []
        if not self.registrations:
            problems.append('the app has no consumers; add one with @app.consumer("queue")')
        for one in self.registrations:
            if any(other.plan.name == one.queue for other in found):
                problems.append(f"queue {one.queue} has two handlers in one app; give it one")
                continue
            try:
                found.append(self._consumption(one, compiled.queue(one.queue)))
            except (InvalidInput, ValueError) as error:
                problems.append(f"{handler_name(one.handler)}: {error}")
            except UnsupportedType as error:
                problems.append(f"{handler_name(one.handler)} of queue {one.queue}: {error}")
        if problems:
            raise InvalidApp(*problems)
        return tuple(found)

    def _consumption(self, one: Registration, plan: QueuePlan) -> Consumption:
        codec = self.codec if one.options.codec is None else one.options.codec
        return Consumption(
            plan=plan,
            policy=one.options.policy(plan.policy),
            handler=one.handler,
            signature=one.signature,
            reader=body_reader(codec, one.signature.body_type),
            codec=codec,
            options=one.options,
            middleware=(*self._middleware, *one.options.middleware),
        )
