"""What a request says about its sender before any lookup: a token's text, an address."""

import ipaddress
from collections.abc import Iterable

from starlette.types import Scope

_SCHEME = "bearer"


def bearer_token(scope: Scope) -> str | None:
    """The bearer token of a request; None if there is none, or more than one Authorization header."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    given = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, text = given[0].partition(" ")
    return text.strip() if scheme.lower() == _SCHEME else None


def client_address(scope: Scope) -> str:
    """The client's IP address, as a trusted proxy reports it if there is one; else `unknown`."""
    client = scope.get("client")
    try:
        return str(ipaddress.ip_address(str(client[0]).partition("%")[0])) if client else "unknown"
    except ValueError:
        return "unknown"


def address_network(address: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 one: there a host has as many addresses as it likes."""
    try:
        found = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
