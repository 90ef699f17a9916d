"""A message's properties, read lazily and changed by splicing.

`Properties` wraps the raw bytes of a content header from the property flags on. Nothing is decoded until something is
read; unread and unchanged, they go out as they came in. A change makes new raw bytes in which every property, and every
header entry, that was not named is a copy of the old bytes.
"""

import struct
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from redrive.wire.errors import EncodingError, syntax_error
from redrive.wire.field_tables import decode_table, encode_short_string, encode_table, timestamp
from redrive.wire.field_types import FieldTable, Timestamp
from redrive.wire.table_entries import drop_entries, edit_table, raw_entries, raw_entry, read_entry

EMPTY = b"\x00\x00"
"""The raw form of no properties at all."""

_T = TypeVar("_T")
_LENGTH = struct.Struct(">I")
_LONG_LONG = ord("L")
_SECONDS = struct.Struct(">Q")


class PropertyChanges(TypedDict, total=False):
    """The settable properties; None removes one. `headers` are edited separately, entry by entry."""

    content_type: str | None
    content_encoding: str | None
    delivery_mode: int | None
    priority: int | None
    correlation_id: str | None
    reply_to: str | None
    expiration: str | None
    message_id: str | None
    timestamp: datetime | Timestamp | None
    type: str | None
    user_id: str | None
    app_id: str | None
    cluster_id: str | None


class _Property(Generic[_T]):
    """One property as a read-only attribute: its flag bit, its size, and how its bytes are read and written.

    `size` is in octets; 0 is a short string, -1 a table, whose own first octets say it.
    """

    def __init__(self, bit: int, size: int, read: Callable[[bytes], _T], write: Callable[[Any], bytes]) -> None:
        self.flag = 1 << bit
        self.size = size
        self.read = read
        self.write = write

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: "Properties", owner: type) -> _T | None:
        fields = instance._fields
        raw = (instance._spans() if fields is None else fields).get(self.name)
        return None if raw is None else self.read(raw)


class _Headers(_Property[FieldTable]):
    """The headers: absent is the same as empty to a reader, and the decoded table is kept."""

    def __init__(self, bit: int) -> None:
        super().__init__(bit, -1, lambda raw: decode_table(raw, 4), encode_table)

    def __get__(self, instance: "Properties", owner: type) -> FieldTable:
        return instance._decoded_headers()


def _text(bit: int) -> _Property[str]:
    return _Property(bit, 0, lambda raw: str(raw[1:], "utf-8", "surrogateescape"), encode_short_string)


def _octet(bit: int) -> _Property[int]:
    def write(value: int) -> bytes:
        if not 0 <= value <= 255:
            raise EncodingError(f"{value} does not fit in an octet")
        return bytes((value,))

    return _Property(bit, 1, lambda raw: raw[0], write)


def _moment(bit: int) -> _Property[datetime | Timestamp]:
    def write(value: datetime | Timestamp) -> bytes:
        if isinstance(value, datetime) and value.tzinfo is None:
            raise EncodingError(f"{value} has no time zone; give it one (UTC)")
        seconds = int(value.timestamp()) if isinstance(value, datetime) else int(value)
        if not 0 <= seconds < 1 << 64:
            raise EncodingError(f"{value} is outside AMQP's time")
        return _SECONDS.pack(seconds)

    return _Property(bit, 8, lambda raw: timestamp(_SECONDS.unpack(raw)[0]), write)


