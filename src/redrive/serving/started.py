"""What a server says of itself when it begins, or why it can't."""

from dataclasses import dataclass

from redrive.core import RedriveError


class ServeFailed(RedriveError):
    """The API can't be served; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """The token of a database that had none. It is shown once and stored only as a hash."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """It listens."""

    address: str
    """http://127.0.0.1:8025"""
    token: FirstToken | None
