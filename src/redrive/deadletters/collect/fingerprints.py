"""The fingerprint of a message: says whether one that is delivered again is one that was delivered before."""

import struct
from functools import lru_cache
from hashlib import blake2b

from redrive.core import RedriveError, headers
from redrive.wire import raw_entries

FINGERPRINT_BYTES = 16

_BROKERS = frozenset(name.encode() for name in headers.COUNT_HEADERS)
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x80, 0x40, 0x20
"""Flags of a content header's first octet: the properties that precede the headers, and the headers."""
_LENGTH = struct.Struct(">I")


def fingerprint(*, exchange: str, routing_key: str, properties: bytes, body: bytes) -> bytes:
    """Sixteen bytes, equal for one message that is delivered twice. They are made of every byte of the message.

    Left out is what the broker writes anew for each delivery: its delivery counts, the order of the headers, and
    whether there is an empty table of them. Properties that can't be parsed count as raw bytes.
    """
    try:
        others, entries = _split(properties)
    except (RedriveError, IndexError, struct.error):
        others, entries = properties, []
    return fingerprint_apart((exchange, routing_key), others, entries, body)


def fingerprint_apart(route: tuple[str, str], others: bytes, entries: list[bytes], body: bytes) -> bytes:
    """The same for a message that is parsed already: `others` are all properties but the headers, `entries` are
    the headers that are not the broker's."""
    way = _encode_route(route)
    # With their lengths, so that no byte moves from one part to the next unnoticed; entries contain their own.
    sizes = b"%d %d %d" % (len(way), len(others), len(entries))
    digest = blake2b(b"\n".join((sizes, way, others, *sorted(entries))), digest_size=FINGERPRINT_BYTES)
    digest.update(body)
    return digest.digest()


@lru_cache(maxsize=256)
def _encode_route(route: tuple[str, str]) -> bytes:
    return "\0".join(route).encode("utf-8", "surrogatepass")


def _split(properties: bytes) -> tuple[bytes, list[bytes]]:
    """All but the headers, and those entries of the headers that are not the broker's."""
    flags = properties[0]
    if not flags & _HEADERS:
        return properties, []
    start = 2
    if flags & _CONTENT_TYPE:
        start += 1 + properties[start]
    if flags & _CONTENT_ENCODING:
        start += 1 + properties[start]
    end = start + 4 + _LENGTH.unpack_from(properties, start)[0]
    table = properties[start + 4 : end]
    entries = [entry for name, entry in raw_entries(table) if name not in _BROKERS]
    return bytes((flags & ~_HEADERS,)) + properties[1:start] + properties[end:], entries
