"""A table edited at the level of its entries: what is not named stays as it is, to the byte.

Redrive writes a header or two into messages that are not its own. Decoding and encoding the whole table would be slower
and would have to be trusted with types it has never seen; splicing entries has nothing to get wrong in them.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from redrive.wire.errors import syntax_error
from redrive.wire.tables import decode_value, encode_entry, encode_text, value_end


def entry_spans(table: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """For each entry of a table (without its length prefix): raw key, start, start of the typed value, end."""
    start, end = 0, len(table)
    while start < end:
        key_end = start + 1 + table[start]
        if key_end >= end:
            raise syntax_error("table key runs past the end of its table")
        stop = value_end(table, key_end, end)
        yield table[start + 1 : key_end], start, key_end, stop
        start = stop


def read_entry(table: bytes, key: str, default: Any = None) -> Any:
    """One value out of a table, the others stepped over undecoded."""
    raw = raw_entry(table, key)
    return default if raw is None else decode_value(raw, 0, len(raw))[0]


def raw_entry(table: bytes, key: str) -> bytes | None:
    """One typed value's own bytes out of a table, None if there is no such key."""
    wanted = encode_text(key)
    if wanted not in table:  # a search in C settles most misses
        return None
    # The same steps as in `entry_spans`, without a generator: a consumer reads a header or two of every message.
    start, end = 0, len(table)
    while start < end:
        key_end = start + 1 + table[start]
        if key_end >= end:
            raise syntax_error("table key runs past the end of its table")
        stop = value_end(table, key_end, end)
        if table[start + 1 : key_end] == wanted:
            return table[key_end:stop]
        start = stop
    return None


def edit_table(table: bytes, changes: Mapping[str, Any], drop: Collection[str] = ()) -> bytes:
    """The table (both without length prefix) with `changes` made and `drop` gone.

    A changed entry keeps its place, a new one goes to the end, a key given twice ends up once. Where a key is in both,
    the change wins.
    """
    pending = {encode_text(key): encode_entry(key, value) for key, value in changes.items()}
    dropped = {encode_text(key) for key in drop}
    written: set[bytes] = set()
    parts = []
    for key, start, _, end in entry_spans(table):
        if key in pending:
            if key not in written:
                written.add(key)
                parts.append(pending[key])
        elif key not in dropped:
            parts.append(table[start:end])
    parts += [entry for key, entry in pending.items() if key not in written]
    return b"".join(parts)
