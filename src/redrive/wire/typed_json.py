"""A message's properties as JSON that people can read and edit, and back to the very same bytes.

    AMQP                     JSON
    S long string            "text"; {"type": "long-string", "base64": …} where it is not UTF-8
    t boolean                true, false; {"type": "boolean", "value": 7} for an octet other than 0 and 1
    I int 32                 42
    l int 64                 42000000000 where it does not fit in I and is below 2^53; otherwise typed
    b B s u i l L            {"type": "short-short-int", "value": 3} and so on; from 2^53 on with its digits as text
    d double                 1.5; {"type": "double", "value": 1.0} where it is a whole number
    f float                  {"type": "float", "value": 1.5}; of either a NaN or infinity as {…, "hex": "7fc00000"}
    D decimal                {"type": "decimal", "value": "3.15"}
    T timestamp              {"type": "timestamp", "value": "2026-11-01T12:00:00Z"}; seconds beyond the year 9999
    x byte array             {"type": "byte-array", "base64": …}
    A F V                    array, object, null
    A F nested beyond 100    {"type": "undecoded", "base64": …}

An object with a key `type` is always one of these: a table that has such a key is {"type": "table", "value": {…}}. A
table with a key given twice, or one that is not UTF-8, is {"type": "table", "entries": [[key, value], …]}. The headers
themselves are an object, or such a list of entries. Properties that are malformed are {"base64": …} as a whole.

Who writes JSON by hand may leave types away: a plain whole number is I if it fits and else l, any other d, a text S.
"""

import base64
import math
import struct
from datetime import UTC, datetime
from typing import Any

from redrive.wire.errors import RemoteProtocolError
from redrive.wire.fields import Int8, Int16, Int64, LongLong, UInt8, UInt16, UInt32
from redrive.wire.properties import Properties
from redrive.wire.raw_entries import raw_entries
from redrive.wire.tables import DEPTH_MAX, decode_value, value_end

SAFE = 1 << 53
"""JSON's numbers are doubles to many readers: whole ones are exact below this."""
_INT32 = 1 << 31
INTEGERS: dict[str, type[int]] = {
    "short-short-int": Int8,
    "short-short-uint": UInt8,
    "short-int": Int16,
    "short-uint": UInt16,
    "long-uint": UInt32,
    "long-long-int": Int64,
    "long-long-int-L": LongLong,
}
_INTEGER_NAMES: dict[int, str] = dict(zip(b"bBsuilL", INTEGERS, strict=True))
_FLOATS = {ord("f"): ("float", ">f"), ord("d"): ("double", ">d")}
ORDER = (
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id"),
)
"""The properties from the highest flag down, as they follow each other on the wire."""
OCTETS = ("delivery_mode", "priority")
_UNUSED_FLAGS = 0b11
_SECONDS = struct.Struct(">Q")


def properties_as_json(raw: bytes) -> dict[str, Any]:
    """The properties in the order of the wire, as values that every JSON writer takes. Never raises."""
    try:
        if len(raw) < 2 or raw[1] & _UNUSED_FLAGS:
            return {"base64": _base64(raw)}
        return {name: _property_as_json(name, span) for name, span in Properties(raw)._spans().items()}
    except RemoteProtocolError:
        return {"base64": _base64(raw)}


def _property_as_json(name: str, raw: bytes) -> Any:
    if name == "headers":
        entries = raw_entries(raw[4:])
        plain = _plain_table(entries, 1)
        return _entries_as_json(entries, 1) if plain is None else plain
    if name in OCTETS:
        return raw[0]
    if name == "timestamp":
        return _seconds_as_json(_SECONDS.unpack(raw)[0])
    text = _text(raw[1:])
    return {"type": "short-string", "base64": _base64(raw[1:])} if text is None else text


def _value_as_json(raw: bytes, depth: int) -> Any:
    """One typed value."""
    code = raw[0]
    match chr(code):
        case "S":
            text = _text(raw[5:])
            return {"type": "long-string", "base64": _base64(raw[5:])} if text is None else text
        case "t":
            return raw[1] == 1 if raw[1] < 2 else {"type": "boolean", "value": raw[1]}
        case "V":
            return None
        case "F" | "A" if depth >= DEPTH_MAX:
            return {"type": "undecoded", "base64": _base64(raw)}
        case "F":
            entries = raw_entries(raw[5:])
            plain = _plain_table(entries, depth + 1)
            if plain is None:
                return {"type": "table", "entries": _entries_as_json(entries, depth + 1)}
            return {"type": "table", "value": plain} if "type" in plain else plain
        case "A":
            return _array_as_json(raw, depth + 1)
        case "x":
            return {"type": "byte-array", "base64": _base64(raw[5:])}
        case "f" | "d":
            return _float_as_json(code, raw[1:])
        case "T":
            return {"type": "timestamp", "value": _seconds_as_json(_SECONDS.unpack(raw[1:])[0])}
        case "D":
            return {"type": "decimal", "value": str(decode_value(raw, 0, len(raw))[0])}
    number = int(decode_value(raw, 0, len(raw))[0])
    if code == ord("I") or (code == ord("l") and not -_INT32 <= number < _INT32 and abs(number) < SAFE):
        return number
    return {"type": _INTEGER_NAMES[code], "value": number if abs(number) < SAFE else str(number)}


def _plain_table(entries: list[tuple[bytes, bytes]], depth: int) -> dict[str, Any] | None:
    """As an object, None if that would not say it all."""
    # The keys alone decide, before any value is read: what is read and thrown away on each level doubles with each.
    names = {name for key, _ in entries if (name := _text(key)) is not None}
    if len(names) < len(entries):
        return None
    return {key.decode(): _value_as_json(entry[1 + len(key) :], depth) for key, entry in entries}


def _entries_as_json(entries: list[tuple[bytes, bytes]], depth: int) -> list[Any]:
    return [
        [{"base64": _base64(key)} if _text(key) is None else _text(key), _value_as_json(entry[1 + len(key) :], depth)]
        for key, entry in entries
    ]


def _array_as_json(raw: bytes, depth: int) -> list[Any]:
    array = []
    start, end = 5, len(raw)
    while start < end:
        stop = value_end(raw, start, end)
        array.append(_value_as_json(raw[start:stop], depth))
        start = stop
    return array


def _float_as_json(code: int, raw: bytes) -> Any:
    name, form = _FLOATS[code]
    number = struct.unpack(form, raw)[0]
    if not math.isfinite(number):
        return {"type": name, "hex": raw.hex()}
    return number if name == "double" and not number.is_integer() else {"type": name, "value": number}


def _seconds_as_json(seconds: int) -> int | str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return seconds if seconds < SAFE else str(seconds)


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
