"""What a handler looks like: the body is its first parameter, the message its second if it has one, by position.

The type of the body is the first parameter's annotation; without one it is plain JSON.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from redrive.runtime.errors import InvalidApp
from redrive.runtime.message import Message

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SHAPE = "write it like: async def place(order: Order, message: Message)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What to give a handler, and how to call it."""

    body_type: Any
    takes_message: bool
    is_async: bool


def read_signature(handler: Callable[..., Any]) -> Signature:
    """Reads a handler's signature. Raises `InvalidApp` with what is wrong with it."""
    name = handler_name(handler)
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


def handler_name(handler: Callable[..., Any]) -> str:
    """A handler as an error message names it."""
    named = getattr(handler, "func", handler)  # functools.partial
    return f"handler {getattr(named, '__qualname__', type(named).__qualname__)}"


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine, also for objects with an async __call__ and for partials."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _annotation(handler: Callable[..., Any], parameter: inspect.Parameter, name: str) -> Any:
    written = parameter.annotation
    if written is inspect.Parameter.empty:
        return Any
    if not isinstance(written, str):
        return written
    function = getattr(handler, "func", handler)
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function)[parameter.name]
    except Exception as error:  # noqa: BLE001 - the annotation is the author's code and may raise anything
        raise InvalidApp(f"{name}: its annotation {written!r} can't be resolved ({error})") from None
