"""A table read and edited entry by entry, without decoding it: what is not named stays as it is, to the byte.

Redrive writes a header or two into messages that are not its own. Decoding and encoding the whole table would be slower
and might change values of types it has never seen; splicing entries does not touch them.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from redrive.wire.errors import EncodingError, syntax_error
from redrive.wire.field_tables import decode_value, encode_entries, encode_key, encode_text, value_end

_KNOWN_BYTES_MAX = 4096
_STRING = ord("S")
_CUT_SHORT = "table key runs past the end of its table"


def read_entry(table: bytes, key: str, default: Any = None, start: int = 0) -> Any:
    """One value of a table that begins at `start`; the others are not decoded."""
    raw = raw_entry(table, key, start)
    return default if raw is None else decode_value(raw, 0, len(raw))[0]


def raw_entry(table: bytes, key: str, start: int = 0) -> bytes | None:
    """One typed value as its own bytes, of a table that begins at `start`; None if there is no such key."""
    try:
        wanted = encode_key(key)
    except EncodingError:  # nothing can have such a key
        return None
    if wanted not in table:  # a search in C settles most misses
        return None
    end = len(table)
    while start < end:
        key_end = start + 1 + table[start]
        if key_end >= end:
            raise syntax_error(_CUT_SHORT)
        stop = value_end(table, key_end, end)
        if table.startswith(wanted, start):
            return table[key_end:stop]
        start = stop
    return None


def raw_entries(table: bytes) -> list[tuple[bytes, bytes]]:
    """Each entry of a table (without its length prefix), in order: its key, and all of its bytes.

    The bytes are the key's length, the key, the type and the value. A key given twice is there twice. Raises
    RemoteProtocolError for what is malformed.
    """
    entries = []
    start, end = 0, len(table)
    while start < end:
        key_end = start + 1 + table[start]
        if key_end >= end:
            raise syntax_error(_CUT_SHORT)
        # Most values are strings: reading the length here is cheaper than a call.
        if table[key_end] == _STRING and key_end + 5 <= end:
            stop = key_end + 5 + int.from_bytes(table[key_end + 1 : key_end + 5], "big")
            if stop > end:
                raise syntax_error("table value runs past the end of its table")
        else:
            stop = value_end(table, key_end, end)
        entries.append((table[start + 1 : key_end], table[start:stop]))
        start = stop
    return entries


def edit_table(table: bytes, changes: Mapping[str, Any], drop: Collection[str] = ()) -> bytes:
    """The table with `changes` set and the keys in `drop` removed; without length prefix, before and after.

    A changed entry keeps its place, a new one goes to the end, a key given twice ends up once. Where a key is in both,
    the change wins.
    """
    # Keys are compared with their length octets, as they stand in the table.
    pending = encode_entries(changes)
    dropped = _encoded_set(drop) if isinstance(drop, frozenset) else _encode_keys(drop)
    written: set[bytes] = set()
    parts = []
    start, kept_from, end = 0, 0, len(table)
    while start < end:
        key_end = start + 1 + table[start]
        if key_end >= end:
            raise syntax_error(_CUT_SHORT)
        stop = value_end(table, key_end, end)
        key = table[start:key_end]
        if key in pending or key in dropped:
            parts.append(table[kept_from:start])
            kept_from = stop
            if key in pending and key not in written:
                written.add(key)
                parts.append(pending[key])
        start = stop
    parts.append(table[kept_from:])
    parts += [entry for key, entry in pending.items() if key not in written] if written else pending.values()
    return b"".join(parts)


def drop_entries(table: bytes, drop: frozenset[str]) -> bytes:
    """The table (without length prefix) with the keys in `drop` removed."""
    # Messages with the same route and the same deaths have the same headers, unless each has one of its own.
    return _known_drop(table, drop) if len(table) <= _KNOWN_BYTES_MAX else _drop(table, drop)


def _drop(table: bytes, drop: frozenset[str]) -> bytes:
    for key in _encoded_set(drop):
        if key in table:  # a search in C settles most tables
            return edit_table(table, {}, drop)
    return table


def _encode_keys(keys: Iterable[str]) -> frozenset[bytes]:
    """The keys as they stand in a table; one that is too long for AMQP is left out."""
    raw_keys = [encode_text(key) for key in keys]
    return frozenset(bytes((len(raw),)) + raw for raw in raw_keys if len(raw) < 256)


# `drop` is nearly always one of a few constants.
_encoded_set = lru_cache(maxsize=64)(_encode_keys)
_known_drop = lru_cache(maxsize=256)(_drop)
