"""The content of a dead letter as it is stored: its message out of the envelope, its headers, its attempts.

Contents are kept as they came. Our own header has the attempts, so they are read from there when somebody asks: few
letters are looked at, all are collected. Only attempts that came by another way (an import) have a column of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from redrive.core import Attempt, PlainMessage, headers, read_history
from redrive.records import MessageContent
from redrive.wire import Properties, ProtocolError, open_envelope

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Attempt]).decode


def unwrap_envelope(content: MessageContent) -> MessageContent:
    """The message itself; the content as it is, where it is no whole envelope. To unwrap it again changes nothing."""
    found = open_envelope(content.properties, content.body)
    return content if found is None else MessageContent(properties=found[0].raw, body=found[1])


def headers_of(properties: bytes) -> Mapping[str, Any]:
    """The headers of a message; none where they are malformed."""
    try:
        return Properties(properties).headers or {}
    except ProtocolError:
        return {}


def pack_history(history: Sequence[Attempt]) -> bytes | None:
    """Attempts as they are stored; None for none."""
    return _encode(history) if history else None


def unpack_history(packed: bytes | None, properties: bytes) -> tuple[Attempt, ...]:
    """The stored attempts, or else those in the headers; texts without characters that can't be shown."""
    return _history_in(properties) if packed is None else tuple(_decode(packed))


def _history_in(properties: bytes) -> tuple[Attempt, ...]:
    try:
        value = Properties(properties).header(headers.HISTORY)
    except ProtocolError:
        return ()
    history = read_history(PlainMessage(queue="", headers={headers.HISTORY: value}))
    return tuple(replace(one, error=one.error.replace("\0", "\ufffd")) if "\0" in one.error else one for one in history)
