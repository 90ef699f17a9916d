"""Letters of one kind: the id they share, and a line for people that names the kind."""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from redrive.core import shorten
from redrive.records.understanding.normalising import normalise_message
from redrive.records.understanding.stacks import top_frame

TITLE_BYTES_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A group's id and title."""

    id: str
    title: str


def group(
    *,
    queue: str,
    reason: str,
    type: str | None,
    error_type: str | None,
    error_message: str | None,
    stack: str | None,
) -> Kind:
    """By queue, error type and the top of the stack, else the normalised message; without an error by queue, reason and
    the message's type."""
    if error_type is None and error_message is None and stack is None:
        suffix = "" if type is None else f" ({type})"
        return Kind(id=_digest("reason", queue, reason, type or ""), title=_line(f"{reason} in {queue}{suffix}"))
    message = "" if error_message is None else normalise_message(error_message)
    return _kind(queue, error_type, message, None if stack is None else top_frame(stack))


@lru_cache(maxsize=4096)
def _kind(queue: str, error_type: str | None, message: str, frame: str | None) -> Kind:
    title = f"{_short(error_type)} in {queue}" + (f": {message}" if message else "")
    if frame is not None:
        return Kind(id=_digest("stack", queue, error_type or "", frame), title=_line(title))
    return Kind(id=_digest("message", queue, error_type or "", message), title=_line(title))


def _digest(*parts: str) -> str:
    return blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=6).hexdigest()


def _short(error_type: str | None) -> str:
    """`InvalidOperationException` of `System.InvalidOperationException`: a line for people is short."""
    return "error" if error_type is None else error_type.rpartition(".")[2] or error_type


def _line(text: str) -> str:
    return shorten(" ".join(text.split()), TITLE_BYTES_MAX)
