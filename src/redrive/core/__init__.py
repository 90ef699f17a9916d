"""The pure heart: words that every room shares. No I/O, no clock, no randomness, no logging."""

from redrive.core import headers
from redrive.core.attempts import Counter, count_deaths, count_retries, read_count
from redrive.core.commands import Ack, Command, Discard, Pause, Publish, Return
from redrive.core.decisions import Attempt, Decision, Defer, Done, GiveBack, Parked, ParkReason, Report, Retry, Skip
from redrive.core.durations import InvalidDuration, format_duration_ms, parse_duration_ms
from redrive.core.errors import (
    InvalidDeclaration,
    InvalidDefinitions,
    InvalidInput,
    RedriveError,
    UnreadableFile,
)
from redrive.core.failures import Failure, describe_error, shorten
from redrive.core.findings import Finding, Position, Severity
from redrive.core.letters import Letter, PlainLetter
from redrive.core.observer import SILENT, Observer
from redrive.core.outcomes import Answered, Crashed, Outcome, Raised, Returned, TimedOut, Undecodable
from redrive.core.signals import Park, Requeue, RetryAfter, Signal, delay_ms_of
from redrive.core.suggestions import did_you_mean

__all__ = [
    "SILENT",
    "Ack",
    "Answered",
    "Attempt",
    "Command",
    "Counter",
    "Crashed",
    "Decision",
    "Defer",
    "Discard",
    "Done",
    "Failure",
    "Finding",
    "GiveBack",
    "InvalidDeclaration",
    "InvalidDefinitions",
    "InvalidDuration",
    "InvalidInput",
    "Letter",
    "Observer",
    "Outcome",
    "Park",
    "ParkReason",
    "Parked",
    "Pause",
    "PlainLetter",
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
    "Severity",
    "Signal",
    "Skip",
    "TimedOut",
    "Undecodable",
    "UnreadableFile",
    "count_deaths",
    "count_retries",
    "delay_ms_of",
    "describe_error",
    "did_you_mean",
    "format_duration_ms",
    "headers",
    "parse_duration_ms",
    "read_count",
    "shorten",
]
