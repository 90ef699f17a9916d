"""Cursors: where a page ended, so that the next one begins there. Opaque to callers; safe in a URL.

A cursor holds the sort key of the last row seen, not a number of rows: a deep page costs what the first does, and rows
that come or go in between neither repeat nor hide others.
"""

import base64
import binascii
from collections.abc import Sequence

import msgspec

from redrive.stores.errors import StoreError


class InvalidCursor(StoreError):
    """A cursor that no page of this list gave."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(f"The cursor {cursor[:40]!r} is not one of this list; ask for its first page instead.")


def write_cursor(kind: str, key: Sequence[int]) -> str:
    """A cursor of a list of this kind."""
    return base64.urlsafe_b64encode(msgspec.json.encode([kind, *key])).decode().rstrip("=")


def read_cursor(kind: str, cursor: str, *, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Its key: so many numbers, as a list of this kind may have. Raises InvalidCursor."""
    try:
        parsed = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise InvalidCursor(cursor) from None
    if not isinstance(parsed, list) or parsed[:1] != [kind] or len(parsed) - 1 not in sizes:
        raise InvalidCursor(cursor)
    if not all(type(each) is int and abs(each) < 2**63 for each in parsed[1:]):
        raise InvalidCursor(cursor)
    return tuple(parsed[1:])
