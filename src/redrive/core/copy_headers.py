"""The headers that a copy of a message gets: a parked copy, and a copy that is to be run again.

    header                    retry copy   parked copy   what
    x-retry-count             yes          yes           retries done when the copy is run; when it was parked
    x-final-retry-count                    yes           the same, as a parked message says it
    x-final-error                          if it failed  `Type: message`
    x-final-status-code                    if it has one
    x-original-queue          yes          yes           where it was consumed first, and how it came there:
    x-original-exchange       yes          yes           a copy that has these keeps them; a message that died in
    x-original-routing-key    yes          yes           its queue and came back has them in x-death
    x-redrive-reason                       yes           why it was parked
    x-redrive-stack                        if it has one
    x-redrive-history         yes          yes           the newest attempts, bounded: as far as copies have carried
                                                         them, so only the last one where retries are rejects
    x-redrive-parked-at                    yes           milliseconds since 1970
    x-redrive-digest          yes          yes           whose headers these are; written where the copy is made

Everything written here is bounded: together far below the 131 kB at which a header frame closes the connection. We do
not cut the message's own headers, so if both together are too much `fit_headers` drops some of ours.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from redrive.core import headers
from redrive.core.decisions import Attempt, Parked, Report
from redrive.core.failures import MESSAGE_BYTES_MAX, STACK_BYTES_MAX, TYPE_BYTES_MAX, shorten
from redrive.core.headers import read_count
from redrive.core.received_messages import ReceivedMessage
from redrive.core.x_death import own_deaths

HISTORY_MAX = 20
HISTORY_ERROR_BYTES_MAX = 300
ERROR_BYTES_MAX = TYPE_BYTES_MAX + MESSAGE_BYTES_MAX + 2
NAME_BYTES_MAX = 255
STATUS_LIMIT = 2**31
"""An error may have any number as its status; a header can't hold every number."""

COPY_DROPS = headers.DEATH_HEADERS | headers.ROUTING_HEADERS | headers.COUNT_HEADERS
"""What a copy that is to be run again does not carry."""
PARK_DROPS = (
    headers.ROUTING_HEADERS
    | headers.COUNT_HEADERS
    | {headers.ATTEMPTS_BEFORE, headers.NOT_BEFORE, headers.DELIVERIES, headers.DEATHS_ALONE}
)
"""What a parked copy does not carry. x-death stays as evidence. `x-redrive-attempts-before` is part of `x-retry-count`
now, and would count twice if somebody moved the message back by hand (where x-death counts it stays: see `park` in
topology's shapes); its crashes would park it again."""


def parking_headers(decision: Parked, message: ReceivedMessage, report: Report) -> dict[str, Any]:
    """The headers of the copy that goes to the dead letters."""
    written: dict[str, Any] = {
        headers.RETRY_COUNT: report.retries,
        headers.FINAL_RETRY_COUNT: report.retries,
        headers.REASON: decision.reason.value,
        headers.PARKED_AT: report.now_ms,
        **original_headers(message),
    }
    failure = report.failure
    if failure is not None:
        written[headers.FINAL_ERROR] = shorten(failure.text, ERROR_BYTES_MAX)
        if failure.status is not None and abs(failure.status) < STATUS_LIMIT:
            written[headers.FINAL_STATUS_CODE] = failure.status
        if failure.stack:
            written[headers.STACK] = shorten(failure.stack, STACK_BYTES_MAX)
    if report.history:
        written[headers.HISTORY] = write_history(report.history)
    return written


def retry_headers(message: ReceivedMessage, report: Report) -> dict[str, Any]:
    """The headers of a copy that is to be run again: one retry more, and where the message came from."""
    written: dict[str, Any] = {headers.RETRY_COUNT: report.retries + 1, **original_headers(message)}
    if message.header(headers.ATTEMPTS_BEFORE) is not None:
        written[headers.ATTEMPTS_BEFORE] = 0  # it is part of the count now
    if report.history:
        written[headers.HISTORY] = write_history(report.history)
    return written


