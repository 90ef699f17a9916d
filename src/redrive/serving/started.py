"""What a server says of itself when it begins, or why it can't."""

from dataclasses import dataclass, field

from redrive.core import RedriveError


class ServeFailed(RedriveError):
    """The API can't be served; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """The token of a database that had none. It is told once, to a terminal or a file of its owner's, and stored only
    as a hash."""

    name: str
    expires_at_ms: int
    text: str | None = field(repr=False)
    """None where it is in the file: what is printed may end in a log."""
    file: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """It listens."""

    address: str
    """http://127.0.0.1:8025"""
    token: FirstToken | None
