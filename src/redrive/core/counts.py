"""Numbers in headers: they come from outside, and what is no whole number counts as nothing."""

from typing import Any

COUNT_MAX = 1_000_000_000
"""Larger numbers in a header are somebody's mistake; they are read as this."""


def read_count(value: Any) -> int:
    """A header's number: whole, not negative, bounded; digits in a text count, as other languages write them."""
    if value is None:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return 0
    return min(value, COUNT_MAX)
