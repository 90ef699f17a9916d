"""The list of steps, oldest first."""

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive.stores.dialect import Dialect
from redrive.stores.migrations import (
    s0001_dead_letters,
    s0002_access,
    s0003_sending,
    s0004_audit_chain,
    s0005_marks,
    s0006_selecting,
    s0007_budgets,
    s0008_rule_changes,
    s0009_scopes,
    s0010_activity_by_dlq,
    s0011_said_of_groups,
    s0012_rule_changes_of,
    s0013_secrets,
)

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One version of the schema: the statements that make it from the one before, and what no statement can say."""

    version: int
    title: str
    statements: Callable[[Dialect], tuple[str, ...]]
    fill_sqlite: Callable[[sqlite3.Connection], None] | None = None
    fill_postgresql: "Callable[[PoolConnectionProxy[Any]], Awaitable[None]] | None" = None


STEPS: tuple[Step, ...] = (
    Step(version=1, title="dead letters, operations, leases", statements=s0001_dead_letters.statements),
    Step(version=2, title="tokens, redactions, kept answers", statements=s0002_access.statements),
    Step(version=3, title="copies under way by dead letter", statements=s0003_sending.statements),
    Step(version=4, title="the audit as a chain, names for ever", statements=s0004_audit_chain.statements),
    Step(version=5, title="marks of sent copies", statements=s0005_marks.statements),
    Step(
        version=6,
        title="what error: searches, letters that are not all in the index",
        statements=s0006_selecting.statements,
        fill_sqlite=s0006_selecting.fill_sqlite,
        fill_postgresql=s0006_selecting.fill_postgresql,
    ),
    Step(version=7, title="budgets of auto-retry, declared rules", statements=s0007_budgets.statements),
    Step(version=8, title="rules that are being applied", statements=s0008_rule_changes.statements),
    Step(version=9, title="scopes of senders", statements=s0009_scopes.statements),
    Step(version=10, title="activity by dead-letter queue", statements=s0010_activity_by_dlq.statements),
    Step(version=11, title="what was said of groups, and why", statements=s0011_said_of_groups.statements),
    Step(version=12, title="scopes of changed rules", statements=s0012_rule_changes_of.statements),
    Step(
        version=13,
        title="the secret of group ids",
        statements=s0013_secrets.statements,
        fill_sqlite=s0013_secrets.fill_sqlite,
        fill_postgresql=s0013_secrets.fill_postgresql,
    ),
)
"""Versions count from 1 without a gap."""
