"""Moments and numbers as a filter writes them, both ways.

    moments   >2h older, <15m younger; 2026-11-01 (a whole day, UTC), today, yesterday; 2026-11-01T12:00Z (without a
              zone it is UTC); @1793534400000 (milliseconds since 1970); > >= after, < <= before; a..b between
    numbers   3, >3, >=3, <3, <=3, 1..5, 1.., ..5; sizes with kB (1000), KiB (1024) and so on

A moment of the clock belongs to what comes after it, so `>` and `>=` ask the same. A day is all of it: `>` a day is
from its end on, `<=` a day and a range up to it include it.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from redrive.core import InvalidDuration, format_duration_ms, parse_duration_ms
from redrive.records.filters.filter_problems import UnreadableValue

LIMIT = 1 << 53
"""Beyond this neither a moment nor a number is meant; every store and every JSON reader holds what is below."""

_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = _EPOCH.resolution * 1000
_OPERATOR = re.compile(r"(>=|<=|>|<|=)?(.*)", re.DOTALL)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_CLOCK = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)
_MILLISECONDS = re.compile(r"@(-?\d{1,17})", re.ASCII)
_NUMBER = re.compile(r"(-?\d{1,16})", re.ASCII)
_SIZE = re.compile(r"(\d{1,16}(?:\.\d{1,6})?)\s?([kKMGT]?i?[bB]?)", re.ASCII)
_MOMENTS = "write >2h (older), <15m (younger), 2026-11-01, today, >2026-11-01T12:00Z or 2026-11-01..2026-11-03"
_NUMBERS = "write 3, >3, <=3 or 1..5"
_SIZES = "write 64kB, >64kB, <=1MiB or 1kB..64kB"

_Range = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class _Moment:
    """From `start` to before `end`: a day, or a point where both are the same."""

    start: int
    end: int


def read_moments(text: str, now_ms: int) -> _Range:
    """From the first on and before the second, in milliseconds since 1970. Raises `UnreadableValue`."""
    if ".." in text:
        first, _, last = text.partition("..")
        from_ms = _moment(first, now_ms).start if first else None
        until_ms = _moment(last, now_ms).end if last else None
        if from_ms is not None and until_ms is not None and from_ms >= until_ms:
            raise UnreadableValue(f"the range {text} ends before it begins", "write the earlier moment first")
        return from_ms, until_ms
    operator, written = _parted(text)
    age_ms = _duration_ms(written)
    if age_ms is not None:
        # Older is longer ago: `>2h` is everything before two hours ago.
        moment_ms = _bounded(now_ms - age_ms, text)
        if operator in (">", ">="):
            return None, moment_ms
        if operator in ("<", "<="):
            return moment_ms, None
        raise UnreadableValue(f"{text} does not say on which side", f"write >{written} (older) or <{written} (younger)")
    moment = _moment(written, now_ms)
    match operator:
        case ">":
            return moment.end, None
        case ">=":
            return moment.start, None
        case "<":
            return None, moment.start
        case "<=":
            return None, moment.end
        case _ if moment.start == moment.end:
            return moment.start, _bounded(moment.start + _precision_ms(written), text)
        case _:
            return moment.start, moment.end


def write_moments(from_ms: int | None, until_ms: int | None) -> str:
    """The same again, absolutely."""
    if from_ms is None:
        return ".." if until_ms is None else f"<{_written(until_ms)}"
    return f">={_written(from_ms)}" if until_ms is None else f"{_written(from_ms)}..{_written(until_ms)}"


def read_numbers(text: str, *, is_size: bool) -> _Range:
    """Both ends included. Raises `UnreadableValue`."""
    if ".." in text:
        first, _, last = text.partition("..")
        low = _number(first, is_size) if first else None
        high = _number(last, is_size) if last else None
        if low is not None and high is not None and low > high:
            raise UnreadableValue(f"the range {text} ends before it begins", "write the smaller number first")
        return low, high
    operator, written = _parted(text)
    number = _number(written, is_size)
    match operator:
        case ">":
            return _bounded(number + 1, text), None
        case ">=":
            return number, None
        case "<":
            return None, _bounded(number - 1, text)
        case "<=":
            return None, number
        case _:
            return number, number


def write_numbers(low: int | None, high: int | None) -> str:
    """The same again."""
    if low is None:
        return ".." if high is None else f"<={high}"
    if high is None:
        return f">={low}"
    return f"{low}" if low == high else f"{low}..{high}"


def _parted(text: str) -> tuple[str, str]:
    found = _OPERATOR.fullmatch(text)
    assert found is not None  # it matches everything
    return found.group(1) or "", found.group(2).strip()


def _duration_ms(text: str) -> int | None:
    if not text[:1].isdigit() or "-" in text:
        return None
    try:
        return parse_duration_ms(text)
    except InvalidDuration:
        return None


def _moment(text: str, now_ms: int) -> _Moment:
    """A day, a point, or a duration ago."""
    today_ms = now_ms - now_ms % _DAY_MS
    match text.lower():
        case "now":
            return _Moment(now_ms, now_ms)
        case "today":
            return _Moment(today_ms, today_ms + _DAY_MS)
        case "yesterday":
            return _Moment(today_ms - _DAY_MS, today_ms)
    if found := _MILLISECONDS.fullmatch(text):
        point = _bounded(int(found.group(1)), text)
        return _Moment(point, point)
    age_ms = _duration_ms(text)
    if age_ms is not None:
        point = _bounded(now_ms - age_ms, text)
        return _Moment(point, point)
    try:
        if found := _DATE.fullmatch(text):
            start = (datetime(*map(int, found.groups()), tzinfo=UTC) - _EPOCH) // _MS  # type: ignore[misc,arg-type]
            return _Moment(start, start + _DAY_MS)
        if found := _CLOCK.fullmatch(text):
            point = _clock_ms(found)
            return _Moment(point, point)
    except ValueError:
        raise UnreadableValue(f"{text} is no day of the calendar or no time of the day", _MOMENTS) from None
    raise UnreadableValue(f"{text or 'nothing'} is no moment", _MOMENTS)


def _clock_ms(found: "re.Match[str]") -> int:
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=UTC)
    point = (moment - _EPOCH) // _MS + int((fraction or "0").ljust(3, "0"))
    if zone is not None and zone not in "Zz":
        offset_ms = (int(zone[1:3]) * 60 + int(zone[-2:])) * 60_000
        point += -offset_ms if zone[0] == "+" else offset_ms
    return point


def _precision_ms(written: str) -> int:
    """How long a moment is that was written as a point: a minute, a second, or a thousandth of one."""
    found = _CLOCK.fullmatch(written)
    if found is None or found.group(7) is not None:
        return 1
    return 60_000 if found.group(6) is None else 1_000


def _written(moment_ms: int) -> str:
    """A point, never a day: `2026-11-01T12:00:00Z`, with thousandths where there are some."""
    try:
        moment = _EPOCH + moment_ms * _MS
    except OverflowError:
        return f"@{moment_ms}"
    return moment.isoformat(timespec="milliseconds" if moment_ms % 1000 else "seconds").replace("+00:00", "Z")


def _number(text: str, is_size: bool) -> int:
    found = _NUMBER.fullmatch(text)
    if found is not None:
        return _bounded(int(found.group(1)), text)
    if not is_size:
        raise UnreadableValue(f"{text or 'nothing'} is no whole number", _NUMBERS)
    sized = _SIZE.fullmatch(text)
    if sized is None:
        raise UnreadableValue(f"{text or 'nothing'} is no size", _SIZES)
    amount, unit = sized.groups()
    base = 1024 if "i" in unit else 1000
    power = "kmgt".find(unit[:1].lower()) + 1 if unit[:1].lower() in ("k", "m", "g", "t") else 0
    whole, _, fraction = amount.partition(".")
    part, rest = divmod(int(fraction or 0) * base**power, 10 ** len(fraction))
    size = _bounded(int(whole) * base**power + part, text)
    if rest:
        raise UnreadableValue(f"{text} is no whole number of bytes", f"write {size} or {size + 1}")
    return size


def _bounded(value: int, text: str) -> int:
    if not -LIMIT < value < LIMIT:
        raise UnreadableValue(
            f"{text} is beyond all bounds", f"at most {format_duration_ms(LIMIT)} or {LIMIT:,} are meant"
        )
    return value
