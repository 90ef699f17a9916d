"""The list of steps, oldest first."""

from collections.abc import Callable
from dataclasses import dataclass

from redrive.stores.dialect import Dialect
from redrive.stores.migrations import (
    s0001_dead_letters,
    s0002_access,
    s0003_sending,
    s0004_audit_chain,
    s0005_marks,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One version of the schema: the statements that make it from the one before."""

    version: int
    title: str
    statements: Callable[[Dialect], tuple[str, ...]]


STEPS: tuple[Step, ...] = (
    Step(version=1, title="dead letters, operations, leases", statements=s0001_dead_letters.statements),
    Step(version=2, title="tokens, redactions, kept answers", statements=s0002_access.statements),
    Step(version=3, title="copies under way by dead letter", statements=s0003_sending.statements),
    Step(version=4, title="the audit as a chain, names for ever", statements=s0004_audit_chain.statements),
    Step(version=5, title="marks of sent copies", statements=s0005_marks.statements),
)
"""Versions count from 1 without a gap."""
