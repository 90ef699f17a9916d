"""The signatures of handlers and middleware, checked when they are registered.

A handler's first parameter is the body, its second, if it has one, the message, both by position. The type of the body
is the first parameter's annotation; without one it is plain JSON. A function whose call would run nothing (a generator,
a coroutine that nobody awaits) is refused.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from redrive.runtime.errors import InvalidApp
from redrive.runtime.message import Message

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SHAPE = "write it like: async def place(order: Order, message: Message)"
_MIDDLEWARE_SHAPE = "write it like: async def audit(message, proceed): await proceed()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What to give a handler, and how to call it."""

    body_type: Any
    takes_message: bool
    is_async: bool


def read_signature(handler: Callable[..., Any]) -> Signature:
    """Reads a handler's signature. Raises `InvalidApp` with what is wrong with it."""
    name = handler_name(handler)
    if is_generator_function(handler):
        raise InvalidApp(f"{name} has a yield in it, so calling it runs nothing; return instead")
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        raise InvalidApp(f"{name} has no signature that can be read; {_SHAPE}") from None
    positional = [one for one in parameters if one.kind in _POSITIONAL]
    takes_any = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    if not positional and not takes_any:
        raise InvalidApp(f"{name} takes no body; {_SHAPE}")
    if any(one.default is one.empty for one in positional[2:]):
        raise InvalidApp(f"{name} takes {len(positional)} parameters; there are a body and a message; {_SHAPE}")
    needed = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY and one.default is one.empty]
    if needed:
        raise InvalidApp(f"{name} needs {', '.join(needed)} by keyword, which nobody gives it; {_SHAPE}")
    body_type = _annotation(handler, positional[0], name) if positional else Any
    if body_type is Message:
        raise InvalidApp(f"{name} takes the message first; the body is the first parameter, the message the second")
    return Signature(
        body_type=body_type, takes_message=takes_any or len(positional) > 1, is_async=is_coroutine_function(handler)
    )


def check_middleware(function: object) -> None:
    """Raises `InvalidApp` for a function that can't be called and awaited as a middleware."""
    if not callable(function):
        raise InvalidApp(f"middleware {function!r} can't be called; {_MIDDLEWARE_SHAPE}")
    name = f"middleware {callable_name(function)}"
    if not is_coroutine_function(function):
        raise InvalidApp(f"{name} is no coroutine function; {_MIDDLEWARE_SHAPE}")
    if not takes_positional(function, 2):
        raise InvalidApp(f"{name} does not take a message and proceed; {_MIDDLEWARE_SHAPE}")


def handler_name(handler: Callable[..., Any]) -> str:
    """A handler as an error message names it."""
    return f"handler {callable_name(handler)}"


def callable_name(function: Callable[..., Any]) -> str:
    """Any callable by its qualified name, a partial by what it calls, an object by its class."""
    named = _unwrapped(function)
    return str(getattr(named, "__qualname__", type(named).__qualname__))


def takes_positional(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with exactly so many arguments; True if that is not known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine, also for objects with an async __call__ and for partials."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(_function(handler))


def is_generator_function(handler: Callable[..., Any]) -> bool:
    """Whether calling it makes a generator, async or not, which runs nothing."""
    function = _function(handler)
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _function(handler: Callable[..., Any]) -> Any:
    """The function that runs when it is called."""
    called = _unwrapped(handler)
    return called if inspect.isroutine(called) else type(called).__call__


def _unwrapped(handler: Callable[..., Any]) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def _annotation(handler: Callable[..., Any], parameter: inspect.Parameter, name: str) -> Any:
    written = parameter.annotation
    if written is inspect.Parameter.empty:
        return Any
    if not isinstance(written, str):
        return written
    try:
        return get_type_hints(_function(handler))[parameter.name]
    except Exception as error:  # noqa: BLE001 - the annotation is the author's code and may raise anything
        raise InvalidApp(f"{name}: its annotation {written!r} can't be resolved ({error})") from None