class Properties:
    """A message's properties over their raw bytes; a value: compared by bytes, changed by making another.

    Reading raises RemoteProtocolError (502) when the bytes are malformed. Text that is not UTF-8 keeps the other
    octets as surrogate escapes (PEP 383), so that it is written as it was read.
    """

    __slots__ = ("_fields", "_table", "raw")

    content_type = _text(15)
    content_encoding = _text(14)
    headers = _Headers(13)
    delivery_mode = _octet(12)
    priority = _octet(11)
    correlation_id = _text(10)
    reply_to = _text(9)
    expiration = _text(8)
    message_id = _text(7)
    timestamp = _moment(6)
    type = _text(5)
    user_id = _text(4)
    app_id = _text(3)
    cluster_id = _text(2)

    def __init__(self, raw: bytes = EMPTY) -> None:
        self.raw = raw
        self._fields: dict[str, bytes] | None = None
        self._table: FieldTable | None = None

    @classmethod
    def of(cls, *, headers: Mapping[str, Any] | None = None, **properties: Unpack[PropertyChanges]) -> "Properties":
        """Properties from values. Raises EncodingError."""
        return cls().edit(headers=headers, **properties)

    def header(self, name: str, default: Any = None) -> Any:
        """One header's value; the others stay undecoded."""
        if self._table is not None:
            return self._table.get(name, default)
        raw = self._spans().get("headers")
        return default if raw is None else read_entry(raw, name, default, 4)

    def raw_header(self, name: str) -> bytes | None:
        """One header's typed value as its bytes, None if there is none: two that are equal decode to the same."""
        raw = self._spans().get("headers")
        return None if raw is None else raw_entry(raw, name, 4)

    def edit(
        self,
        *,
        headers: Mapping[str, Any] | None = None,
        drop: Collection[str] = (),
        **properties: Unpack[PropertyChanges],
    ) -> "Properties":
        """These properties with `properties` set (None: removed), `headers` set and the headers in `drop` removed.

        Everything not named keeps its bytes. Raises EncodingError, and RemoteProtocolError if the old bytes are
        malformed.
        """
        fields = dict(self._spans())
        flags = (self.raw[0] << 8 | self.raw[1]) & _ALL_FLAGS
        for name, value in properties.items():
            known = _BY_NAME.get(name)
            if known is None or name == "headers":
                raise EncodingError(f"there is no property {name!r}")
            if value is None:
                flags &= ~known.flag
            else:
                flags |= known.flag
                fields[name] = known.write(value)
        if headers or (drop and "headers" in fields):
            table = edit_table(fields.get("headers", b"\0\0\0\0")[4:], headers or {}, drop)
            flags |= _HEADERS_FLAG
            fields["headers"] = _LENGTH.pack(len(table)) + table
        return Properties(b"".join([flags.to_bytes(2, "big"), *[fields[name] for name, _ in _layout(flags)]]))

    def append_headers(self, entries: bytes, *, drop: frozenset[str] = frozenset()) -> "Properties":
        """These with encoded header entries (`encode_entries`) added at the end, and the headers in `drop` removed.

        The keys of the new entries must not be among the headers: that is not checked. Raises RemoteProtocolError if
        the old bytes are malformed as far as the headers' end; what follows is kept as it is.
        """
        raw = self.raw
        start, stop = _find_headers(raw)
        table = raw[start + 4 : stop]
        if drop:
            table = drop_entries(table, drop)
        return Properties(
            b"".join(
                (
                    bytes((raw[0] | _HEADERS_FLAG >> 8, raw[1])),
                    raw[2:start],
                    _LENGTH.pack(len(table) + len(entries)),
                    table,
                    entries,
                    raw[stop:],
                )
            )
        )

    def is_persistent(self) -> bool:
        """Whether the delivery mode is 2; the properties are not split. Raises as `append_headers` does."""
        raw = self.raw
        _, stop = _find_headers(raw)
        return bool(raw[0] & _DELIVERY_MODE_FLAG >> 8) and raw[stop : stop + 1] == _PERSISTENT

    def labels(self) -> tuple[str | None, str | None, str | None]:
        """message_id, correlation_id and type; a message with none of them is not split."""
        raw = self.raw
        if len(raw) > 1 and not (raw[0] << 8 | raw[1]) & _LABEL_FLAGS:
            return _NO_LABELS
        return self.message_id, self.correlation_id, self.type

    def has_any(self, flags: int) -> bool:
        """Whether one of the properties named to `flags_of` is set; nothing is decoded."""
        raw = self.raw
        return len(raw) > 1 and (raw[0] << 8 | raw[1]) & flags != 0

    def take_apart(self, undecoded: Collection[str] = ()) -> tuple[FieldTable, list[bytes], bytes]:
        """The headers, each one's own bytes (a key given twice is there twice), and these properties without headers.

        For callers that need all of it: the table is read once. Arrays under a name in `undecoded` stay bytes.
        """
        raw, fields = self.raw, self._spans()
        table = fields.get("headers")
        if table is None:
            return {}, [], raw
        entries: list[bytes] = []
        headers = decode_table(table, 4, entries=entries, undecoded=undecoded)
        start = 2 + len(fields.get("content_type", b"")) + len(fields.get("content_encoding", b""))
        without = b"".join((bytes((raw[0] & ~(_HEADERS_FLAG >> 8),)), raw[1:start], raw[start + len(table) :]))
        return headers, entries, without

    def present(self) -> dict[str, Any]:
        """Every property that is set, decoded, by name."""
        return {name: getattr(self, name) for name in self._spans()}

    def __eq__(self, other: object) -> bool:
        return self.raw == other.raw if isinstance(other, Properties) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Properties({self.raw!r})"

    def _spans(self) -> dict[str, bytes]:
        """Each present property's own bytes, by name, in the order of the wire."""
        if self._fields is None:
            self._fields = _split(self.raw)
        return self._fields

    def _decoded_headers(self) -> FieldTable:
        if self._table is None:
            raw = self._spans().get("headers")
            self._table = {} if raw is None else decode_table(raw, 4)
        return self._table


