"""Where the API listens, and what it takes at most."""

import ipaddress
from dataclasses import dataclass

from redrive.core import RedriveError

MEGABYTE = 1_000_000


class InvalidSettings(RedriveError):
    """Settings that can't be used together; the text says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the API. Raises `InvalidSettings`: without tokens nobody beyond this machine may reach it."""

    host: str = "127.0.0.1"
    port: int = 8080
    require_auth: bool = True
    """False: whoever reaches it may do everything."""
    audit_reads: bool = False
    """Whether who reads a payload is in the audit."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose X-Forwarded-For is believed."""
    body_bytes_max: int = MEGABYTE
    edit_bytes_max: int = 32 * MEGABYTE
    """Of a PATCH, which carries a message's body."""
    buffered_bytes_max: int = 256 * MEGABYTE
    """Of all bodies in hand together."""
    body_s_max: float = 20.0
    """Until a request's body is here."""
    request_s_max: float = 30.0
    """Until its answer begins."""
    sending_s_max: float = 300.0
    """Until its answer is sent, unless it is a stream of events."""
    streams_max: int = 50
    token_streams_max: int = 10
    """Of one token; likewise below."""
    token_bodies_max: int = 8
    """Bodies that are being received."""
    token_bytes_max: int = 96 * MEGABYTE
    """Of bodies in hand."""
    token_answers_max: int = 16
    """Answers that nobody reads."""
    requests_at_once: int = 8
    """A token that asks alone has so many requests worked on at a time; several share them, and each has one."""
    token_waiting_max: int = 32
    """Requests that wait for their turn."""
    token_searches_max: int = 8
    """Searches that no index answers, waiting or running; one of a token runs at a time."""
    searches_max: int = 2
    """Such searches that run at a time, of all tokens."""
    connections_max: int = 1_000
    token_connections_max: int = 250
    """Beyond them a token's connections are closed after each answer."""
    keep_alive_s: float = 15.0
    shutdown_s: float = 15.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidSettings(f"{self.port} is no port; choose one from 1 to 65535, or 0 for any free one")
        if not self.require_auth and not self.is_loopback:
            raise InvalidSettings(
                f"the API does not listen on {self.host} without authentication: anybody in reach could read and "
                "delete messages; listen on 127.0.0.1, or require tokens"
            )
        for proxy in self.trusted_proxies:
            if proxy != "*" and not _is_network(proxy):
                raise InvalidSettings(
                    f"the trusted proxy {proxy!r} is neither an address nor a network; write it like 10.0.0.5 or "
                    "10.0.0.0/24"
                )
        if not self.require_auth and self.trusted_proxies:
            raise InvalidSettings(
                "without authentication no proxy can be trusted: whoever reaches the proxy could read and delete "
                "messages; require tokens, or name no proxy"
            )

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def is_private(self) -> bool:
        """Only this machine can reach it, and nobody through a proxy that runs here."""
        return self.is_loopback and not self.trusted_proxies


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host to listen on is this machine's own."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
