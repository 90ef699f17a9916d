"""An event as a log record that is safe to write, and the record as a line: JSON for machines, words for a person.

A record is one line, bounded, and without secrets, whatever the values were. Values come from messages and from other
people's errors: control characters would break a line or drive a terminal, a body in an error text would fill a disk,
a URL in it may hold a password.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from redrive.core import format_duration_ms, shorten
from redrive.telemetry.catalogue import CONSUMER_STATUS, DECIDED, DECISIONS, EVENTS, FIELDS, Level

TEXT_BYTES_MAX = 1_000
FIELDS_MAX = 40
LIST_MAX = 20

LogFormat = Literal["json", "text"]

Scalar: TypeAlias = str | int | float | bool | None

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_COLOURS = {Level.DEBUG: "2", Level.INFO: "36", Level.WARNING: "33", Level.ERROR: "31"}
_TOLD_ELSEWHERE = frozenset(
    {"queue", "attempt", "attemptsMax", "decision", "delay", "error", "shape", "handlerSeconds", "consumerStatus"}
)
_SHORT = 200
_LOOKED_AT_MAX = 50_000
_CREDENTIALS = re.compile(r"(?<=://)[^\s/]*(?=@)")
_BEARER = re.compile(r"(?i)\b(bearer) [\w.~+/=-]{8,}")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One event: when, how much it matters, what, and its fields by their keys in the log."""

    time_s: float
    level: Level
    event: str
    fields: Mapping[str, Scalar | list[Scalar]]

    @property
    def time_text(self) -> str:
        """UTC, to the millisecond."""
        return datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Render = Callable[[LogRecord], str]


def level_of(event: str, fields: Mapping[str, object]) -> Level:
    """How much an event matters; one nobody knows is worth a line."""
    if event == DECIDED:
        return DECISIONS.get(str(fields.get("decision")), Level.INFO)
    known = EVENTS.get(event)
    return Level.INFO if known is None else known[0]


def make_record(time_s: float, event: str, fields: Mapping[str, object]) -> LogRecord:
    """The record of an event: the known fields first, in the catalogue's order, then the others; None is left out."""
    safe: dict[str, Scalar | list[Scalar]] = {}
    for name, (key, _) in FIELDS.items():
        value = fields.get(name)
        if value is not None:
            safe[key] = _value(value)
    if event == DECIDED and fields.get("shape") == "service":
        status = CONSUMER_STATUS.get(str(fields.get("decision")))
        if status is not None:
            safe["consumerStatus"] = status
    for name, value in fields.items():
        if name not in FIELDS and value is not None and len(safe) < FIELDS_MAX:
            safe[safe_text(_camel_case(name))] = _value(value)
    return LogRecord(time_s=time_s, level=level_of(event, fields), event=safe_text(event), fields=safe)


def render_json(record: LogRecord) -> str:
    """One JSON object: time, level, event, then the fields."""
    return _ENCODER.encode(
        {"time": record.time_text, "level": record.level.word, "event": record.event, **record.fields}
    )


def render_text(record: LogRecord, *, colour: bool = False) -> str:
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


def safe_text(text: str) -> str:
    """One line, at most `TEXT_BYTES_MAX` bytes before control characters are escaped; passwords in URLs are gone."""
    if (
        len(text) <= _SHORT
        and text.isascii()
        and text.isprintable()
        and "://" not in text
        and "er " not in text.lower()
    ):
        return text  # nearly all are like this: ids, keys, names
    # Secrets first: half a password would not look like one any more.
    clean = _BEARER.sub(r"\1 ***", _CREDENTIALS.sub("***", text[:_LOOKED_AT_MAX]))
    bounded = shorten(clean, TEXT_BYTES_MAX)
    return _UNSAFE.sub(lambda match: _escape(match.group()), bounded)


def _value(value: object) -> Scalar | list[Scalar]:
    if isinstance(value, list | tuple | set | frozenset):
        return [_scalar(one) for one in list(value)[:LIST_MAX]]
    return _scalar(value)


def _scalar(value: object) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 63 else safe_text(hex(value))
    if isinstance(value, float):
        return float(value) if value - value == 0 else str(value)  # JSON knows neither NaN nor infinity
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value)} bytes)"  # may be a payload
    return safe_text(value if isinstance(value, str) else _text_of(value))


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as broken:  # noqa: BLE001 - a __str__ of somebody's; a log line is no place to fail
        return f"({type(value).__name__} whose text can't be made: {type(broken).__name__})"


def _escape(character: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if short is not None:
        return short
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"


def _camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def _decided(record: LogRecord) -> str:
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
