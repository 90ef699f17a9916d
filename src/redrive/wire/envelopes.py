"""An envelope: a message whose properties no frame has room for any more, kept whole in the body of another.

A copy of ours adds headers, and a message whose own headers fill a frame (131 kB) leaves no room for them. Its parked
copy has `x-redrive-envelope`, small headers of its own, and this body:

    redrive envelope 1\\n    4 octets, the length of the properties    the properties, raw    the body

Nothing is lost: what was put in comes out to the byte.

An envelope is a form and proves nothing: anybody can make one. To open it is to see the message that its sender could
have sent without it, and that is believed as far as any other.
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
"""Properties come in one frame, and nobody's frames are larger. Others would be dear to read."""
BEFORE_BODY_BYTES_MAX = len(MAGIC) + _LENGTH.size + _PROPERTIES_BYTES_MAX
"""So much of an envelope is read before the message's own body begins."""

_NAME = headers.ENVELOPE.encode()
_OF_ITS_LIFE = headers.LIFE_HEADERS | headers.COUNT_HEADERS | {headers.ENVELOPE, headers.DIGEST}
"""Of these only those count that are written on the envelope."""
_OF_ITSELF = headers.REDRIVEN_HEADERS | {headers.MESSAGE_ID}
"""Of these the message's own count, where it has any."""


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


def may_be_envelope(raw: bytes) -> bool:
    """Whether a message with these properties can be an envelope, at the price of a look."""
    return _NAME in raw


def open_envelope(raw: bytes, body: bytes) -> tuple[Properties, bytes] | None:
    """The message in an envelope, as it would have been parked if there had been room: its own properties and headers,
    and what is written on the envelope about its end. None for whatever is no envelope, or not a whole one.

    What comes out is never an envelope itself, whatever the message was: it is opened once.
    """
    if _NAME not in raw or not body.startswith(MAGIC):
        return None
    inner = unwrap(body)
    if inner is None or len(inner[0].raw) > _PROPERTIES_BYTES_MAX:
        return None
    outer, (own, own_body) = Properties(raw), inner
    try:
        mark = outer.header(headers.ENVELOPE)
        if isinstance(mark, bool) or mark != 1 or outer.content_type != ENVELOPE_CONTENT_TYPE:
            return None
        own.present()  # raises for what is malformed anywhere
        return own.edit(headers=_written(outer, own), drop=_OF_ITS_LIFE), own_body
    except ProtocolError:
        return None


def _written(outer: Properties, own: Properties) -> dict[str, Any]:
    """What the envelope says and the message does not, or otherwise."""
    said = own.headers
    written = {}
    for name, value in outer.headers.items():
        if name in said and name not in _OF_ITS_LIFE and (name in _OF_ITSELF or _is_same(value, said[name])):
            continue
        if name != headers.ENVELOPE:
            written[name] = value
    return written


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
