"""`processAfterDelayMs`: how long after it was published a message may be handled. Pure.

It is a header, else a top-level field of a JSON body. The delay counts from the `timestamp` property, else from the
first delivery, which a copy of the message carries (`x-redrive-first-seen`).
"""

import json
from datetime import datetime
from typing import Any

from redrive.core import DELAY_MS_MAX, ReceivedMessage

PROCESS_AFTER = "processAfterDelayMs"
AHEAD_MS_MAX = 86_400_000
"""A publisher's clock may be this far ahead of ours; a later timestamp is not believed."""

_FIELD = b'"processAfterDelayMs"'
_BODY_BYTES_MAX = 16 * 1024 * 1024


def asked_delay_ms(message: ReceivedMessage, body: bytes) -> int | None:
    """The delay a message asks for: its header's if that is a number, else its JSON body's; None if neither."""
    in_header = _whole_ms(message.header(PROCESS_AFTER))
    if in_header is not None:
        return in_header
    # Parsing is expensive, and hardly any body has the field.
    if _FIELD not in body or len(body) > _BODY_BYTES_MAX:
        return None
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _whole_ms(parsed.get(PROCESS_AFTER)) if isinstance(parsed, dict) else None


def published_ms(message: ReceivedMessage, *, now_ms: int) -> int | None:
    """When a message was published, by its `timestamp`, in ms since 1970; None if it has none that is plausible.

    AMQP's has seconds. Milliseconds (JavaScript's `Date.now()`) are a common mistake, and are read as milliseconds: a
    message must not wait for the year 58000.
    """
    value = message.attribute("timestamp")
    if isinstance(value, datetime):
        moment_ms = int(value.timestamp() * 1000)
    elif isinstance(value, int) and not isinstance(value, bool):
        moment_ms = value * 1000 if value * 1000 <= now_ms + AHEAD_MS_MAX else value
    else:
        return None
    return moment_ms if 0 < moment_ms <= now_ms + AHEAD_MS_MAX else None


def _whole_ms(value: Any) -> int | None:
    """A delay as a number or as digits, as other languages write it; what is neither is no delay."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return None
    return min(int(value), DELAY_MS_MAX)
