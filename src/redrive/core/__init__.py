"""The pure heart: words that every room shares. No I/O, no clock, no randomness, no logging.

Errors, findings and durations are imported at once, what decides about messages when it is first used: an embedded
broker and most commands start without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redrive.core import headers
from redrive.core.durations import InvalidDuration, format_duration_ms, parse_duration_ms
from redrive.core.errors import (
    InvalidDeclaration,
    InvalidDefinitions,
    InvalidInput,
    InvalidPolicy,
    RedriveError,
    UnreadableFile,
)
from redrive.core.findings import Finding, Position, Severity
from redrive.core.headers import read_count
from redrive.core.masked_urls import mask_url
from redrive.core.observer import SILENT, Observer
from redrive.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from redrive.core.attempts import Counter, brings_deliveries, count_retries, read_deliveries
    from redrive.core.commands import AckDelivery, Command, Pause, PublishCopy, RejectDelivery, RequeueDelivery
    from redrive.core.copy_headers import (
        COPY_DROPS,
        PARK_DROPS,
        fit_headers,
        original_headers,
        original_routing_key,
        parking_headers,
        read_history,
        retry_headers,
    )
    from redrive.core.decision_table import DELAY_MS_MAX, PAUSE_MS_MAX, decide
    from redrive.core.decisions import Attempt, Decision, Defer, Done, Parked, ParkReason, Report, Requeued, Retry, Skip
    from redrive.core.digests import message_digest
    from redrive.core.failures import Failure, describe_error, describe_outcome, shorten
    from redrive.core.http_statuses import outcome_of, parse_retry_after
    from redrive.core.outcomes import Answered, Crashed, Outcome, Raised, Succeeded, TimedOut, Undecodable
    from redrive.core.received_messages import PlainMessage, ReceivedMessage
    from redrive.core.retry_policies import (
        Backoff,
        Cause,
        Exponential,
        Fixed,
        Immediate,
        Linear,
        Listed,
        RetryPolicy,
        Rule,
        Situation,
        backoff_of,
        causes_of,
    )
    from redrive.core.signals import Park, Requeue, RetryAfter, Signal, delay_ms_of
    from redrive.core.x_death import Deaths, deaths_in, has_odd_deaths, own_deaths, read_deaths

_HOMES = {
    "AckDelivery": "commands",
    "Answered": "outcomes",
    "Attempt": "decisions",
    "Backoff": "retry_policies",
    "COPY_DROPS": "copy_headers",
    "Cause": "retry_policies",
    "Command": "commands",
    "Counter": "attempts",
    "Crashed": "outcomes",
    "DELAY_MS_MAX": "decision_table",
    "Deaths": "x_death",
    "Decision": "decisions",
    "Defer": "decisions",
    "RejectDelivery": "commands",
    "Done": "decisions",
    "Exponential": "retry_policies",
    "Failure": "failures",
    "Fixed": "retry_policies",
    "Requeued": "decisions",
    "Immediate": "retry_policies",
    "ReceivedMessage": "received_messages",
    "Linear": "retry_policies",
    "Listed": "retry_policies",
    "Outcome": "outcomes",
    "PARK_DROPS": "copy_headers",
    "PAUSE_MS_MAX": "decision_table",
    "Park": "signals",
    "ParkReason": "decisions",
    "Parked": "decisions",
    "Pause": "commands",
    "PlainMessage": "received_messages",
    "RetryPolicy": "retry_policies",
    "PublishCopy": "commands",
    "Raised": "outcomes",
    "Report": "decisions",
    "Requeue": "signals",
    "Retry": "decisions",
    "RetryAfter": "signals",
    "RequeueDelivery": "commands",
    "Succeeded": "outcomes",
    "Rule": "retry_policies",
    "Signal": "signals",
    "Situation": "retry_policies",
    "Skip": "decisions",
    "TimedOut": "outcomes",
    "Undecodable": "outcomes",
    "backoff_of": "retry_policies",
    "brings_deliveries": "attempts",
    "causes_of": "retry_policies",
    "count_retries": "attempts",
    "deaths_in": "x_death",
    "decide": "decision_table",
    "delay_ms_of": "signals",
    "describe_error": "failures",
    "describe_outcome": "failures",
    "fit_headers": "copy_headers",
    "message_digest": "digests",
    "original_headers": "copy_headers",
    "original_routing_key": "copy_headers",
    "outcome_of": "http_statuses",
    "has_odd_deaths": "x_death",
    "own_deaths": "x_death",
    "parking_headers": "copy_headers",
    "parse_retry_after": "http_statuses",
    "read_deaths": "x_death",
    "read_deliveries": "attempts",
    "read_history": "copy_headers",
    "retry_headers": "copy_headers",
    "shorten": "failures",
}

__all__ = [
    "COPY_DROPS",
    "DELAY_MS_MAX",
    "PARK_DROPS",
    "PAUSE_MS_MAX",
    "SILENT",
    "AckDelivery",
    "Answered",
    "Attempt",
    "Backoff",
    "Cause",
    "Command",
    "Counter",
    "Crashed",
    "Deaths",
    "Decision",
    "Defer",
    "Done",
    "Exponential",
    "Failure",
    "Finding",
    "Fixed",
    "Immediate",
    "InvalidDeclaration",
    "InvalidDefinitions",
    "InvalidDuration",
    "InvalidInput",
    "InvalidPolicy",
    "Linear",
    "Listed",
    "Observer",
    "Outcome",
    "Park",
    "ParkReason",
    "Parked",
    "Pause",
    "PlainMessage",
    "Position",
    "PublishCopy",
    "Raised",
    "ReceivedMessage",
    "RedriveError",
    "RejectDelivery",
    "Report",
    "Requeue",
    "RequeueDelivery",
    "Requeued",
    "Retry",
    "RetryAfter",
    "RetryPolicy",
    "Rule",
    "Severity",
    "Signal",
    "Situation",
    "Skip",
    "Succeeded",
    "TimedOut",
    "Undecodable",
    "UnreadableFile",
    "backoff_of",
    "brings_deliveries",
    "causes_of",
    "count_retries",
    "deaths_in",
    "decide",
    "delay_ms_of",
    "describe_error",
    "describe_outcome",
    "did_you_mean",
    "fit_headers",
    "format_duration_ms",
    "has_odd_deaths",
    "headers",
    "mask_url",
    "message_digest",
    "original_headers",
    "original_routing_key",
    "outcome_of",
    "own_deaths",
    "parking_headers",
    "parse_duration_ms",
    "parse_retry_after",
    "read_count",
    "read_deaths",
    "read_deliveries",
    "read_history",
    "retry_headers",
    "shorten",
]


def __getattr__(name: str) -> Any:
    """What has not been used yet."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
