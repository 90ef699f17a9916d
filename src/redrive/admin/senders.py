"""What a request says of its sender before anybody has looked it up: a token's text, an address."""

import ipaddress
from collections.abc import Iterable

from starlette.types import Scope

_SCHEME = "bearer"


def bearer_of(scope: Scope) -> str | None:
    """The token that was sent, without whatever else the header has; None where there is none, or more than one."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    given = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, text = given[0].partition(" ")
    return text.strip() if scheme.lower() == _SCHEME else None


def address_of(scope: Scope) -> str:
    """Where a request comes from: an IP address, by a trusted proxy's word where there is one; else `unknown`."""
    client = scope.get("client")
    try:
        return str(ipaddress.ip_address(str(client[0]).partition("%")[0])) if client else "unknown"
    except ValueError:
        return "unknown"


def origin_of(address: str) -> str:
    """An address, or of IPv6 the network: one host has as many addresses there as it likes."""
    try:
        found = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
