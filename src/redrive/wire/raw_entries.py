"""A table taken apart into its entries without decoding them, for whoever must tell bytes from bytes."""

from redrive.wire.errors import syntax_error
from redrive.wire.tables import value_end

_STRING = ord("S")


def raw_entries(table: bytes) -> list[tuple[bytes, bytes]]:
    """Each entry of a table (without its length prefix), in order: its key, and all of its bytes.

    Those are the key's length, the key, the type and the value. A key given twice is there twice. Raises
    RemoteProtocolError for what is malformed.
    """
    entries = []
    start, end = 0, len(table)
    while start < end:
        key_end = start + 1 + table[start]
        if key_end >= end:
            raise syntax_error("table key runs past the end of its table")
        # Most values are strings, for which a call costs more than the look.
        if table[key_end] == _STRING and key_end + 5 <= end:
            stop = key_end + 5 + int.from_bytes(table[key_end + 1 : key_end + 5], "big")
            if stop > end:
                raise syntax_error("table value runs past the end of its table")
        else:
            stop = value_end(table, key_end, end)
        entries.append((table[start + 1 : key_end], table[start:stop]))
        start = stop
    return entries
