"""The API's settings: where it listens, and its limits."""

import ipaddress
from dataclasses import dataclass

from redrive.core import RedriveError

MEGABYTE = 1_000_000
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json"})
"""Paths that need no token and count for no quota."""


class InvalidSettings(RedriveError):
    """Settings that can't be used together; the message says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """The API's settings. Raises `InvalidSettings`: without tokens only this machine may reach the API."""

    host: str = "127.0.0.1"
    port: int = 8080
    require_auth: bool = True
    """False: everybody who reaches the API may do everything."""
    audit_reads: bool = False
    """Whether the audit records who reads a payload."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose X-Forwarded-For is trusted."""
    body_bytes_max: int = MEGABYTE
    edit_bytes_max: int = 32 * MEGABYTE
    """For a PATCH, which carries a message's body."""
    buffered_bytes_max: int = 256 * MEGABYTE
    """For all request bodies in memory together."""
    body_s_max: float = 20.0
    """Until a request's body has arrived."""
    request_s_max: float = 30.0
    """Until the response begins."""
    sending_s_max: float = 300.0
    """Until the response is sent, unless it is an event stream."""
    streams_max: int = 50
    token_streams_max: int = 10
    """Per token, like all `token_` settings below."""
    token_bodies_max: int = 8
    """Bodies that are being received."""
    token_bytes_max: int = 96 * MEGABYTE
    """For request bodies in memory."""
    token_answers_max: int = 16
    """Responses that the client does not read."""
    requests_at_once: int = 8
    """How many requests of a token are worked on at a time if no other token is active. Several active tokens share
    them, and each has at least one."""
    token_waiting_max: int = 32
    """Requests that wait until one of the token's others ends."""
    token_searches_max: int = 8
    """Searches that no index answers, waiting or running. One per token runs at a time."""
    searches_max: int = 2
    """Such searches that run at a time, for all tokens together."""
    connections_max: int = 1_000
    token_connections_max: int = 250
    """Beyond this, a token's connections are closed after each response."""
    keep_alive_s: float = 15.0
    shutdown_s: float = 15.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidSettings(f"{self.port} is no port; choose one from 1 to 65535, or 0 for any free one")
        if not self.require_auth and not self.is_loopback:
            raise InvalidSettings(
                f"the API does not listen on {self.host} without authentication: anybody who reaches it could read and "
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
                "without authentication no proxy can be trusted: anybody who reaches the proxy could read and delete "
                "messages; require tokens, or name no proxy"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it, and nobody through a proxy that runs here."""
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
