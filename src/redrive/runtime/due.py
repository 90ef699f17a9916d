"""`processAfterDelayMs`: a message that says how long after its publishing it may be handled. Pure.

It is a header, else a top-level field of a JSON body. The time counts from the `timestamp` property, else from the
first delivery, which a copy of the message carries with it (`x-redrive-first-seen`).
"""

import json
from datetime import datetime
from typing import Any

from redrive.core import DELAY_MS_MAX, Letter

DELAY = "processAfterDelayMs"

_DELAY_IN_BODY = b'"processAfterDelayMs"'
_BODY_BYTES_MAX = 16 * 1024 * 1024


def due_ms(letter: Letter, body: bytes, *, first_seen_ms: int) -> int | None:
    """When a message may be handled, in milliseconds since 1970; None if it asks for no delay.

    A timestamp after its first delivery can't be one (milliseconds where AMQP has seconds are a common mistake), so
    the earlier of the two counts.
    """
    delay_ms = asked_delay_ms(letter, body)
    if delay_ms is None:
        return None
    published_ms = _timestamp_ms(letter.attribute("timestamp"))
    since_ms = first_seen_ms if published_ms is None else min(published_ms, first_seen_ms)
    return since_ms + delay_ms


def asked_delay_ms(letter: Letter, body: bytes) -> int | None:
    """The delay a message asks for: its header's if that is a number, else its JSON body's."""
    in_header = _whole_ms(letter.header(DELAY))
    if in_header is not None:
        return in_header
    # Parsing is dear, and nearly no body has the field.
    if _DELAY_IN_BODY not in body or len(body) > _BODY_BYTES_MAX:
        return None
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _whole_ms(parsed.get(DELAY)) if isinstance(parsed, dict) else None


def _whole_ms(value: Any) -> int | None:
    """A delay as a number or as digits, as other languages write it; what is neither is no delay."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return None
    return min(int(value), DELAY_MS_MAX)


def _timestamp_ms(value: Any) -> int | None:
    """The `timestamp` property, which has whole seconds."""
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1000
    return None
