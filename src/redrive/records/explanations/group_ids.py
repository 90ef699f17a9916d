"""The group of a dead letter: the id that all letters of one kind share, and a line for people that names the kind."""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

from redrive.core import shorten
from redrive.records.explanations.error_templates import error_codes, normalise_message
from redrive.records.explanations.stack_traces import top_frame

TITLE_BYTES_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupIdentity:
    """A group's id and title."""

    id: str
    title: str


class DescribedFailure(Protocol):
    """What is known of a failure: headers of a framework, an explanation or a dead letter."""

    @property
    def reason(self) -> str: ...
    @property
    def error_type(self) -> str | None: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def stack(self) -> str | None: ...
    @property
    def status_code(self) -> int | None: ...


def identify_group(
    failure: DescribedFailure, *, queue: str, type: str | None, owner: str | None = None, key: bytes = b""
) -> GroupIdentity:
    """By queue and whose it is (`owner`, if another than the queue), error type, status and the top of the stack with
    the error's codes, else the normalised message; without an error by queue, reason and the message's type.

    `key` is the database's secret. Without it, somebody who sees an id but not the error could try out which error it
    is.
    """
    error_message, stack = failure.error_message, failure.stack
    if failure.error_type is None and error_message is None and stack is None:
        suffix = "" if type is None else f" ({type})"
        return GroupIdentity(
            id=_digest(key, "reason", queue, _other(owner, queue), failure.reason, type),
            title=_line(f"{failure.reason} in {queue}{suffix}"),
        )
    message = "" if error_message is None else normalise_message(error_message)
    frame = None if stack is None else top_frame(stack)
    # One place in the code raises for every status and every code: a client's `raise_for_status`, a database's driver.
    codes = "" if frame is None or error_message is None else error_codes(error_message)
    return _identify(key, queue, owner, failure.error_type, message, (frame, codes), failure.status_code)


@lru_cache(maxsize=4096)
def _identify(
    key: bytes,
    queue: str,
    owner: str | None,
    error_type: str | None,
    message: str,
    raised_at: tuple[str | None, str],
    status_code: int | None,
) -> GroupIdentity:
    """`raised_at`: the frame that raised, if there is a stack, and the error's codes."""
    frame, codes = raised_at
    named = _short(error_type)
    status = "" if status_code is None else str(status_code)
    if status and status not in named and status not in message:
        named = f"{named} {status}"
    title = f"{named} in {queue}" + (f": {message}" if message else "")
    place = (queue, _other(owner, queue), error_type)
    if frame is not None:
        return GroupIdentity(id=_digest(key, "stack", *place, frame, status, codes), title=_line(title))
    return GroupIdentity(id=_digest(key, "message", *place, message, status, codes), title=_line(title))


def _other(owner: str | None, queue: str) -> str | None:
    """Letters of one owner and of another are never of one kind, whatever queue they say they failed in."""
    return None if owner == queue else owner


def _digest(key: bytes, *parts: str | None) -> str:
    """Each part with its length, for a stranger's text may have any character: what is two kinds has two ids."""
    digest = blake2b(key=key, digest_size=6)
    for part in parts:
        data = b"" if part is None else part.encode("utf-8", "surrogatepass")
        digest.update(b"-" if part is None else b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _short(error_type: str | None) -> str:
    """`InvalidOperationException` of `System.InvalidOperationException`: a line for people is short."""
    return "error" if error_type is None else error_type.rpartition(".")[2] or error_type


def _line(text: str) -> str:
    return shorten(" ".join(text.split()), TITLE_BYTES_MAX)
