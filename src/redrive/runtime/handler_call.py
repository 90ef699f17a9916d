"""How a handler is called: as a coroutine or in a thread, inside its middleware, within its timeout."""

import asyncio
import contextvars
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor as Threads
from typing import Any, NamedTuple

from redrive.core import Requeue
from redrive.runtime.consumer_options import Middleware
from redrive.runtime.message import Message
from redrive.runtime.signatures import callable_name

Call = Callable[[Any, Message | None], Awaitable[Any]]


class HandlerCall(NamedTuple):
    """How a queue's handler is called, and how many may run at once; None is as many as there are deliveries."""

    call: Call
    concurrency: int | None


_NEVER_BEGAN = "the handler had not begun"


class HandlerTimedOut(BaseException):
    """The handler did not end in time. Not an Exception, so that no `except` of a handler catches it."""


def build_call(
    handler: Callable[..., Any],
    *,
    takes_message: bool,
    is_async: bool,
    middleware: tuple[Middleware, ...] = (),
    timeout_s: float | None = None,
    threads: Threads | None = None,
) -> Call:
    """A coroutine function of body and message around a handler; a message is needed if the handler or any middleware
    takes it. It raises what the handler raises, and `HandlerTimedOut`."""
    call = _coroutine(handler, takes_message) if is_async else _threaded(handler, takes_message, threads)
    for one in reversed(middleware):
        call = _wrapped(one, call)
    return call if timeout_s is None else _timed(call, timeout_s)


def _coroutine(handler: Callable[..., Any], takes_message: bool) -> Call:
    if takes_message:
        return handler

    async def call(body: Any, message: Message | None) -> Any:
        return await handler(body)

    return call


def _threaded(handler: Callable[..., Any], takes_message: bool, threads: Threads | None) -> Call:
    async def call(body: Any, message: Message | None) -> Any:
        context = contextvars.copy_context()
        arguments = (body, message) if takes_message else (body,)
        if threads is None:
            result = await asyncio.to_thread(_in_thread, handler, arguments)
        else:
            future = threads.submit(context.run, _in_thread, handler, arguments)
            try:
                result = await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                if future.cancelled():  # no thread was free all the time
                    raise asyncio.CancelledError(_NEVER_BEGAN) from None
                raise
        if result is None:
            return None
        if isinstance(result, Coroutine):  # a plain function that returns a coroutine: nobody else awaits it
            return await result
        if isinstance(result, Generator | AsyncGenerator):
            raise TypeError("the handler returned a generator, and nothing of it has run")
        return result

    return call


def _in_thread(handler: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return handler(*arguments)
    except (StopIteration, GeneratorExit) as error:
        # One can't be set on a future, the other closes the coroutine that awaits it.
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error


def _wrapped(middleware: Middleware, inner: Call) -> Call:
    async def call(body: Any, message: Message | None) -> Any:
        assert message is not None
        outcome: Any = None
        runs: list[Coroutine[Any, Any, Any]] = []

        async def run() -> Any:
            nonlocal outcome
            outcome = await inner(body, message)
            return outcome

        def proceed() -> Coroutine[Any, Any, Any]:
            runs.append(run())
            return runs[-1]

        result = await middleware(message, proceed)
        for one in runs:
            _check_ended(one, middleware)
        return outcome if result is None else result

    return call


def _check_ended(run: Coroutine[Any, Any, Any], middleware: Middleware) -> None:
    """Raises RuntimeError if a middleware has returned before what it began: an ack would be for no work at all."""
    state = inspect.getcoroutinestate(run)
    if state == inspect.CORO_CLOSED:
        return
    if state == inspect.CORO_CREATED:
        run.close()  # it must not run while its message is on its way to a retry
    raise RuntimeError(
        f"middleware {callable_name(middleware)} called proceed() and returned before it had ended; write `await"
        " proceed()`"
    )


def _timed(inner: Call, timeout_s: float) -> Call:
    async def call(body: Any, message: Message | None) -> Any:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await inner(body, message)
        except TimeoutError as error:
            if not limit.expired():
                raise
            cause = error.__cause__
            if cause is not None and cause.args == (_NEVER_BEGAN,):
                # Threads can't be ended: handlers that ran out of time hold them. That is no attempt of this message.
                raise Requeue(reason="no thread was free for it in time") from None
            raise HandlerTimedOut from None

    return call
