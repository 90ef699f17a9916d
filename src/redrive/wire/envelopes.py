"""An envelope: a message whose properties no frame has room for any more, kept whole in the body of another.

A copy of ours adds headers, and a message whose own headers fill a frame (131 kB) leaves no room for them. Its parked
copy has `x-redrive-envelope`, small headers of its own, and this body:

    redrive envelope 1\\n    4 octets, the length of the properties    the properties, raw    the body

Nothing is lost: what was put in comes out to the byte.
"""

import struct

from redrive.wire.properties import Properties

MAGIC = b"redrive envelope 1\n"
_LENGTH = struct.Struct(">I")


def wrap(properties: Properties, body: bytes) -> bytes:
    """The body of an envelope around a message."""
    raw = properties.raw
    return b"".join((MAGIC, _LENGTH.pack(len(raw)), raw, body))


def unwrap(body: bytes) -> tuple[Properties, bytes] | None:
    """The message in an envelope's body; None if it is none. The properties are not looked at."""
    start = len(MAGIC) + _LENGTH.size
    if len(body) < start or not body.startswith(MAGIC):
        return None
    (length,) = _LENGTH.unpack_from(body, len(MAGIC))
    if len(body) < start + length:
        return None
    return Properties(body[start : start + length]), body[start + length :]
