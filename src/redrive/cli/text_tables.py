"""Tables, sparklines and texts for people; control characters of messages never reach the terminal.

Everything here makes text from values; nothing prints.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from unicodedata import combining, east_asian_width

import click

_SPARKS = "▁▂▃▄▅▆▇█"
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
_GAP = "  "
_NARROWEST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column's title. One that `shrinks` is cut, to six characters at least, where the terminal is narrow."""

    title: str
    is_number: bool = False
    shrinks: bool = False


@dataclass(frozen=True, slots=True)
class TableCell:
    """A text in a table; `colour` is used on terminals that show colours."""

    text: str
    colour: str | None = None


def render_table(
    columns: Sequence[TableColumn], rows: Iterable[Sequence[str | TableCell]], *, width: int | None, colour: bool
) -> str:
    """Lines of a table with a line of titles; `width` None cuts nothing. Control characters are escaped."""
    cells = [[_clean(cell) for cell in row] for row in rows]
    widths = [
        max([text_width(column.title), *(text_width(row[place].text) for row in cells)])
        for place, column in enumerate(columns)
    ]
    if width is not None:
        _shrink(widths, columns, width)
    titles = [TableCell(column.title.upper()) for column in columns]
    lines = [_line(titles, columns, widths, colour=False)]
    lines += [_line(row, columns, widths, colour=colour) for row in cells]
    return "\n".join(lines)


def printable(text: str, *, keeps_lines: bool = False) -> str:
    """The text with every invisible character escaped: no escape sequence, no right-to-left trick.

    `keeps_lines`: line ends and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or (keeps_lines and char in "\n\t") else _escaped(char) for char in text)


def text_width(text: str) -> int:
    """How many columns it takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns, with … at its end if it was cut."""
    if text_width(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += text_width(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept) + "…"


def sparkline(values: Sequence[int]) -> str:
    """A line of bars: nothing is a space, the most is the highest."""
    top = max(values, default=0)
    if top == 0:
        return " " * len(values)
    return "".join(" " if value <= 0 else _SPARKS[(value * len(_SPARKS) - 1) // top] for value in values)


def duration_text(duration_ms: int) -> str:
    """About how long, in its largest unit: `3d`, `5h`, `12m`, `40s`."""
    for unit, size_ms in _UNITS:
        if duration_ms >= size_ms:
            return f"{duration_ms // size_ms}{unit}"
    return "0s"


def moment_text(at_ms: int | None) -> str:
    """A moment in UTC to the second, as ISO 8601; `-` where there is none."""
    if at_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms since 1970"


def size_text(size_bytes: int) -> str:
    """About how many bytes: `312 B`, `1.5 kB`, `16.8 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95 or unit == "GB":
            return f"{size:.1f} {unit}"
    raise AssertionError("unreachable")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 dead letter`, `12,431 dead letters`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _clean(cell: str | TableCell) -> TableCell:
    return TableCell(printable(cell)) if isinstance(cell, str) else TableCell(printable(cell.text), cell.colour)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # an octet that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _shrink(widths: list[int], columns: Sequence[TableColumn], width: int) -> None:
    """Narrows the widest column that may shrink, until all fit or none can be narrower."""
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    shrinking = [place for place, column in enumerate(columns) if column.shrinks]
    while over > 0 and shrinking:
        widest = max(shrinking, key=lambda place: widths[place])
        if widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1
        over -= 1


def _line(cells: Sequence[TableCell], columns: Sequence[TableColumn], widths: Sequence[int], *, colour: bool) -> str:
    parts = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = cut(cell.text, width)
        room = " " * (width - text_width(text))
        shown = click.style(text, fg=cell.colour) if colour and cell.colour else text
        parts.append(room + shown if column.is_number else shown + room)
    return _GAP.join(parts).rstrip()
