"""Whose headers say what went wrong: one reader for each framework, asked in this order.

redrive       x-redrive-reason, x-redrive-parked-at; x-final-error is `Type: message`
event-bus     x-final-error, x-final-status-code, without ours
masstransit   MT-Reason, MT-Fault-*
spring        x-exception-message, x-exception-stacktrace; the type is in the stack
nservicebus   NServiceBus.ExceptionInfo.*, NServiceBus.FailedQ, NServiceBus.TimeOfFailure
wolverine     exception-type, exception-message, exception-stack, failed-at
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from redrive.core import headers, read_count
from redrive.records.explanations.header_values import TolerantMessage, moment_ms_of, number_of
from redrive.records.explanations.stack_traces import cause_in

TYPE_BYTES_MAX = 200
MESSAGE_BYTES_MAX = 2_000
STACK_BYTES_MAX = 8_000

FAILED = "error"
"""The reason where another framework parked a message because its handler raised, and does not say it in a word."""
UNDECODABLE = "undecodable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkReport:
    """What a framework's headers say; None where they say nothing."""

    by: str
    reason: str
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    status_code: int | None = None
    stack: str | None = None
    attempts: int | None = None
    died_at_ms: int | None = None


def read_framework_headers(letter: TolerantMessage) -> FrameworkReport | None:
    """What the first framework that knows the letter says; None if none does."""
    for read in _READERS:
        report = read(letter)
        if report is not None:
            return report
    return None


def type_of(letter: TolerantMessage) -> str | None:
    """The message's type as a framework's own header has it, where the property is not set."""
    for name in ("MT-Fault-MessageType", "MT-MessageType", "NServiceBus.EnclosedMessageTypes", "__TypeId__"):
        value = letter.text(name, MESSAGE_BYTES_MAX)
        if value is not None:
            # The first of several, without assembly and version.
            first = re.split(r"[;,]", value, maxsplit=1)[0].strip().removeprefix("urn:message:")
            return first[:TYPE_BYTES_MAX] or None
    return letter.text("message-type", TYPE_BYTES_MAX)


def _redrive(letter: TolerantMessage) -> FrameworkReport | None:
    reason, parked_at = letter.text(headers.REASON), letter.header(headers.PARKED_AT)
    if reason is None and parked_at is None:
        return None
    error = letter.text(headers.FINAL_ERROR, TYPE_BYTES_MAX + MESSAGE_BYTES_MAX + 2)
    kind, message = (None, None) if error is None else split_error(error)
    retries = letter.header(headers.FINAL_RETRY_COUNT)
    runs = None if retries is None else read_count(retries) + (reason != UNDECODABLE)
    return FrameworkReport(
        by="redrive",
        reason="unknown" if reason is None else reason,
        error_type=kind,
        error_message=message,
        status_code=number_of(letter.header(headers.FINAL_STATUS_CODE)),
        stack=letter.text(headers.STACK, STACK_BYTES_MAX),
        attempts=runs,
        died_at_ms=moment_ms_of(parked_at),
    )


def _event_bus(letter: TolerantMessage) -> FrameworkReport | None:
    error = letter.text(headers.FINAL_ERROR, TYPE_BYTES_MAX + MESSAGE_BYTES_MAX + 2)
    status = number_of(letter.header(headers.FINAL_STATUS_CODE))
    if error is None and status is None:
        return None
    kind, message = (None, None) if error is None else split_error(error)
    if kind is not None and _ERROR_TYPE.fullmatch(kind) is None:
        kind, message = None, error  # the document writes the message alone
    if kind is None and status is not None:
        kind = f"HTTP {status}"
    retries = letter.header(headers.FINAL_RETRY_COUNT)
    return FrameworkReport(
        by="event-bus",
        reason=FAILED,
        error_type=kind,
        error_message=message,
        status_code=status,
        attempts=None if retries is None else read_count(retries) + 1,
    )


