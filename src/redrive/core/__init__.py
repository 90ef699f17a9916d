"""The pure heart: words that every room shares. No I/O, no clock, no randomness, no logging."""

from redrive.core.durations import InvalidDuration, format_duration_ms, parse_duration_ms
from redrive.core.errors import (
    InvalidDeclaration,
    InvalidDefinitions,
    InvalidInput,
    RedriveError,
    UnreadableFile,
)
from redrive.core.findings import Finding, Position, Severity
from redrive.core.observer import SILENT, Observer
from redrive.core.suggestions import did_you_mean

__all__ = [
    "SILENT",
    "Finding",
    "InvalidDeclaration",
    "InvalidDefinitions",
    "InvalidDuration",
    "InvalidInput",
    "Observer",
    "Position",
    "RedriveError",
    "Severity",
    "UnreadableFile",
    "did_you_mean",
    "format_duration_ms",
    "parse_duration_ms",
]
