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
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from redrive.wire.errors import EncodingError, RemoteProtocolError
from redrive.wire.field_tables import (
    DEPTH_MAX,
    decode_value,
    encode_short_string,
    encode_table,
    encode_text,
    value_end,
)
from redrive.wire.field_types import Int8, Int16, Int64, LongLong, Timestamp, UInt8, UInt16, UInt32
from redrive.wire.properties import Properties
from redrive.wire.table_entries import raw_entries

_SAFE = 1 << 53
"""JSON's numbers are doubles to many readers: whole ones are exact below this."""
_INT32 = 1 << 31
_INTEGERS: dict[str, type[int]] = {
    "short-short-int": Int8,
    "short-short-uint": UInt8,
    "short-int": Int16,
    "short-uint": UInt16,
    "long-uint": UInt32,
    "long-long-int": Int64,
    "long-long-int-L": LongLong,
}
_INTEGER_NAMES: dict[int, str] = dict(zip(b"bBsuilL", _INTEGERS, strict=True))
_FLOATS = {ord("f"): ("float", ">f"), ord("d"): ("double", ">d")}
_ORDER = (
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id"),
)
"""The properties from the highest flag down, as they follow each other on the wire."""
_OCTETS = ("delivery_mode", "priority")
_UNUSED_FLAGS = 0b11
_SECONDS = struct.Struct(">Q")
_LENGTH = struct.Struct(">I")
_UNDECODED_BYTES_MAX = 131_072


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
    if name in _OCTETS:
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
    if code == ord("I") or (code == ord("l") and not -_INT32 <= number < _INT32 and abs(number) < _SAFE):
        return number
    return {"type": _INTEGER_NAMES[code], "value": number if abs(number) < _SAFE else str(number)}


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
        return seconds if seconds < _SAFE else str(seconds)


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def properties_from_json(written: Mapping[str, Any]) -> bytes:
    """The bytes of which `properties_as_json` made this. Raises EncodingError, naming what can't be read and where."""
    if not isinstance(written, Mapping):
        raise EncodingError("properties are an object")
    if set(written) == {"base64"}:
        return _from_base64(written, "properties")
    unknown = [name for name in written if name not in _ORDER]
    if unknown:
        raise EncodingError(f"there is no property {unknown[0]!r}; there are {', '.join(_ORDER)}")
    flags, parts = 0, []
    for place, name in enumerate(_ORDER):
        if name in written:
            flags |= 1 << 15 - place
            parts.append(_property_from_json(name, written[name]))
    return flags.to_bytes(2, "big") + b"".join(parts)


def _property_from_json(name: str, value: Any) -> bytes:
    if name == "headers":
        body = _table_from_json(value, name, 1)
        return _LENGTH.pack(len(body)) + body
    if name in _OCTETS:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
            raise EncodingError(f"{name} is a number from 0 to 255")
        return bytes((value,))
    if name == "timestamp":
        return _SECONDS.pack(_seconds_from_json(value, name))
    if isinstance(value, Mapping):
        raw = _from_base64(value, name)
        if len(raw) > 255:
            raise EncodingError(f"{name} takes {len(raw)} bytes, AMQP allows 255")
        return bytes((len(raw),)) + raw
    if not isinstance(value, str):
        raise EncodingError(f"{name} is a text")
    return encode_short_string(value, name)


def _value_from_json(value: Any, where: str, depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise EncodingError(f"{where[:80]}: nested deeper than {DEPTH_MAX}")
    match value:
        case Mapping() if "type" in value:
            return _typed_from_json(value, where, depth)
        case Mapping():
            return _prefixed(b"F", _table_from_json(value, where, depth + 1))
        case list() | tuple():
            parts = [_value_from_json(one, f"{where}[{place}]", depth + 1) for place, one in enumerate(value)]
            return _prefixed(b"A", b"".join(parts))
        case str() | bool() | int() | float() | None:
            return _encoded(value)
        case _:
            raise EncodingError(f"{where}: a {type(value).__name__} is no JSON")


def _table_from_json(value: Any, where: str, depth: int) -> bytes:
    """The entries of a table, without its length."""
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list) and all(isinstance(one, list | tuple) and len(one) == 2 for one in value):
        pairs = [(one[0], one[1]) for one in value]
    else:
        raise EncodingError(f"{where}: a table is an object, or a list of [key, value]")
    parts = []
    for key, one in pairs:
        raw = _from_base64(key, where) if isinstance(key, Mapping) else encode_text(_a_text(key, where), "table key")
        if len(raw) > 255:
            raise EncodingError(f"{where}: a key takes {len(raw)} bytes, AMQP allows 255")
        parts.append(bytes((len(raw),)) + raw + _value_from_json(one, f"{where}.{key}", depth))
    return b"".join(parts)


def _typed_from_json(value: Mapping[str, Any], where: str, depth: int) -> bytes:
    kind = value["type"]
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        return reader(value, where)
    if kind == "table":
        inner = value.get("entries") if "entries" in value else value.get("value")
        return _prefixed(b"F", _table_from_json(inner, where, depth + 1))
    if isinstance(kind, str) and kind in _INTEGERS:
        return _encoded(_INTEGERS[kind](_an_integer(value.get("value"), where)))
    known = ", ".join(sorted((*_READERS, *_INTEGERS, "table")))
    raise EncodingError(
        f'{where}: there is no type {kind!r}; there are {known}. A table with a key "type" is '
        '{"type": "table", "value": {…}}'
    )


