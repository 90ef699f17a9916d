"""Field tables: bytes to Python and back, no type lost on the way.

Owned here instead of taken from pamqp, whose codec forgets types (every integer comes back as the smallest that fits,
every float as 32 bits), sorts keys and cuts them at 128 bytes, copies the rest of the table for each value (quadratic
on a large one), and answers deep nesting with RecursionError. pamqp stays the independent reference in the tests.

Two things are not kept to the byte when a whole table is decoded and encoded again: a key given twice (the first
counts, as it does for RabbitMQ) and a boolean octet other than 0 and 1. Headers that are not changed are never decoded
and encoded: see `table_entries`.
"""

import struct
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from redrive.wire.errors import EncodingError, syntax_error
from redrive.wire.field_types import (
    FieldTable,
    Float32,
    Int8,
    Int16,
    Int64,
    LongLong,
    LongString,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
    Undecoded,
)

DEPTH_MAX = 100
"""Tables inside tables. RabbitMQ has no limit of its own and passes on what any publisher sends: what is nested deeper
is left undecoded."""

_PAST_THE_END = "table value runs past the end of its table"
_STRING, _SMALL_INT, _LONG_INT, _TABLE, _ARRAY = b"SIlFA"
_type_size, _signed_64 = struct.Struct(">BI").unpack_from, struct.Struct(">q").unpack_from
_LENGTH = struct.Struct(">I")
_LONG = struct.Struct(">cI")
_INT32, _INT64 = struct.Struct(">ci"), struct.Struct(">cq")
_DECIMAL = struct.Struct(">Bi")
_TIMESTAMP_DATETIME_MAX = 253_402_300_799  # 9999-12-31T23:59:59Z, where datetime ends


def decode_table(
    data: bytes,
    start: int = 0,
    end: int | None = None,
    depth: int = 1,
    *,
    entries: list[bytes] | None = None,
    undecoded: Collection[str] = (),
) -> FieldTable:
    """The table whose entries fill `data[start:end]` (its length prefix is not part of that).

    Each entry's own bytes, from the key's length to the end of the value, are appended to `entries`, for callers that
    need both. Arrays under a key in `undecoded` stay bytes, the type in front. So does what is nested beyond
    `DEPTH_MAX` (`Undecoded`). Raises RemoteProtocolError (502) for anything malformed.
    """
    if end is None:
        end = len(data)
    table: FieldTable = {}
    value: Any
    while start < end:
        entry_start = start
        key_end = start + 1 + data[start]
        raw_key = data[start + 1 : key_end]
        key = _KEYS.get(raw_key)
        if key is None:
            key = _remember_key(raw_key)
        # The most frequent values are decoded without a call: the type and the four octets after it are enough for a
        # string, a small number and the size of an array.
        value_start = key_end + 5
        if value_start <= end:
            code, size = _type_size(data, key_end)
        elif key_end < end:
            code, size = 0, 0
        else:
            raise syntax_error("table key runs past the end of its table")
        if code == _STRING:
            start = value_start + size
            if start > end:
                raise syntax_error(_PAST_THE_END)
            try:
                value = data[value_start:start].decode()
            except UnicodeDecodeError:
                value = LongString(data[value_start:start])
        elif code == _SMALL_INT:
            start = value_start
            value = size if size < 0x80000000 else size - 0x100000000
        elif code == _LONG_INT and key_end + 9 <= end:
            start = key_end + 9
            value = _int64(_signed_64(data, key_end + 1)[0])
        elif code == _ARRAY and value_start + size <= end:
            start = value_start + size
            if key in undecoded:
                value = data[key_end:start]
            elif depth < DEPTH_MAX:
                value = _decode_array(data, value_start, start, depth + 1)
            else:
                value = Undecoded(data[key_end:start])
        else:
            value, start = decode_value(data, key_end, end, depth)
        if key not in table:
            table[key] = value
        if entries is not None:
            entries.append(data[entry_start:start])
    return table


def decode_value(data: bytes, start: int, end: int, depth: int = 1) -> tuple[Any, int]:
    """The typed value at `start` and the position after it; never reads beyond `end`."""
    if start >= end:
        raise syntax_error("a table value is missing")
    code = data[start]
    start += 1
    fixed = _FIXED.get(code)
    if fixed is not None:
        unpack, size, make = fixed
        stop = start + size
        if stop > end:
            raise syntax_error(_PAST_THE_END)
        value = unpack(data, start)[0]
        return (value if make is None else make(value)), stop
    stop = value_end(data, start - 1, end)
    match code:
        case 0x53:  # S
            raw = data[start + 4 : stop]
            try:
                return raw.decode(), stop
            except UnicodeDecodeError:
                return LongString(raw), stop
        case 0x46 | 0x41 if depth >= DEPTH_MAX:
            return Undecoded(data[start - 1 : stop]), stop
        case 0x46:  # F
            return decode_table(data, start + 4, stop, depth + 1), stop
        case 0x41:  # A
            return _decode_array(data, start + 4, stop, depth + 1), stop
        case 0x78:  # x
            return data[start + 4 : stop], stop
        case 0x66:  # f
            raw = data[start:stop]
            return Float32(struct.unpack(">f", raw)[0], raw), stop
        case 0x44:  # D
            scale, mantissa = _DECIMAL.unpack_from(data, start)
            # Built from digits: arithmetic would obey the caller's decimal context and might round.
            return Decimal((int(mantissa < 0), tuple(map(int, str(abs(mantissa)))), -scale)), stop
        case _:  # V: value_end has refused everything else
            return None, stop