_BY_NAME: dict[str, _Property[Any]] = {
    name: each for name, each in vars(Properties).items() if isinstance(each, _Property)
}
_DELIVERY_MODE_FLAG, _PERSISTENT = _BY_NAME["delivery_mode"].flag, b"\x02"
_ALL_FLAGS = sum(each.flag for each in _BY_NAME.values())
_HEADERS_FLAG = _BY_NAME["headers"].flag
_CONTENT_TYPE_FLAG, _CONTENT_ENCODING_FLAG = _BY_NAME["content_type"].flag, _BY_NAME["content_encoding"].flag
_LABEL_FLAGS = _BY_NAME["message_id"].flag | _BY_NAME["correlation_id"].flag | _BY_NAME["type"].flag | 1
_NO_LABELS = (None, None, None)


def flags_of(*names: str) -> int:
    """For `Properties.has_any`."""
    return sum(_BY_NAME[name].flag for name in names)


def cut_headers(raw: bytes) -> bytes | None:
    """The headers' table as its raw bytes, None if there is none: two equal ones hold the same headers.

    What follows the table is not parsed. Raises RemoteProtocolError if it, or what comes before, is malformed.
    """
    if len(raw) > 1 and not raw[0] << 8 & _HEADERS_FLAG and not raw[1] & 1:
        return None
    start, stop = _find_headers(raw)
    return raw[start:stop]


def sort_headers(raw: bytes, *, once: bool) -> bytes:
    """Raw properties with their headers as RabbitMQ writes them: by key, and 64-bit integers of type `l`, not `L`.

    With `once` the first of several entries with one key stays (4.x), else all. What is within a header keeps its
    bytes. Raises RemoteProtocolError if the bytes are malformed as far as the headers' end.
    """
    start, stop = _find_headers(raw)
    if start == stop:
        return raw
    entries = raw_entries(raw[start + 4 : stop])
    kept: list[tuple[bytes, bytes]] = []
    for key, entry in sorted(entries, key=lambda one: one[0]):
        if once and kept and kept[-1][0] == key:
            continue
        tag = 1 + len(key)
        kept.append((key, entry[:tag] + b"l" + entry[tag + 1 :] if entry[tag] == _LONG_LONG else entry))
    if kept == entries:
        return raw
    table = b"".join(entry for _, entry in kept)
    return b"".join((raw[:start], _LENGTH.pack(len(table)), table, raw[stop:]))


def _find_headers(raw: bytes) -> tuple[int, int]:
    """Where the table of headers begins and ends; where it would be, if there is none."""
    try:
        flags = raw[0] << 8
        start = 3 + raw[2] if flags & _CONTENT_TYPE_FLAG else 2
        if flags & _CONTENT_ENCODING_FLAG:
            start += 1 + raw[start]
        stop = start + 4 + int(_LENGTH.unpack_from(raw, start)[0]) if flags & _HEADERS_FLAG else start
        if stop <= len(raw) and not raw[1] & 1:
            return start, stop
    except (IndexError, struct.error):
        pass
    _split(raw)  # raises what is wrong
    raise syntax_error("a property runs past the end of the content header")


# Which properties a flag word announces, worked out once for each word seen.
_LAYOUTS: dict[int, list[tuple[str, int]]] = {}
_LAYOUTS_MAX = 256


def _layout(flags: int) -> list[tuple[str, int]]:
    layout = _LAYOUTS.get(flags)
    if layout is not None:
        return layout
    if flags & 1:
        raise syntax_error("property flags go on beyond the 14 properties there are")
    if len(_LAYOUTS) >= _LAYOUTS_MAX:
        _LAYOUTS.clear()
    _LAYOUTS[flags] = layout = [(name, each.size) for name, each in _BY_NAME.items() if flags & each.flag]
    return layout


def _split(raw: bytes) -> dict[str, bytes]:
    if len(raw) < 2:
        raise syntax_error("property flags are missing")
    flags = raw[0] << 8 | raw[1]
    layout = _LAYOUTS.get(flags)
    if layout is None:
        layout = _layout(flags)
    fields = {}
    start, end = 2, len(raw)
    try:
        for name, size in layout:
            if size > 0:
                stop = start + size
            elif size == 0:
                stop = start + 1 + raw[start]
            else:
                stop = start + 4 + int(_LENGTH.unpack_from(raw, start)[0])
            fields[name] = raw[start:stop]
            start = stop
    except (IndexError, struct.error):
        start = end + 1
    if start > end:
        raise syntax_error("a property runs past the end of the content header")
    if start < end:
        raise syntax_error(f"{end - start} octets follow the last property")
    return fields
