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
from redrive.core.masking import mask_url
from redrive.core.observer import SILENT, Observer
from redrive.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from redrive.core.attempts import Counter, brings_deliveries, count_retries, read_deliveries
    from redrive.core.commands import Ack, Command, Discard, Pause, Publish, Return
    from redrive.core.counts import read_count
    from redrive.core.deaths import Deaths, deaths_in, has_odd_deaths, own_deaths, read_deaths
    from redrive.core.deciding import DELAY_MS_MAX, PAUSE_MS_MAX, decide
    from redrive.core.decisions import Attempt, Decision, Defer, Done, GiveBack, Parked, ParkReason, Report, Retry, Skip
    from redrive.core.digests import message_digest
    from redrive.core.failures import Failure, describe_error, describe_outcome, shorten
    from redrive.core.letters import Letter, PlainLetter
    from redrive.core.outcomes import Answered, Crashed, Outcome, Raised, Returned, TimedOut, Undecodable
    from redrive.core.parking import (
        COPY_DROPS,
        PARK_DROPS,
        fit_headers,
        original_headers,
        original_routing_key,
        parking_headers,
        read_history,
        retry_headers,
    )
    from redrive.core.policies import (
        Backoff,
        Cause,
        Exponential,
        Fixed,
        Immediate,
        Linear,
        Listed,
        Policy,
        Rule,
        Situation,
        backoff_of,
        causes_of,
    )
    from redrive.core.signals import Park, Requeue, RetryAfter, Signal, delay_ms_of
    from redrive.core.statuses import outcome_of, parse_retry_after

_HOMES = {
    "Ack": "commands",
    "Answered": "outcomes",
    "Attempt": "decisions",
    "Backoff": "policies",
    "COPY_DROPS": "parking",
    "Cause": "policies",
    "Command": "commands",
    "Counter": "attempts",
    "Crashed": "outcomes",
    "DELAY_MS_MAX": "deciding",
    "Deaths": "deaths",
    "Decision": "decisions",
    "Defer": "decisions",
    "Discard": "commands",
    "Done": "decisions",
    "Exponential": "policies",
    "Failure": "failures",
    "Fixed": "policies",
    "GiveBack": "decisions",
    "Immediate": "policies",
    "Letter": "letters",
    "Linear": "policies",
    "Listed": "policies",
    "Outcome": "outcomes",
    "PARK_DROPS": "parking",
    "PAUSE_MS_MAX": "deciding",
    "Park": "signals",
    "ParkReason": "decisions",
    "Parked": "decisions",
    "Pause": "commands",
    "PlainLetter": "letters",
    "Policy": "policies",
    "Publish": "commands",
    "Raised": "outcomes",
    "Report": "decisions",
    "Requeue": "signals",
    "Retry": "decisions",
    "RetryAfter": "signals",
    "Return": "commands",
    "Returned": "outcomes",
    "Rule": "policies",
    "Signal": "signals",
    "Situation": "policies",
    "Skip": "decisions",
    "TimedOut": "outcomes",
    "Undecodable": "outcomes",
    "backoff_of": "policies",
    "brings_deliveries": "attempts",
    "causes_of": "policies",
    "count_retries": "attempts",
    "deaths_in": "deaths",
    "decide": "deciding",
    "delay_ms_of": "signals",
    "describe_error": "failures",
    "describe_outcome": "failures",
    "fit_headers": "parking",
    "message_digest": "digests",
    "original_headers": "parking",
    "original_routing_key": "parking",
    "outcome_of": "statuses",
    "has_odd_deaths": "deaths",
    "own_deaths": "deaths",
    "parking_headers": "parking",
    "parse_retry_after": "statuses",
    "read_count": "counts",
    "read_deaths": "deaths",
    "read_deliveries": "attempts",
    "read_history": "parking",
    "retry_headers": "parking",
    "shorten": "failures",
}

__all__ = [
    "COPY_DROPS",
    "DELAY_MS_MAX",
    "PARK_DROPS",
    "PAUSE_MS_MAX",
    "SILENT",
    "Ack",
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
    "Discard",
    "Done",
    "Exponential",
    "Failure",
    "Finding",
    "Fixed",
    "GiveBack",
    "Immediate",
    "InvalidDeclaration",
    "InvalidDefinitions",
    "InvalidDuration",
    "InvalidInput",
    "InvalidPolicy",
    "Letter",
    "Linear",
    "Listed",
    "Observer",
    "Outcome",
    "Park",
    "ParkReason",
    "Parked",
    "Pause",
    "PlainLetter",
    "Policy",
    "Position",
    "Publish",
    "Raised",
    "RedriveError",
    "Report",
    "Requeue",
    "Retry",
    "RetryAfter",
    "Return",
    "Returned",
    "Rule",
    "Severity",
    "Signal",
    "Situation",
    "Skip",
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
