"""A record as a line: JSON for machines, words and colour for a person."""

import json
from collections.abc import Callable
from typing import Literal

from redrive.core import format_duration_ms
from redrive.telemetry.catalogue import DECIDED, EVENTS, Level
from redrive.telemetry.records import Record

LogFormat = Literal["json", "text"]
Render = Callable[[Record], str]

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_COLOURS = {Level.DEBUG: "2", Level.INFO: "36", Level.WARNING: "33", Level.ERROR: "31"}
_TOLD_ELSEWHERE = frozenset(
    {"queue", "attempt", "attemptsMax", "decision", "delay", "error", "shape", "handlerSeconds", "consumerStatus"}
)


def render_json(record: Record) -> str:
    """One JSON object: time, level, event, then the fields."""
    return _ENCODER.encode(
        {"time": record.time_text, "level": record.level.word, "event": record.event, **record.fields}
    )


def render_text(record: Record, *, colour: bool = False) -> str:
    """One line for a person: the time of day, what, where, then what else is known."""
    fields = record.fields
    if record.event == DECIDED:
        word = str(fields.get("decision", "?")).upper()
        told = _decided(record)
        rest = {key: value for key, value in fields.items() if key not in _TOLD_ELSEWHERE}
    else:
        word = record.event
        told = EVENTS[record.event][1] if record.event in EVENTS else ""
        rest = dict(fields)
        if "queue" in rest:
            told = f"{rest.pop('queue')}: {told}" if told else str(rest.pop("queue"))
    pairs = " ".join(f"{key}={_quoted(value)}" for key, value in rest.items())
    clock = record.time_text[11:-1]
    if colour:
        return f"\x1b[2m{clock}\x1b[0m \x1b[{_COLOURS[record.level]}m{word:<8}\x1b[0m {told}  \x1b[2m{pairs}\x1b[0m"
    return f"{clock} {word:<8} {told}  {pairs}".rstrip()


def _decided(record: Record) -> str:
    fields = record.fields
    parts = [str(fields.get("queue", "?"))]
    if "attempt" in fields:
        of = f" of {fields['attemptsMax']}" if "attemptsMax" in fields else ""
        parts.append(f"attempt {fields['attempt']}{of}")
    delay = fields.get("delay")
    if isinstance(delay, int) and not isinstance(delay, bool) and delay >= 0:
        parts.append(f"again in {format_duration_ms(delay)}")
    if "error" in fields:
        parts.append(str(fields["error"]))
    return "  ".join(parts)


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text
