"""A life told: a timeline for people, a document for machines."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from redrive.core import format_duration_ms, headers
from redrive.simulation.lives import Event, Kind, Life

JSON_FORMAT = 1
"""Raised when a field changes its meaning or goes; new fields may come at any time."""

_SHOWN_MAX, _SHOWN_AT_START, _SHOWN_AT_END = 60, 24, 8
_REPEATS_MIN = 4
_VALUE_LENGTH_MAX = 100
_COLOURS = {"handled": "32", "parked": "33", "lost": "31", "stuck": "31", "endless": "31"}
_DIM, _BOLD = "2", "1"


Row: TypeAlias = tuple[str, str, str, Kind | None]


def tell(life: Life, *, colour: bool = False) -> str:
    """The timeline: when, where, what; then the end, and the headers that the message has there."""
    shape = {None: "no declared retries", "none": "retry: false"}.get(life.shape, f"shape {life.shape}")
    counted = {None: "", 1: ", 1 run"}.get(life.attempts_max, f", {life.attempts_max} runs")
    lines = [f"{life.queue} ({shape}{counted}) on RabbitMQ {life.profile}, script: {life.script}", ""]
    rows = _rows(life)
    times = max((len(row[0]) for row in rows), default=0)
    places = max((len(row[1]) for row in rows), default=0)
    for at, place, text, kind in rows:
        line = f"{at:>{times + 2}}  {place:<{places}}  {text}".rstrip()
        lines.append(_painted(line, _line_colour(life, kind), colour))
    lines += ["", _painted(life.text, f"{_BOLD};{_COLOURS[life.ending]}", colour)]
    lines += _header_lines(life.headers)
    return "\n".join(lines) + "\n"


def as_json(life: Life) -> dict[str, Any]:
    """The same for machines; times in milliseconds since the publish."""
    return {
        "format": JSON_FORMAT,
        "queue": life.queue,
        "shape": life.shape,
        "profile": life.profile,
        "script": life.script,
        "attempts_max": life.attempts_max,
        "runs": life.runs,
        "events": [_event_as_json(event) for event in life.events],
        "end": {
            "state": life.ending.value,
            "safe": life.is_safe,
            "queue": life.resting_in,
            "at_ms": life.at_ms,
            "text": life.text,
            "headers": _plain(life.headers),
        },
    }


def _event_as_json(event: Event) -> dict[str, Any]:
    return {
        "at_ms": event.at_ms,
        "kind": event.kind.value,
        "queue": event.queue,
        "text": event.text,
        "attempt": event.attempt,
        "outcome": event.outcome,
        "decision": event.decision,
        "delay_ms": event.delay_ms,
        "until_ms": event.until_ms,
        "why": event.why,
        "also": list(event.also),
        "headers": _plain(event.headers),
    }


def _rows(life: Life) -> list[Row]:
    """Time, place, text and kind of every line. What repeats is told once, and the middle of a long life left out."""
    shown = [event for before, event in _with_before(life.events) if not _goes_without_saying(event, before, life)]
    rows: list[Row] = []
    number = 0
    while number < len(shown):
        period, times = _repetition(shown, number, life)
        rows += [_row(event, life) for event in shown[number : number + period]]
        number += period * times
        if times > 1:
            until = format_duration_ms(shown[number - 1].at_ms)
            rows.append(
                ("…", "", f"({'the same' if period == 1 else 'these'} {times - 1} times more, until {until})", None)
            )
    left_out = len(rows) - _SHOWN_AT_START - _SHOWN_AT_END
    if len(rows) > _SHOWN_MAX:
        rows[_SHOWN_AT_START:-_SHOWN_AT_END] = [("…", "", f"({left_out} lines like these)", None)]
    return rows


def _row(event: Event, life: Life) -> Row:
    return format_duration_ms(event.at_ms), event.queue or "", _told(event, life), event.kind


def _with_before(events: tuple[Event, ...]) -> Iterator[tuple[Event | None, Event]]:
    return zip((None, *events), events, strict=False)


def _repetition(events: list[Event], start: int, life: Life) -> tuple[int, int]:
    """How many events from `start` on repeat as a group, and how often; (1, 1) if too seldom to matter."""

    def group(first: int, size: int) -> list[tuple[str | None, str, int | None]]:
        # Where nobody counts attempts, their number is no difference.
        counts = life.attempts_max is not None
        return [(one.queue, one.text, one.attempt if counts else None) for one in events[first : first + size]]

    for period in (1, 2):
        times = 1
        while group(start + times * period, period) == group(start, period):
            times += 1
        if times >= _REPEATS_MIN:
            return period, times
    return 1, 1


def _goes_without_saying(event: Event, before: Event | None, life: Life) -> bool:
    """Back in the queue it came from, where the next line is its next run; a pause that the run before has told of."""
    if event.kind is Kind.PAUSED and before is not None:
        return before.kind is Kind.RUN and before.delay_ms == event.delay_ms
    is_back = event.kind in (Kind.ARRIVED, Kind.RETURNED) and event.queue == life.queue
    return is_back and not event.also


def _told(event: Event, life: Life) -> str:
    text = event.text
    if event.kind is Kind.RUN and event.attempt is not None:
        of = "" if life.attempts_max is None else f" of {life.attempts_max}"
        text = f"run {event.attempt}{of}: {text}"
    if event.also:
        text += f" (also reaches {', '.join(event.also)}, for their own consumers)"
    return text


def _line_colour(life: Life, kind: Kind | None) -> str:
    match kind:
        case Kind.DROPPED | Kind.HELD | Kind.REFUSED:
            return "31"
        case Kind.RUN:
            return ""
        case _:
            return _DIM


def _header_lines(carried: Mapping[str, Any]) -> list[str]:
    if not carried:
        return []
    # x-first-death-* and x-last-death-* repeat what x-death has.
    names = sorted(name for name in carried if not name.startswith(("x-first-death-", "x-last-death-")))
    width = max(map(len, names), default=0)
    return ["It carries:", *(f"  {name:<{width}}  {_short(name, carried[name])}".rstrip() for name in names)]


def _short(name: str, value: Any) -> str:
    """A header's value on one line."""
    if name == headers.DEATHS and isinstance(value, list):
        return ", ".join(f"{one.get('queue')} {one.get('reason')} ×{one.get('count')}" for one in value)
    if name == headers.HISTORY and isinstance(value, list):
        return f"{len(value)} failed, the last: {value[-1].get('error')}" if value else "none"
    text = str(_plain(value))
    return text if len(text) <= _VALUE_LENGTH_MAX else f"{text[:_VALUE_LENGTH_MAX]}…"


def _plain(value: Any) -> Any:
    """As JSON has it."""
    match value:
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case datetime():
            return value.isoformat()
        case bytes():
            return value.decode("utf-8", "replace")
        case bool() | float() | None:
            return value
        case int():
            return int(value)
        case _:
            return str(value)


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text
