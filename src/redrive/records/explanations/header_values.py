"""Headers as text, numbers and moments. They come from anybody: whatever is in them, nothing here raises.

Texts come out as Unicode without NUL, which PostgreSQL stores nowhere, and bounded.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from redrive.core import ReceivedMessage, RedriveError, shorten

NAME_BYTES_MAX = 255
_INT_MAX = 1 << 64
_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,:](\d{1,9}))?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)


class TolerantMessage:
    """A letter whose properties may be malformed: what can't be read is not there."""

    __slots__ = ("_letter", "header")

    header: Callable[[str], Any]
    """A header's value, None if it has none of the name."""

    def __init__(self, letter: ReceivedMessage) -> None:
        self._letter = letter
        # A letter that has its headers decoded already is asked a dozen times; that should cost a look each.
        decoded = getattr(letter, "headers", None)
        self.header = decoded.get if type(decoded) is dict else self._read_header

    @property
    def queue(self) -> str:
        """The queue it was consumed from."""
        return self._letter.queue

    @property
    def exchange(self) -> str:
        """The exchange it was last published to."""
        return self._letter.exchange

    @property
    def routing_key(self) -> str:
        """The key it was last published with."""
        return self._letter.routing_key

    @property
    def redelivered(self) -> bool:
        """Whether a consumer may have had it before."""
        return self._letter.redelivered

    def text(self, name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
        """A header as text; None if there is none, or nothing in it."""
        value = self.header(name)
        return None if value is None else text_of(value, bytes_max) or None

    def name(self, name: str) -> str | None:
        """A header as the name of something, which may be empty: the default exchange is."""
        value = self.header(name)
        if type(value) is str and len(value) <= NAME_BYTES_MAX and value.isascii() and "\0" not in value:
            return value  # nearly every one there is
        if isinstance(value, str | bytes | bytearray) and len(value) <= NAME_BYTES_MAX:
            return text_of(value, 3 * NAME_BYTES_MAX)
        return None

    def attribute(self, name: str, /) -> Any:
        """A property's value, None if it is not set."""
        try:
            return self._letter.attribute(name)
        except RedriveError:
            return None

    def _read_header(self, name: str) -> Any:
        try:
            return self._letter.header(name)
        except RedriveError:
            return None


def text_of(value: Any, bytes_max: int) -> str | None:
    """A scalar as text of at most so many bytes; None for what is none (tables, lists, nothing)."""
    if type(value) is str and len(value) <= bytes_max and value.isascii() and "\0" not in value:
        return value  # nearly every one there is
    match value:
        case str():
            text = value
        case bytes() | bytearray():
            text = bytes(value).decode("utf-8", "replace")
        case bool():
            text = "true" if value else "false"
        case int():
            text = str(int(value)) if -_INT_MAX < value < _INT_MAX else "?"
        case float() | Decimal():
            text = str(value)
        case datetime():
            text = value.isoformat()
        case _:
            return None
    return shorten(text.replace("\0", "\ufffd"), bytes_max)


def number_of(value: Any) -> int | None:
    """A whole number that a signed 32-bit column holds, digits in a text included."""
    if type(value) is int:
        return value if -(1 << 31) <= value < 1 << 31 else None
    if isinstance(value, bytes | bytearray):
        value = bytes(value[:12]).decode("ascii", "replace")
    if isinstance(value, str) and value.isascii() and 0 < len(value) <= 11 and value.removeprefix("-").isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return int(value) if -(1 << 31) <= value < 1 << 31 else None


def moment_ms_of(value: Any) -> int | None:
    """Milliseconds since 1970 of a moment in any of the ways people write one; None if it is none.

    A number counts as seconds below 10^11 (the year 5138) and as milliseconds from there on.
    """
    if type(value) is int:  # as we write it ourselves
        return _number_ms(value)
    if isinstance(value, bytes | bytearray):
        value = bytes(value[:64]).decode("utf-8", "replace")
    match value:
        case datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            try:
                return (moment - _EPOCH) // (_EPOCH.resolution * 1000)
            except OverflowError:
                return None
        case str():
            text = value.strip()
            return _number_ms(int(text)) if text.isascii() and text.isdigit() and len(text) < 20 else _iso_ms(text)
        case bool():
            return None
        case int():
            return _number_ms(int(value))
        case _:
            return None


def plausible_ms(moment_ms: int | None, now_ms: int) -> int | None:
    """A moment by another machine's clock: `now_ms` if it is up to a day ahead; None before 1970 or later than that."""
    if moment_ms is None or moment_ms < 0 or moment_ms > now_ms + _DAY_MS:
        return None
    return min(moment_ms, now_ms)


def _number_ms(number: int) -> int:
    return number * 1000 if abs(number) < 100_000_000_000 else number


def _iso_ms(text: str) -> int | None:
    """ISO 8601, and NServiceBus's own `2026-11-01 10:15:40:123456 Z`; without a zone it is UTC."""
    found = _ISO.match(text[:64])
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=UTC)
    except ValueError:
        return None
    milliseconds = (moment - _EPOCH) // (_EPOCH.resolution * 1000) + int((fraction or "0").ljust(3, "0")[:3])
    if zone is not None and zone[0] in "+-":
        offset_minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        milliseconds -= (offset_minutes if zone[0] == "+" else -offset_minutes) * 60_000
    return milliseconds
