"""The client's address behind proxies: only proxies that the operator trusts are believed.

Only a trusted peer's `X-Forwarded-For` is read, from its end: the last address that is no trusted proxy's own is the
client's. If that is no IP address, the peer itself is the client, so that no stranger's text gets into the audit as an
address.
"""

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_SCHEMES = ("http", "https")
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedProxies:
    """An ASGI app around another, which then sees the client's address that trusted proxies forward."""

    def __init__(self, app: ASGIApp, *, trusted: Sequence[str]) -> None:
        self._app = app
        self._trusts_all = "*" in trusted
        self._networks: list[_Network] = [ipaddress.ip_network(one) for one in trusted if one != "*"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        client = scope.get("client")
        if scope["type"] == "http" and client and self._is_trusted(read_address(client[0])):
            headers = Headers(scope=scope)
            forwarded = self._client_of(headers.getlist("x-forwarded-for"))
            scheme = headers.get("x-forwarded-proto", "").strip().lower()
            scope = {
                **scope,
                "client": client if forwarded is None else (str(forwarded), 0),
                "scheme": scheme if scheme in _SCHEMES else scope["scheme"],
            }
        await self._app(scope, receive, send)

    def _client_of(self, lines: list[str]) -> _Address | None:
        """The nearest address that is not a trusted proxy's; None where the nearest is no address."""
        found = None
        for text in reversed(",".join(lines).split(",")):
            address = read_address(text)
            if address is None:
                return found
            found = address
            if not self._is_trusted(address) or self._trusts_all:
                return found
        return found

    def _is_trusted(self, address: _Address | None) -> bool:
        return self._trusts_all or (address is not None and any(address in one for one in self._networks))


def read_address(text: str) -> _Address | None:
    """An IP address, also with a port, in brackets or quotes; None where it is none."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
