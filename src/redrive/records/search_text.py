"""What full-text search finds a dead letter by.

Words come from the body when it is text (its first 64 KiB), from header names and values, the error, the ids and the
names of queue, exchange and service. Left out: the stack's other lines, and the names of headers that every parked
message has, because they would match every search; and the times in those headers, for which nobody searches.

Code that narrows `body.path:value` or `header.name:value` down by full text first (with `certain_words`) must know what
is not in here: the part of a body beyond `BODY_BYTES_MAX` and of a text that `is_cut`, and the values of
`UNSEARCHED_HEADERS`.
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from typing import Any

from redrive.core import headers as known
from redrive.records.body_paths import header_texts
from redrive.records.explanations import STACK_HEADERS, top_lines
from redrive.records.letters import DeadLetter, Explanation

BODY_BYTES_MAX = 64 * 1024
UNSEARCHED_HEADERS = (
    STACK_HEADERS
    | known.DEATH_HEADERS
    | {known.HISTORY, known.PARKED_AT, known.FIRST_SEEN, known.NOT_BEFORE, known.REDRIVEN_MARK}
)
"""Headers whose values are not searched."""
_UNNAMED = (
    known.LIFE_HEADERS
    | known.DEATH_HEADERS
    | known.COUNT_HEADERS
    | {known.ORIGINAL_QUEUE, known.ORIGINAL_EXCHANGE, known.ORIGINAL_ROUTING_KEY}
)
_UNICODE_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_OTHER_ESCAPES = re.compile(r"\\[nrtbf/\"\\]")


def search_text(explanation: Explanation | DeadLetter, *, headers: Mapping[str, Any], body: bytes) -> str:
    """The text of one letter; Unicode without NUL, whatever the message holds."""
    parts = [
        explanation.queue,
        explanation.exchange,
        explanation.routing_key,
        explanation.reason,
        explanation.error_type,
        explanation.error_message,
        explanation.message_id,
        explanation.correlation_id,
        explanation.type,
        explanation.service,
        None if explanation.stack is None else top_lines(explanation.stack),
    ]
    # Our own headers say again what is said above; words count once.
    said = {*parts, f"{explanation.error_type}: {explanation.error_message}"}
    for name, value in headers.items():
        if name not in _UNNAMED:
            parts.append(name)
        if name in UNSEARCHED_HEADERS:
            continue
        kind = type(value)
        if kind is str:
            if value not in said:
                parts.append(value)
        elif kind is int:
            parts.append(str(value))
        else:
            parts += header_texts(value)
            if isinstance(value, Mapping):
                parts += _table_parts(value)
    parts.append(body_text(body))
    text = "\n".join([part for part in parts if part])
    if "\0" in text:
        text = text.replace("\0", " ")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def body_text(body: bytes) -> str:
    """The beginning of a body as text, empty if it is none. JSON's escapes are resolved: `Z\\u00fcrich` is Zürich."""
    try:
        text, _ = codecs.utf_8_decode(body[:BODY_BYTES_MAX], "strict", len(body) <= BODY_BYTES_MAX)
    except UnicodeDecodeError:
        return ""
    if "\\" in text and text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[", '"'):
        # An escaped backslash first, lest the letter after it is taken for an escape of its own.
        text = text.replace("\\\\", " ")
        text = _OTHER_ESCAPES.sub(" ", _UNICODE_ESCAPES.sub(_unescape, text))
    return text


def _unescape(found: "re.Match[str]") -> str:
    return bytes.fromhex(found.group().replace("\\u", "")).decode("utf-16-be", "replace")


def _table_parts(table: Mapping[str, Any]) -> Iterator[str]:
    """One level deep: what frameworks nest further is no text for people."""
    for name, value in table.items():
        yield name
        if isinstance(value, str):
            yield value
