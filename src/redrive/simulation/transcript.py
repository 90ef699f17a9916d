"""A timeline as text for people and as JSON for machines."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from redrive.core import format_duration_ms, headers
from redrive.simulation.timeline import EventKind, Timeline, TimelineEvent

JSON_FORMAT = 1
"""Raised when a field changes its meaning or goes; new fields may come at any time."""

_SHOWN_MAX, _SHOWN_AT_START, _SHOWN_AT_END = 60, 24, 8
_REPEATS_MIN = 4
_VALUE_LENGTH_MAX = 100
_COLOURS = {"handled": "32", "parked": "33", "lost": "31", "stuck": "31", "endless": "31"}
_DIM, _BOLD = "2", "1"


_Line: TypeAlias = tuple[str, str, str, EventKind | None]


def as_text(timeline: Timeline, *, colour: bool = False) -> str:
    """A line per event: when, where, what; then how it ended, and the headers that the message has there."""
    shape = {None: "no declared retries", "none": "retry: false"}.get(timeline.shape, f"shape {timeline.shape}")
    counted = {None: "", 1: ", 1 run"}.get(timeline.attempts_max, f", {timeline.attempts_max} runs")
    lines = [f"{timeline.queue} ({shape}{counted}) on RabbitMQ {timeline.profile}, script: {timeline.script}", ""]
    rows = _lines(timeline)
    times = max((len(row[0]) for row in rows), default=0)
    places = max((len(row[1]) for row in rows), default=0)
    for at, place, text, kind in rows:
        line = f"{at:>{times + 2}}  {place:<{places}}  {text}".rstrip()
        lines.append(_coloured(line, _line_colour(timeline, kind), colour))
    lines += ["", _coloured(timeline.text, f"{_BOLD};{_COLOURS[timeline.end_state]}", colour)]
    lines += _header_lines(timeline.headers)
    return "\n".join(lines) + "\n"


def as_json(timeline: Timeline) -> dict[str, Any]:
    """The same for machines; times in milliseconds since the publish."""
    return {
        "format": JSON_FORMAT,
        "queue": timeline.queue,
        "shape": timeline.shape,
        "profile": timeline.profile,
        "script": timeline.script,
        "attempts_max": timeline.attempts_max,
        "runs": timeline.runs,
        "events": [_event_as_json(event) for event in timeline.events],
        "end": {
            "state": timeline.end_state.value,
            "safe": timeline.is_safe,
            "queue": timeline.final_queue,
            "at_ms": timeline.at_ms,
            "text": timeline.text,
            "headers": _plain(timeline.headers),
        },
    }


def _event_as_json(event: TimelineEvent) -> dict[str, Any]:
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


def _lines(timeline: Timeline) -> list[_Line]:
    """Time, place, text and kind of every line. Repetitions show once, the middle of a long timeline is left out."""
    shown = [
        event for previous, event in _with_previous(timeline.events) if not _is_redundant(event, previous, timeline)
    ]
    rows: list[_Line] = []
    number = 0
    while number < len(shown):
        period, times = _repetition(shown, number, timeline)
        rows += [_row(event, timeline) for event in shown[number : number + period]]
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


def _row(event: TimelineEvent, timeline: Timeline) -> _Line:
    return format_duration_ms(event.at_ms), event.queue or "", _event_text(event, timeline), event.kind


def _with_previous(events: tuple[TimelineEvent, ...]) -> Iterator[tuple[TimelineEvent | None, TimelineEvent]]:
    return zip((None, *events), events, strict=False)


def _repetition(events: list[TimelineEvent], start: int, timeline: Timeline) -> tuple[int, int]:
    """How many events from `start` on repeat as a group, and how often; (1, 1) if too seldom to matter."""

    def group(first: int, size: int) -> list[tuple[str | None, str, int | None]]:
        # Where nothing counts attempts, their number is no difference.
        counts = timeline.attempts_max is not None
        return [(one.queue, one.text, one.attempt if counts else None) for one in events[first : first + size]]

    for period in (1, 2):
        times = 1
        while group(start + times * period, period) == group(start, period):
            times += 1
        if times >= _REPEATS_MIN:
            return period, times
    return 1, 1


def _is_redundant(event: TimelineEvent, previous: TimelineEvent | None, timeline: Timeline) -> bool:
    """Whether a line adds nothing: an arrival right before the next run, or a pause that the run before it names."""
    if event.kind is EventKind.PAUSED and previous is not None:
        return previous.kind is EventKind.RUN and previous.delay_ms == event.delay_ms
    is_back = event.kind in (EventKind.ARRIVED, EventKind.REQUEUED) and event.queue == timeline.queue
    return is_back and not event.also


def _event_text(event: TimelineEvent, timeline: Timeline) -> str:
    text = event.text
    if event.kind is EventKind.RUN and event.attempt is not None:
        of = "" if timeline.attempts_max is None else f" of {timeline.attempts_max}"
        text = f"run {event.attempt}{of}: {text}"
    if event.also:
        text += f" (also reaches {', '.join(event.also)}, for their own consumers)"
    return text


def _line_colour(timeline: Timeline, kind: EventKind | None) -> str:
    match kind:
        case EventKind.DROPPED | EventKind.HELD | EventKind.REFUSED:
            return "31"
        case EventKind.RUN:
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


def _coloured(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text