def _boolean(value: Mapping[str, Any], where: str) -> bytes:
    octet = int(value["value"]) if isinstance(value.get("value"), bool) else _an_integer(value.get("value"), where)
    if not 0 <= octet <= 255:
        raise EncodingError(f"{where}: {octet} does not fit in an octet")
    return bytes((ord("t"), octet))


def _float(value: Mapping[str, Any], where: str) -> bytes:
    code, form = (b"f", ">f") if value["type"] == "float" else (b"d", ">d")
    if "hex" in value:
        try:
            raw = bytes.fromhex(_a_text(value["hex"], where))
        except ValueError:
            raw = b""
        if len(raw) != struct.calcsize(form):
            raise EncodingError(f"{where}: hex has {2 * struct.calcsize(form)} digits")
        return code + raw
    number = value.get("value")
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise EncodingError(f"{where}: value is a number")
    try:
        return code + struct.pack(form, number)
    except (OverflowError, struct.error):
        raise EncodingError(f"{where}: {str(number)[:40]} does not fit in AMQP's {value['type']}") from None


def _decimal(value: Mapping[str, Any], where: str) -> bytes:
    try:
        return _encoded(Decimal(_a_text(value.get("value"), where)))
    except InvalidOperation:
        raise EncodingError(f"{where}: {str(value.get('value'))[:40]!r} is no decimal") from None


def _timestamp(value: Mapping[str, Any], where: str) -> bytes:
    return _encoded(Timestamp(_seconds_from_json(value.get("value"), where)))


def _long_string(value: Mapping[str, Any], where: str) -> bytes:
    if "base64" in value:
        return _prefixed(b"S", _from_base64(value, where))
    return _encoded(_a_text(value.get("value"), where))


def _long_int(value: Mapping[str, Any], where: str) -> bytes:
    number = _an_integer(value.get("value"), where)
    if not -_INT32 <= number < _INT32:
        raise EncodingError(f"{where}: {number} does not fit in AMQP's long-int")
    return _encoded(number)


def _undecoded(value: Mapping[str, Any], where: str) -> bytes:
    """What is nested deeper than anybody reads it; looked through all the same, since a broker reads it to the end."""
    raw = _from_base64(value, where)
    if not raw.startswith((b"F", b"A")) or len(raw) > _UNDECODED_BYTES_MAX:
        raise EncodingError(f"{where}: that is no table or array of a message")
    try:
        if value_end(raw, 0, len(raw)) != len(raw):
            raise EncodingError(f"{where}: something follows the table")
        left = [raw]
        while left:
            left += [one for one in _values_in(left.pop()) if one.startswith((b"F", b"A"))]
    except RemoteProtocolError as error:
        raise EncodingError(f"{where}: {error.reply_text}") from None
    return raw


def _values_in(raw: bytes) -> list[bytes]:
    """The typed values in a table or an array. Raises RemoteProtocolError."""
    if raw.startswith(b"F"):
        return [entry[1 + len(key) :] for key, entry in raw_entries(raw[5:])]
    values = []
    start, end = 5, len(raw)
    while start < end:
        stop = value_end(raw, start, end)
        values.append(raw[start:stop])
        start = stop
    return values


_READERS: dict[str, Callable[[Mapping[str, Any], str], bytes]] = {
    "boolean": _boolean,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "timestamp": _timestamp,
    "long-string": _long_string,
    "long-int": _long_int,
    "byte-array": lambda value, where: _prefixed(b"x", _from_base64(value, where)),
    "undecoded": _undecoded,
    "void": lambda value, where: b"V",
}


def _seconds_from_json(value: Any, where: str) -> int:
    if isinstance(value, str) and not value.isdigit():
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise EncodingError(f"{where}: {value[:40]!r} is no moment; write 2026-11-01T12:00:00Z") from None
        if moment.tzinfo is None:
            raise EncodingError(f"{where}: {value} has no time zone; end it with Z")
        value = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    seconds = _an_integer(value, where)
    if not 0 <= seconds < 1 << 64:
        raise EncodingError(f"{where}: {seconds} is outside AMQP's time")
    return seconds


def _an_integer(value: Any, where: str) -> int:
    if isinstance(value, str) and value.isascii() and len(value) <= 20 and value.removeprefix("-").isdigit():
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _SAFE:
        return int(value)  # some writers know one kind of number
    if isinstance(value, bool) or not isinstance(value, int):
        raise EncodingError(f"{where}: value is a whole number")
    if not -(1 << 64) < value < 1 << 64:
        raise EncodingError(f"{where}: the number does not fit in 64 bits")
    return value


def _a_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise EncodingError(f"{where}: a text is missing")
    return value


def _prefixed(code: bytes, body: bytes) -> bytes:
    return code + _LENGTH.pack(len(body)) + body


def _from_base64(value: Mapping[str, Any], where: str) -> bytes:
    try:
        return base64.b64decode(_a_text(value.get("base64"), where), validate=True)
    except (binascii.Error, ValueError):
        raise EncodingError(f"{where}: that is no base64") from None


def _encoded(value: Any) -> bytes:
    """A typed value: a table of one entry with an empty key, without the lengths of both."""
    return encode_table({"": value})[5:]
