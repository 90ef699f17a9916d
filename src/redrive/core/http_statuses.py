"""Errors that carry an HTTP status, as HTTP clients raise them, read without importing any of those clients.

An error with `error.status_code` (starlette, werkzeug and others) or `error.response.status_code` (httpx, requests)
counts as an HTTP answer; `Retry-After` is read from the headers beside it. A 2xx does not count as an answer: a handler
that raises has failed, whatever came back (a body that was no JSON, say), and a message taken for a success is acked
and gone.
"""

from datetime import UTC
from typing import Any

from redrive.core.outcomes import Answered, Outcome, Raised
from redrive.core.signals import Signal

RETRY_AFTER_DIGITS_MAX = 15


def outcome_of(error: BaseException, *, now_ms: int | None = None) -> Outcome:
    """The outcome of a handler that raised this: `Answered` if the error has a status other than 2xx, else `Raised`.

    Without `now_ms` a Retry-After that is a date can't be read and is ignored.
    """
    if isinstance(error, Signal):
        return Raised(error)
    try:
        if getattr(error, "status_code", None) is None and getattr(error, "response", None) is None:
            return Raised(error)  # most errors
    except Exception:  # noqa: BLE001 - a property of a foreign class may raise: below each attribute is read by itself
        pass
    for bearer in (error, _attribute(error, "response")):
        status = _attribute(bearer, "status_code")
        if isinstance(status, int) and not isinstance(status, bool):
            if 200 <= status < 300:
                return Raised(error)
            text = _retry_after_text(_attribute(bearer, "headers"))
            retry_after_ms = None if text is None else parse_retry_after(text, now_ms)
            return Answered(status=int(status), retry_after_ms=retry_after_ms, error=error)
    return Raised(error)


def parse_retry_after(text: str, now_ms: int | None) -> int | None:
    """The delay of a Retry-After header: whole seconds, or an HTTP date; one in the past is 0. None if neither."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text[:RETRY_AFTER_DIGITS_MAX]) * 1000
    if now_ms is None or len(text) > 64:
        return None
    from email.utils import parsedate_to_datetime  # rarely needed, and a tenth of what the command line takes to start

    try:
        moment = parsedate_to_datetime(text)
        # An asctime date has no zone; HTTP means UTC by it.
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return max(round(moment.timestamp() * 1000) - now_ms, 0)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


def _retry_after_text(headers: Any) -> str | None:
    for name in ("retry-after", "Retry-After"):  # clients' mappings ignore case, a plain dict does not
        try:
            value = headers.get(name)
        except Exception:  # noqa: BLE001 - a foreign object, perhaps no mapping at all
            return None
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if isinstance(value, str | int):
            return str(value)
    return None


def _attribute(owner: Any, name: str) -> Any:
    """An attribute of a foreign object; None if it has no such attribute or a property raises."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - no error of a handler may break the code that reads errors
        return None
