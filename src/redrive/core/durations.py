"""Durations as people write them: `500ms`, `30s`, `5m`, `1h30m`, `2d`.

A duration is a whole number of milliseconds everywhere inside; this module owns the two ways across that border. The
written form is canonical (`90s` and `1m30s` both become `1m30s`), because it becomes part of queue names and two
spellings of one delay must not become two queues.
"""

import re

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_WRITTEN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d{1,3})?)s)?(?:(\d+)ms)?")
_DIGITS_MAX = 18


class InvalidDuration(ValueError):
    """What is no duration; the message says what one looks like."""


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a written duration. Raises `InvalidDuration`."""
    compact = text.strip().replace(" ", "")
    match = _WRITTEN.fullmatch(compact) if compact and len(compact) <= 64 and compact.isascii() else None
    if match is None:
        hint = f", for example {compact}s" if compact.isdecimal() and compact.isascii() else ""
        raise InvalidDuration(f"{text!r} is not a duration; write it like 500ms, 30s, 5m, 1h30m or 2d{hint}")
    days, hours, minutes, seconds, milliseconds = match.groups()
    if any(part is not None and len(part) > _DIGITS_MAX for part in match.groups()):
        raise InvalidDuration(f"{text!r} is longer than any broker waits")
    whole, _, fraction = (seconds or "0").partition(".")
    return (
        int(days or 0) * _UNITS_MS["d"]
        + int(hours or 0) * _UNITS_MS["h"]
        + int(minutes or 0) * _UNITS_MS["m"]
        + int(whole) * _UNITS_MS["s"]
        + int(fraction.ljust(3, "0") if fraction else 0)
        + int(milliseconds or 0)
    )


def format_duration_ms(duration_ms: int) -> str:
    """The canonical text of a duration: largest units first, zero units left out (`1h30m`, `500ms`, `0s`)."""
    if duration_ms == 0:
        return "0s"
    parts = []
    rest = duration_ms
    for unit, size_ms in _UNITS_MS.items():
        count, rest = divmod(rest, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
