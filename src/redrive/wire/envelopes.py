"""Envelopes: a message whose properties would no longer fit into a frame, kept whole in the body of another.

Our copies add headers, and a message whose own headers fill a frame (131 kB) has no room for them. Its parked copy has
`x-redrive-envelope`, small headers of its own, and this body:

    redrive envelope 1\\n    4 octets, the length of the properties    the properties, raw    the body

Nothing is lost: what was put in comes out to the byte.

An envelope proves nothing: anybody can make one. The message inside is one that its sender could have sent without an
envelope, and is trusted no more than that.
"""

import struct
from typing import Any

from redrive.core import headers
from redrive.wire.errors import ProtocolError
from redrive.wire.properties import Properties

MAGIC = b"redrive envelope 1\n"
ENVELOPE_CONTENT_TYPE = "application/vnd.redrive.envelope"
_LENGTH = struct.Struct(">I")
_PROPERTIES_BYTES_MAX = 1 << 20
"""Properties come in one frame, and no frames in use are larger. Longer ones would be expensive to read."""
BEFORE_BODY_BYTES_MAX = len(MAGIC) + _LENGTH.size + _PROPERTIES_BYTES_MAX
"""How much of an envelope may come before the message's own body."""

_NAME = headers.ENVELOPE.encode()
_ENVELOPE_WINS = headers.LIFE_HEADERS | headers.COUNT_HEADERS | {headers.ENVELOPE, headers.DIGEST}
"""Of these headers the envelope's count, never the message's own."""
_MESSAGE_WINS = headers.REDRIVEN_HEADERS | {headers.MESSAGE_ID}
"""Of these headers the message's own count, where it has any."""


def wrap_in_envelope(properties: Properties, body: bytes) -> bytes:
    """The body of an envelope around a message."""
    raw = properties.raw
    return b"".join((MAGIC, _LENGTH.pack(len(raw)), raw, body))


def unwrap_envelope(body: bytes) -> tuple[Properties, bytes] | None:
    """The message in an envelope's body; None if it is no envelope. The properties are not parsed."""
    start = len(MAGIC) + _LENGTH.size
    if len(body) < start or not body.startswith(MAGIC):
        return None
    (length,) = _LENGTH.unpack_from(body, len(MAGIC))
    if len(body) < start + length:
        return None
    return Properties(body[start : start + length]), body[start + length :]


def may_be_envelope(raw: bytes) -> bool:
    """Whether a message with these properties can be an envelope; nothing is decoded."""
    return _NAME in raw


def open_envelope(raw: bytes, body: bytes) -> tuple[Properties, bytes] | None:
    """The message in an envelope, as it would have been parked if there had been room.

    It has its own properties and headers, and the envelope's headers about its failure. None for what is no envelope,
    or not a whole one. The result is never an envelope itself: envelopes are opened once.
    """
    if _NAME not in raw or not body.startswith(MAGIC):
        return None
    inner = unwrap_envelope(body)
    if inner is None or len(inner[0].raw) > _PROPERTIES_BYTES_MAX:
        return None
    outer, (own, own_body) = Properties(raw), inner
    try:
        mark = outer.header(headers.ENVELOPE)
        if isinstance(mark, bool) or mark != 1 or outer.content_type != ENVELOPE_CONTENT_TYPE:
            return None
        own.present()  # raises for what is malformed anywhere
        return own.edit(headers=_written(outer, own), drop=_ENVELOPE_WINS), own_body
    except ProtocolError:
        return None


def _written(outer: Properties, own: Properties) -> dict[str, Any]:
    """The envelope's headers that the message lacks, or has with another value."""
    kept = own.headers
    written = {}
    for name, value in outer.headers.items():
        if name in kept and name not in _ENVELOPE_WINS and (name in _MESSAGE_WINS or _is_same(value, kept[name])):
            continue
        if name != headers.ENVELOPE:
            written[name] = value
    return written


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
