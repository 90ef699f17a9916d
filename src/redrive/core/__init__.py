"""The pure heart: words that every room shares. No I/O, no clock, no randomness, no logging."""

from redrive.core import headers
from redrive.core.attempts import Counter, count_deaths, count_retries, read_count
from redrive.core.commands import Ack, Command, Discard, Pause, Publish, Return
from redrive.core.deciding import DELAY_MS_MAX, PAUSE_MS_MAX, decide
from redrive.core.decisions import Attempt, Decision, Defer, Done, GiveBack, Parked, ParkReason, Report, Retry, Skip
from redrive.core.durations import InvalidDuration, format_duration_ms, parse_duration_ms
from redrive.core.errors import (
    InvalidDeclaration,
    InvalidDefinitions,
    InvalidInput,
    RedriveError,
    UnreadableFile,
)
from redrive.core.failures import Failure, describe_error, describe_outcome, shorten
from redrive.core.findings import Finding, Position, Severity
from redrive.core.letters import Letter, PlainLetter
from redrive.core.observer import SILENT, Observer
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
    Exponential,
    Fixed,
    Immediate,
    Linear,
    Listed,
    Policy,
    Rule,
    Situation,
)
from redrive.core.signals import Park, Requeue, RetryAfter, Signal, delay_ms_of
from redrive.core.statuses import outcome_of, parse_retry_after
from redrive.core.suggestions import did_you_mean

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
    "Command",
    "Counter",
    "Crashed",
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
    "count_deaths",
    "count_retries",
    "decide",
    "delay_ms_of",
    "describe_error",
    "describe_outcome",
    "did_you_mean",
    "fit_headers",
    "format_duration_ms",
    "headers",
    "original_headers",
    "original_routing_key",
    "outcome_of",
    "parking_headers",
    "parse_duration_ms",
    "parse_retry_after",
    "read_count",
    "read_history",
    "retry_headers",
    "shorten",
]
