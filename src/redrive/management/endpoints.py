"""Where a management API is: its URL, given or guessed from the AMQP host, and the user.

The plugin's port is a convention (15672, 15671 with TLS), so the guess may be wrong: errors name the address.
"""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from redrive.core import mask_url
from redrive.management.errors import InvalidManagementUrl

PORT, PORT_TLS = 15672, 15671


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementEndpoint:
    """One management API and the user of its requests. `prefix` is its path, where it is not at the root."""

    host: str
    port: int
    is_tls: bool = False
    prefix: str = ""
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    source: str | None = None
    """Which setting named it, for messages; None: it is a guess."""

    @property
    def address(self) -> str:
        """For messages and logs: no password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.prefix}"


def parse_management_url(url: str, *, user: str = "guest", password: str = "guest") -> ManagementEndpoint:
    """An endpoint from `http(s)://[user:password@]host[:port][/prefix]`; credentials in it win over the given ones.

    Raises `InvalidManagementUrl`, never showing the password.
    """
    shown = mask_url(url)[:200]
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidManagementUrl(f"{shown} is no URL: its host or port can't be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidManagementUrl(f"{shown} is no management URL; write it like http://user:password@host:{PORT}")
    if parts.query or parts.fragment:
        raise InvalidManagementUrl(f"{shown} has a query; a management URL ends with its path")
    is_tls = parts.scheme == "https"
    default_port = PORT_TLS if is_tls else PORT
    return ManagementEndpoint(
        host=parts.hostname,
        port=default_port if port is None else port,
        is_tls=is_tls,
        prefix=parts.path.rstrip("/").removesuffix("/api"),
        user=user if parts.username is None else unquote(parts.username),
        password=password if parts.password is None else unquote(parts.password),
    )


def guess_endpoint(host: str, *, is_tls: bool, user: str, password: str) -> ManagementEndpoint:
    """Where the API of a broker on `host` usually is."""
    port = PORT_TLS if is_tls else PORT
    return ManagementEndpoint(host=host, port=port, is_tls=is_tls, user=user, password=password)
