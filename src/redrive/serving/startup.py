"""What the server reports when it starts, or why it can't."""

from dataclasses import dataclass, field

from redrive.core import RedriveError


class ServeFailed(RedriveError):
    """The API can't be served; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """The token made for a database that had none. It is shown once, on a terminal or in a file that only its owner may
    read, and stored only as a hash."""

    name: str
    expires_at_ms: int
    text: str | None = field(repr=False)
    """None where it is in the file: what is printed may end in a log."""
    file: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStarted:
    """The server listens."""

    address: str
    """http://127.0.0.1:8025"""
    token: FirstToken | None