def _masstransit(letter: TolerantMessage) -> FrameworkReport | None:
    reason = letter.text("MT-Reason")
    kind = letter.text("MT-Fault-ExceptionType", TYPE_BYTES_MAX)
    message = letter.text("MT-Fault-Message", MESSAGE_BYTES_MAX)
    if reason is None and kind is None and message is None:
        return None
    retries = letter.header("MT-Fault-RetryCount")
    address = letter.text("MT-Fault-InputAddress", MESSAGE_BYTES_MAX)
    return FrameworkReport(
        by="masstransit",
        reason=FAILED if reason is None else reason,
        queue=None if address is None else _queue_of_address(address),
        error_type=kind,
        error_message=message,
        stack=letter.text("MT-Fault-StackTrace", STACK_BYTES_MAX),
        attempts=None if retries is None else read_count(retries) + 1,
        died_at_ms=moment_ms_of(letter.header("MT-Fault-Timestamp")),
    )


def _spring(letter: TolerantMessage) -> FrameworkReport | None:
    message = letter.text("x-exception-message", MESSAGE_BYTES_MAX)
    stack = letter.text("x-exception-stacktrace", STACK_BYTES_MAX)
    if message is None and stack is None:
        return None
    # The recoverer writes the message of the cause and the stack from the container's wrapper on.
    kind, about = (None, None) if stack is None else cause_in(stack, message)
    exchange, key = letter.name(headers.ORIGINAL_EXCHANGE), letter.name("x-original-routingKey")
    return FrameworkReport(
        by="spring",
        reason=FAILED,
        queue=key if exchange == "" and key else None,
        exchange=exchange,
        routing_key=key,
        error_type=None if kind is None else kind[:TYPE_BYTES_MAX],
        error_message=message,
        stack=about,
    )


def _nservicebus(letter: TolerantMessage) -> FrameworkReport | None:
    kind = letter.text("NServiceBus.ExceptionInfo.ExceptionType", TYPE_BYTES_MAX)
    message = letter.text("NServiceBus.ExceptionInfo.Message", MESSAGE_BYTES_MAX)
    failed = letter.text("NServiceBus.FailedQ")
    if kind is None and message is None and failed is None:
        return None
    return FrameworkReport(
        by="nservicebus",
        reason=FAILED,
        queue=None if failed is None else failed.partition("@")[0] or None,
        error_type=kind,
        error_message=message,
        stack=letter.text("NServiceBus.ExceptionInfo.StackTrace", STACK_BYTES_MAX),
        died_at_ms=moment_ms_of(letter.header("NServiceBus.TimeOfFailure")),
    )


def _wolverine(letter: TolerantMessage) -> FrameworkReport | None:
    kind = letter.text("exception-type", TYPE_BYTES_MAX)
    stack = letter.text("exception-stack", STACK_BYTES_MAX)
    if kind is None and stack is None:
        return None
    attempts = read_count(letter.header("attempts"))
    return FrameworkReport(
        by="wolverine",
        reason=FAILED,
        error_type=kind,
        error_message=letter.text("exception-message", MESSAGE_BYTES_MAX),
        stack=stack,
        attempts=attempts if attempts > 0 else None,
        died_at_ms=moment_ms_of(letter.header("failed-at")),
    )


_READERS: tuple[Callable[[TolerantMessage], FrameworkReport | None], ...] = (
    _redrive,
    _event_bus,
    _masstransit,
    _spring,
    _nservicebus,
    _wolverine,
)
_ERROR_TYPE = re.compile(r"HTTP \d{3}|[A-Za-z_$][\w.$]*(?:Error|Exception|Fault|Failure|Timeout|Refused|Closed)")
_PERCENT = re.compile(rb"%([0-9a-fA-F]{2})")


def split_error(error: str) -> tuple[str | None, str | None]:
    """`Type: message` taken apart. What is too long for a type, or has no form of one, is a message."""
    kind, _, message = error.partition(": ")
    if not kind.strip() or len(kind) > TYPE_BYTES_MAX or "\n" in kind:
        return None, error
    return kind, message or None


def _queue_of_address(address: str) -> str | None:
    """`orders` of `rabbitmq://host/vhost/orders?durable=true` and of `queue:orders`."""
    last = address.partition("?")[0].rstrip("/").rpartition("/")[2].removeprefix("queue:")
    raw = _PERCENT.sub(lambda found: bytes((int(found.group(1), 16),)), last.encode("utf-8", "replace"))
    return raw.decode("utf-8", "replace").replace("\0", "\ufffd")[:255] or None