def value_end(data: bytes, start: int, end: int) -> int:
    """The position after the typed value at `start`, without decoding it."""
    size = _SIZES.get(data[start])
    if size is None:
        raise syntax_error(f"unknown table value type {data[start]:#04x}")
    if size < 0:
        size = 4 + int.from_bytes(data[start + 1 : start + 5], "big")
    stop = start + 1 + size
    if stop > end:  # a length cut short too: its own four octets are counted
        raise syntax_error(_PAST_THE_END)
    return stop


def encode_table(table: Mapping[str, Any]) -> bytes:
    """The table with its length prefix, keys in the mapping's own order. Raises EncodingError."""
    return _encode_table(table, 1)


def encode_entries(table: Mapping[str, Any], depth: int = 1) -> dict[bytes, bytes]:
    """Each entry by its raw key, which begins it, length octet in front; in the mapping's own order."""
    entries = {}
    for key, value in table.items():
        raw = _ENCODED_KEYS.get(key)
        if raw is None:
            raw = encode_key(key)
        # Nearly all values are plain texts and small numbers: encoded without a call.
        kind = type(value)
        if kind is str and value.isascii():
            entries[raw] = raw + _LONG.pack(b"S", len(value)) + value.encode()
        elif kind is int and -0x80000000 <= value <= 0x7FFFFFFF:
            entries[raw] = raw + _INT32.pack(b"I", value)
        else:
            entries[raw] = raw + _encode_value(value, depth)
    return entries


def encode_key(key: str) -> bytes:
    """A key with its length octet, as entries begin with it. Raises EncodingError."""
    raw = _ENCODED_KEYS.get(key)
    if raw is None:
        if not isinstance(key, str):
            raise EncodingError(f"table key {key!r} is not a string")
        raw = encode_short_string(key, "table key")
        if len(_ENCODED_KEYS) < _KEYS_MAX and len(key) < 64:
            _ENCODED_KEYS[key] = raw
    return raw


def encode_value(value: Any) -> bytes:
    """A value behind its type, as it follows its key. Raises EncodingError."""
    return _encode_value(value, 1)


