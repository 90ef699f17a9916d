"""`App`: which handler consumes which queue. It checks what the author wrote and never connects; wiring runs it."""

import functools
import inspect
import os
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from redrive.core import Backoff, Cause, Decision, InvalidInput, Outcome, RetryPolicy, Rule, Situation, did_you_mean
from redrive.runtime.codecs import JSON, Codec, Reader, UnsupportedType, body_reader
from redrive.runtime.consumer_options import (
    CRASHES_MAX,
    PAUSE_ON,
    PREFETCH,
    ConsumerOptions,
    Delay,
    Middleware,
    read_codec,
    read_options,
)
from redrive.runtime.errors import InvalidApp
from redrive.runtime.signatures import Signature, check_middleware, handler_name, read_signature
from redrive.topology import Compiled, Declaration, QueuePlan

_Handler = TypeVar("_Handler", bound=Callable[..., Any])
_Middleware = TypeVar("_Middleware", bound=Middleware)
_Method = TypeVar("_Method", bound=Callable[..., Any])
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
    """A registration together with its queue's plan: everything that is needed to consume one queue."""

    plan: QueuePlan
    policy: RetryPolicy
    handler: Callable[..., Any]
    signature: Signature
    reader: Reader | None
    codec: Codec
    options: ConsumerOptions
    middleware: tuple[Middleware, ...]


def _of_known_options(method: _Method) -> _Method:
    """Decorates `App.consumer`: a missing queue or an unknown option raises `InvalidApp` instead of TypeError. Type
    checkers see the method as it is written."""
    parameters = inspect.signature(method).parameters.values()
    options = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]

    @functools.wraps(method)
    def checked(self: "App", *arguments: Any, **given: Any) -> Any:
        queues = [*arguments, *([given["queue"]] if "queue" in given else [])]
        if not queues or callable(queues[0]):
            raise InvalidApp('a consumer needs the name of its queue; write @app.consumer("queue")')
        if len(queues) > 1:
            raise InvalidApp(f"consumer of {queues[0]}: options go by their names, and {queues[1]!r} has none")
        for name in given:
            if name not in options and name != "queue":
                raise InvalidApp(f"a consumer has no option {name}; {did_you_mean(name, options)}")
        return method(self, *arguments, **given)

    return checked  # type: ignore[return-value]


class App:
    """Handlers for the queues of one declaration.

        app = App("redrive.yaml")

        @app.consumer("orders", park_on=[ValueError])
        async def place(order: Order, message: Message) -> None: ...

    `source` is a file, relative to the working directory, a declaration, or a compiled one; anything else raises
    `InvalidApp`. Run the app with `redrive run module:app`, or `redrive.run(app)`.
    """

    def __init__(self, source: Source = "redrive.yaml", *, codec: Codec = JSON, name: str | None = None) -> None:
        if not isinstance(source, str | os.PathLike | Declaration | Compiled):
            raise InvalidApp(
                f"an app can't be made from {reprlib.repr(source)}; give the path of a redrive.yaml, or what"
                " redrive.topology.declare(…) returns"
            )
        if name is not None and not isinstance(name, str):
            raise InvalidApp(f"the app's name is {name!r}; give a text")
        self.source = source
        self.codec = read_codec(codec)
        self.name = name
        """Its name in the broker's list of connections."""
        self.registrations: list[Registration] = []
        self._middleware: list[Middleware] = []

    @_of_known_options
    def consumer(
        self,
        queue: str,
        *,
        park_on: Cause | Iterable[Cause] = (),
        retry_on: Cause | Iterable[Cause] | None = None,
        rules: Rule | Iterable[Rule] = (),
        backoff: "Backoff | Delay | None" = None,
        jitter: float | None = None,
        age_max: Delay | None = None,
        decide: Callable[[Outcome, Situation], Decision | None] | None = None,
        timeout: Delay | None = None,
        prefetch: int = PREFETCH,
        concurrency: int | None = None,
        codec: Codec | None = None,
        middleware: Middleware | Iterable[Middleware] = (),
        crashes_max: int | None = CRASHES_MAX,
        pause_after: int | None = None,
        pause_on: Cause | Iterable[Cause] = PAUSE_ON,
        needs_id: bool = False,
    ) -> Callable[[_Handler], _Handler]:
        """Registers a handler. If it returns, its message is acked; if it raises, the queue's policy decides about a
        retry, unless it raises `Park`, `RetryAfter` or `Requeue`.

        `park_on`: exception types and statuses that are parked without a retry. `retry_on`: if given, only these are
        retried. `pause_after`: so many failures in a row of the kinds in `pause_on` pause the queue; 0 is never, None
        is what the queue's declaration says (never by default). An option that takes a list also takes one value.
        Raises `InvalidApp` at once for invalid options and for handlers that can't be called.
        """
        if not isinstance(queue, str) or not queue:
            raise InvalidApp(f'{queue!r} is no name of a queue; write @app.consumer("queue")')
        try:
            options = read_options(
                rules=rules,
                park_on=park_on,
                retry_on=retry_on,
                backoff=backoff,
                jitter=jitter,
                age_max=age_max,
                decide=decide,
                timeout=timeout,
                prefetch=prefetch,
                concurrency=concurrency,
                codec=codec,
                middleware=middleware,
                crashes_max=crashes_max,
                pause_after=pause_after,
                pause_on=pause_on,
                needs_id=needs_id,
            )
        except InvalidApp as error:
            raise InvalidApp(f"consumer of {queue}: {error}") from None

        def register(handler: _Handler) -> _Handler:
            if not callable(handler):
                raise InvalidApp(f"consumer of {queue}: {handler!r} can't be called")
            signature = read_signature(handler)
            self.registrations.append(Registration(queue=queue, handler=handler, signature=signature, options=options))
            return handler

        return register

    def middleware(self, function: _Middleware) -> _Middleware:
        """Wraps every handler of the app, the first registered outermost: `async def audit(message, proceed)`.

        If it returns without having called `proceed`, it has done the work itself: the message is acked. If it called
        `proceed` and did not await it, the message fails. Raises `InvalidApp` for a function that can't be called so.
        """
        check_middleware(function)
        self._middleware.append(function)
        return function

    def consumptions(self, compiled: Compiled) -> tuple[Consumption, ...]:
        """Every registration with its queue's plan. Raises `InvalidApp` with all problems at once."""
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
