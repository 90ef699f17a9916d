"""What a handler answers, and the errors of RabbitMQ's management plugin.

An AmqpError of the engine becomes the status that the plugin gives it: 404 stays 404, "access refused" is 401, and all
the rest is a bad request with the broker's own text.
"""

from dataclasses import dataclass, field
from typing import Any

from redrive.core import RedriveError
from redrive.embedded.engine import AmqpError

JSON = Any
"""JSON from outside: its reader checks it."""

NOTHING = object()
"""Stands for an answer without a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: JSON, or `NOTHING`."""

    status: int = 200
    content: JSON = NOTHING
    headers: dict[str, str] = field(default_factory=dict)


def found(content: JSON) -> Reply:
    """200 with JSON."""
    return Reply(content=content)


def done() -> Reply:
    """204: it is done, or was so already."""
    return Reply(status=204)


def made(*, new: bool = True, headers: dict[str, str] | None = None) -> Reply:
    """201 for what is new, 204 for what was there."""
    return Reply(status=201 if new else 204, headers=headers or {})


class ApiError(RedriveError):
    """An error answer. `reason` is text, or a list where RabbitMQ shows an Erlang tuple."""

    def __init__(self, status: int, error: str, reason: JSON, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers or {}
        super().__init__(f"{status} {error}: {reason}")

    def reply(self) -> Reply:
        """The same as an answer, in RabbitMQ's form."""
        content = {"error": self.error, "reason": self.reason}
        return Reply(status=self.status, content=content, headers=self.headers)


def bad_request(reason: JSON) -> ApiError:
    """400."""
    return ApiError(400, "bad_request", reason)


def key_missing(name: str) -> ApiError:
    """400 for a body without a key that must be there."""
    return bad_request(f"[{{key_missing,{name}}}]")


def object_not_found() -> ApiError:
    """404 for an object that does not exist."""
    return ApiError(404, "Object Not Found", "Not Found")


def not_found(reason: str) -> ApiError:
    """404 for an object that a command needs."""
    return ApiError(404, "not_found", reason)


def refused(error: AmqpError) -> ApiError:
    """An AmqpError as the plugin reports it."""
    if error.code == 404:
        return not_found(error.reason)
    if error.code == 403:
        return ApiError(401, "not_authorised", "Access refused.")
    return bad_request(error.reason)
