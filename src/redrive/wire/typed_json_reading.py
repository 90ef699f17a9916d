"""Properties written as typed JSON, made AMQP again: the other half of `typed_json`, whose table says the forms."""

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from redrive.wire.errors import EncodingError, RemoteProtocolError
from redrive.wire.fields import Timestamp
from redrive.wire.raw_entries import raw_entries
from redrive.wire.tables import DEPTH_MAX, encode_short_string, encode_table, encode_text, value_end
from redrive.wire.typed_json import INTEGERS, OCTETS, ORDER, SAFE

_INT32 = 1 << 31
_LENGTH = struct.Struct(">I")
_SECONDS = struct.Struct(">Q")
_UNDECODED_BYTES_MAX = 131_072


def properties_from_json(written: Mapping[str, Any]) -> bytes:
    """The bytes of which `properties_as_json` made this. Raises EncodingError, naming what can't be read and where."""
    if not isinstance(written, Mapping):
        raise EncodingError("properties are an object")
    if set(written) == {"base64"}:
        return _from_base64(written, "properties")
    unknown = [name for name in written if name not in ORDER]
    if unknown:
        raise EncodingError(f"there is no property {unknown[0]!r}; there are {', '.join(ORDER)}")
    flags, parts = 0, []
    for place, name in enumerate(ORDER):
        if name in written:
            flags |= 1 << 15 - place
            parts.append(_property_from_json(name, written[name]))
    return flags.to_bytes(2, "big") + b"".join(parts)


def _property_from_json(name: str, value: Any) -> bytes:
    if name == "headers":
        body = _table_from_json(value, name, 1)
        return _LENGTH.pack(len(body)) + body
    if name in OCTETS:
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
    if isinstance(kind, str) and kind in INTEGERS:
        return _encoded(INTEGERS[kind](_an_integer(value.get("value"), where)))
    known = ", ".join(sorted((*_READERS, *INTEGERS, "table")))
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
    if isinstance(value, float) and value.is_integer() and abs(value) < SAFE:
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
