"""Database URLs: `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user:password@host:port/name`."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from redrive.core import did_you_mean
from redrive.stores.errors import InvalidDatabaseUrl

_SHAPES = "sqlite:///FILE, sqlite:////ABSOLUTE/FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME"
_PASSWORD = re.compile(r"(?<=[?&])(password|passfile|sslpassword)=[^&#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlitePlace:
    """A file."""

    path: str

    @property
    def address(self) -> str:
        """The place for messages and logs."""
        return f"sqlite:///{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresPlace:
    """A server and a database on it; the driver reads the URL itself."""

    url: str = field(repr=False)
    address: str
    """The place for messages and logs: no password."""


def read_database_url(url: str) -> SqlitePlace | PostgresPlace:
    """Where the store is. Raises `InvalidDatabaseUrl`."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidDatabaseUrl(f"a database URL looks like {_SHAPES}; this one has no scheme")
    match scheme:
        case "sqlite":
            return _sqlite(rest)
        case "postgresql" | "postgres":
            return PostgresPlace(url=url, address=_without_password(rest))
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,20}", scheme):
        raise InvalidDatabaseUrl(f"a database URL looks like {_SHAPES}; what this one begins with is no scheme")
    hint = did_you_mean(scheme, ("sqlite", "postgresql"))
    raise InvalidDatabaseUrl(f"there are no stores on {scheme!r} ({hint}); a database URL looks like {_SHAPES}")


def _sqlite(rest: str) -> SqlitePlace:
    path = unquote(rest.removeprefix("/"))
    if not rest.startswith("/"):
        raise InvalidDatabaseUrl("sqlite:// needs three slashes before a relative path, four before an absolute one")
    if path in ("", ":memory:"):
        # Readers and the writer are separate connections: each would have a memory of its own.
        raise InvalidDatabaseUrl("a store needs a file: dead letters in memory would die with the process")
    return SqlitePlace(path=path)


def _without_password(rest: str) -> str:
    credentials, at, place = rest.rpartition("@")
    user = credentials.partition(":")[0]
    place = _PASSWORD.sub(r"\1=…", place)
    return f"postgresql://{user}{at}{place}"
