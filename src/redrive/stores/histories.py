"""The attempts of a dead letter: in the properties it came with, or stored beside them where those don't tell.

Our own header has them, and properties are kept as they came, so they are read there when somebody asks: few letters
are looked at, all are collected. Only what came by another way (an import) is packed into a column of its own.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from redrive.core import Attempt, PlainMessage, headers, read_history
from redrive.wire import Properties, ProtocolError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Attempt]).decode


def pack_history(history: Sequence[Attempt]) -> bytes | None:
    """Attempts as they are stored; None for none."""
    return _encode(history) if history else None


def unpack_history(packed: bytes | None, properties: bytes) -> tuple[Attempt, ...]:
    """Attempts from how they are stored, else as the properties tell of them; texts without what nobody can show."""
    return _told_in(properties) if packed is None else tuple(_decode(packed))


def _told_in(properties: bytes) -> tuple[Attempt, ...]:
    try:
        told = Properties(properties).header(headers.HISTORY)
    except ProtocolError:
        return ()
    history = read_history(PlainMessage(queue="", headers={headers.HISTORY: told}))
    return tuple(replace(one, error=one.error.replace("\0", "\ufffd")) if "\0" in one.error else one for one in history)