def encode_text(text: str, what: str = "string") -> bytes:
    """Text as UTF-8. Octets that were not UTF-8 when they were read are written back as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise EncodingError(f"{what} {text[:40]!r} is not Unicode text: {error.reason}") from None


def encode_short_string(text: str, what: str = "string") -> bytes:
    """A short string with its length octet."""
    raw = encode_text(text, what)
    if len(raw) > 255:
        raise EncodingError(f"{what} {text[:40]!r}… takes {len(raw)} bytes, AMQP allows 255")
    return bytes((len(raw),)) + raw


def _decode_array(data: bytes, start: int, end: int, depth: int) -> list[Any]:
    array: list[Any] = []
    while start < end:
        # Most arrays are of tables (x-death, attempts).
        if data[start] == _TABLE and start + 5 <= end:
            value_start, table_start = start, start + 5
            start = table_start + _type_size(data, start)[1]
            if start > end:
                raise syntax_error(_PAST_THE_END)
            if depth < DEPTH_MAX:
                array.append(decode_table(data, table_start, start, depth + 1))
            else:
                array.append(Undecoded(data[value_start:start]))
        else:
            value, start = decode_value(data, start, end, depth)
            array.append(value)
    return array


# Most keys are the same in every message. Bounded, for publishers with a key of its own in each message.
_KEYS: dict[bytes, str] = {}
_KEYS_MAX = 1000


def _remember_key(raw: bytes) -> str:
    key = str(raw, "utf-8", "surrogateescape")
    if len(_KEYS) < _KEYS_MAX and len(raw) < 64:
        _KEYS[raw] = key
    return key


_ENCODED_KEYS: dict[str, bytes] = {}


def _encode_table(table: Mapping[str, Any], depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise EncodingError(f"table nested deeper than {DEPTH_MAX}")
    body = b"".join(encode_entries(table, depth).values())
    return _LENGTH.pack(len(body)) + body


def _encode_array(array: list[Any] | tuple[Any, ...], depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise EncodingError(f"table nested deeper than {DEPTH_MAX}")
    return _with_length(b"A", b"".join([_encode_value(value, depth) for value in array]))


def _encode_value(value: Any, depth: int) -> bytes:
    encode = _SCALARS.get(type(value))
    if encode is not None:
        try:
            return encode(value)
        except struct.error:
            raise EncodingError(f"{value!r} does not fit in AMQP's {type(value).__name__}") from None
    if isinstance(value, (list, tuple)):
        return _encode_array(value, depth + 1)
    if isinstance(value, (dict, Mapping)):
        return b"F" + _encode_table(value, depth + 1)
    # A subclass (an enumeration, for example) is encoded as its base type.
    for base in (bool, int, str, bytes, float, datetime, Decimal):
        if isinstance(value, base):
            return _SCALARS[base](value)
    raise EncodingError(f"a {type(value).__name__} has no form in an AMQP table: {str(value)[:40]!r}")


def _with_length(code: bytes, body: bytes) -> bytes:
    return _LONG.pack(code, len(body)) + body


def _encode_int(value: int) -> bytes:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return _INT32.pack(b"I", value)
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return _INT64.pack(b"l", value)
    raise EncodingError(f"{value} does not fit in 64 bits")


def _encode_text(value: str) -> bytes:
    raw = value.encode() if value.isascii() else encode_text(value)
    return _LONG.pack(b"S", len(raw)) + raw


def _encode_datetime(value: datetime) -> bytes:
    if value.tzinfo is None:
        raise EncodingError(f"{value} has no time zone; give it one (UTC)")
    seconds = int(value.timestamp())
    if seconds < 0:
        raise EncodingError(f"{value} is before 1970, where AMQP's time begins")
    return struct.pack(">cQ", b"T", seconds)


def _encode_float32(value: Float32) -> bytes:
    return b"f" + (struct.pack(">f", value) if value.raw is None else value.raw)


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise EncodingError(f"{value} is not a number")
    # The bounds come before any arithmetic: Decimal("1e999999") would be a million digits long.
    if not -255 <= exponent <= 9 or len(digits) > 10:
        raise EncodingError(f"{value} does not fit in AMQP's decimal")
    mantissa = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    try:
        return b"D" + _DECIMAL.pack(max(-exponent, 0), -mantissa if sign else mantissa)
    except struct.error:
        raise EncodingError(f"{value} does not fit in AMQP's decimal") from None


def _packer(code: bytes, form: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(f">c{form}").pack
    return lambda value: pack(code, value)


_SCALARS: dict[type, Callable[[Any], bytes]] = {
    bool: _packer(b"t", "?"),
    int: _encode_int,
    str: _encode_text,
    bytes: lambda value: _with_length(b"x", value),
    bytearray: lambda value: _with_length(b"x", bytes(value)),
    memoryview: lambda value: _with_length(b"x", bytes(value)),
    float: _packer(b"d", "d"),
    type(None): lambda value: b"V",
    datetime: _encode_datetime,
    Decimal: _encode_decimal,
    Int8: _packer(b"b", "b"),
    UInt8: _packer(b"B", "B"),
    Int16: _packer(b"s", "h"),
    UInt16: _packer(b"u", "H"),
    UInt32: _packer(b"i", "I"),
    Int64: _packer(b"l", "q"),
    LongLong: _packer(b"L", "q"),
    Float32: _encode_float32,
    Timestamp: _packer(b"T", "Q"),
    LongString: lambda value: _with_length(b"S", value),
    Undecoded: bytes,
}


def _int64(value: int) -> int:
    return Int64(value) if -0x80000000 <= value <= 0x7FFFFFFF else value


def timestamp(seconds: int) -> datetime | Timestamp:
    """A moment given in seconds since 1970."""
    if seconds > _TIMESTAMP_DATETIME_MAX:
        return Timestamp(seconds)
    return datetime.fromtimestamp(seconds, UTC)


def _fixed(form: str, make: Callable[[Any], Any] | None) -> tuple[Callable[[bytes, int], tuple[Any, ...]], int, Any]:
    shape = struct.Struct(f">{form}")
    return shape.unpack_from, shape.size, make


_FIXED = {
    ord("t"): _fixed("?", None),
    ord("b"): _fixed("b", Int8),
    ord("B"): _fixed("B", UInt8),
    ord("s"): _fixed("h", Int16),
    ord("u"): _fixed("H", UInt16),
    ord("I"): _fixed("i", None),
    ord("i"): _fixed("I", UInt32),
    ord("l"): _fixed("q", _int64),
    ord("L"): _fixed("q", LongLong),
    ord("d"): _fixed("d", None),
    ord("T"): _fixed("Q", timestamp),
}
# Octets after the type; -1 where a length prefix says it.
_SIZES = {code: size for code, (_, size, _) in _FIXED.items()} | {
    ord("f"): 4,
    ord("D"): 5,
    ord("V"): 0,
    ord("S"): -1,
    ord("x"): -1,
    ord("F"): -1,
    ord("A"): -1,
}