def original_headers(message: ReceivedMessage) -> dict[str, str]:
    """Where a message was consumed first and how it came there: by its own headers, else by its x-death, else as now.

    An x-death entry has the exchange and the keys of the first death of its kind, so a message that was rejected, has
    waited and came back through the default exchange still has its own there.
    """
    exchange, routing_key = _first_route(message)
    return {
        headers.ORIGINAL_QUEUE: _name(message.header(headers.ORIGINAL_QUEUE), message.queue),
        headers.ORIGINAL_EXCHANGE: _name(message.header(headers.ORIGINAL_EXCHANGE), exchange),
        headers.ORIGINAL_ROUTING_KEY: _name(message.header(headers.ORIGINAL_ROUTING_KEY), routing_key),
    }


def original_routing_key(message: ReceivedMessage) -> str:
    """The routing key of `original_headers` alone."""
    value = message.header(headers.ORIGINAL_ROUTING_KEY)
    return _first_route(message)[1] if value is None else _name(value, _first_route(message)[1])


def read_history(message: ReceivedMessage) -> tuple[Attempt, ...]:
    """The attempts in a message's history header, oldest first; entries that can't be read are left out."""
    value = message.header(headers.HISTORY)
    if not isinstance(value, list | tuple):
        return ()
    attempts = []
    for one in value[-HISTORY_MAX:]:
        if (type(one) is dict or isinstance(one, Mapping)) and isinstance(one.get("error"), str):
            error = shorten(one["error"], HISTORY_ERROR_BYTES_MAX)
            attempts.append(Attempt(number=read_count(one.get("number")), at_ms=_moment(one.get("at_ms")), error=error))
    return tuple(attempts)


def write_history(history: Iterable[Attempt]) -> list[dict[str, Any]]:
    """The newest attempts as the history header has them."""
    return [
        {"number": one.number, "at_ms": one.at_ms, "error": shorten(one.error, HISTORY_ERROR_BYTES_MAX)}
        for one in tuple(history)[-HISTORY_MAX:]
    ]


_OURS_BYTES_MAX = 64_000
"""More than all our headers together take: each is bounded by itself."""


def fit_headers(written: Mapping[str, Any], room_bytes: int) -> dict[str, Any]:
    """Our headers, cut to about so many bytes: the stack is dropped first, then the history, then the error.

    Counts and names are always kept; they are small.
    """
    fitting = dict(written)
    if room_bytes >= _OURS_BYTES_MAX:
        return fitting
    for name in (headers.STACK, headers.HISTORY, headers.FINAL_ERROR):
        over = _size(fitting) - room_bytes
        if over <= 0:
            break
        value = fitting.get(name)
        if isinstance(value, str) and over < len(value.encode("utf-8", "replace")) - 100:
            fitting[name] = shorten(value, len(value.encode("utf-8", "replace")) - over)
        else:
            fitting.pop(name, None)
    return fitting


def _first_route(message: ReceivedMessage) -> tuple[str, str]:
    """By the deaths in this queue, else as it came now."""
    route = own_deaths(message).route
    return (message.exchange, message.routing_key) if route is None else route


def _name(value: Any, otherwise: str) -> str:
    """A name in a header, if it can be one. Bytes that are no UTF-8 are kept (PEP 383)."""
    if value is None:
        return otherwise
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "surrogateescape")
    if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX:
        return value
    return otherwise


def _moment(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else 0


def _size(value: Any) -> int:
    """About how many bytes a value takes in a field table; never too few."""
    match value:
        case Mapping():
            return 5 + sum(1 + 3 * len(str(name)) + _size(one) for name, one in value.items())
        case list() | tuple():
            return 5 + sum(map(_size, value))
        case str():
            return 5 + len(value.encode("utf-8", "replace"))
        case bytes() | bytearray():
            return 5 + len(value)
        case _:
            return 17
