"""The list of migrations, and running those that a database lacks.

A migration is never changed once it is released: a change of the schema is a new module in `versions/` and a line at
the end of `MIGRATIONS`. All that a database lacks run in one transaction under a lock: two processes may start at once,
and one that dies has changed nothing.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive.stores.errors import StoreTooNew
from redrive.stores.schema.dialect import POSTGRESQL, SQLITE, Dialect
from redrive.stores.schema.versions import (
    v0001_dead_letters,
    v0002_access,
    v0003_sending,
    v0004_audit_chain,
    v0005_marks,
    v0006_selecting,
    v0007_budgets,
    v0008_rule_changes,
    v0009_scopes,
    v0010_activity_by_dlq,
    v0013_secrets,
)
from redrive.stores.schema.versions import v0011_group_state_changes as v0011_said_of_groups
from redrive.stores.schema.versions import v0012_rule_change_scopes as v0012_rule_changes_of

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"
_FIND = "SELECT max(version) FROM schema_version"
_IS_THERE = "SELECT to_regclass('schema_version')"
_LOCK_KEY = 7_265_647_269_766_501
"""PostgreSQL's advisory locks have numbers for names; this one says "redriv" and 01."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One version of the schema: the statements that make it from the one before, and what no statement can say."""

    version: int
    title: str
    statements: Callable[[Dialect], tuple[str, ...]]
    fill_sqlite: Callable[[sqlite3.Connection], None] | None = None
    fill_postgresql: "Callable[[PoolConnectionProxy[Any]], Awaitable[None]] | None" = None


MIGRATIONS: tuple[Migration, ...] = (
    Migration(version=1, title="dead letters, operations, leases", statements=v0001_dead_letters.statements),
    Migration(version=2, title="tokens, redactions, kept answers", statements=v0002_access.statements),
    Migration(version=3, title="copies under way by dead letter", statements=v0003_sending.statements),
    Migration(version=4, title="the audit as a chain, names for ever", statements=v0004_audit_chain.statements),
    Migration(version=5, title="marks of sent copies", statements=v0005_marks.statements),
    Migration(
        version=6,
        title="what error: searches, letters that are not all in the index",
        statements=v0006_selecting.statements,
        fill_sqlite=v0006_selecting.fill_sqlite,
        fill_postgresql=v0006_selecting.fill_postgresql,
    ),
    Migration(version=7, title="budgets of auto-retry, declared rules", statements=v0007_budgets.statements),
    Migration(version=8, title="rules that are being applied", statements=v0008_rule_changes.statements),
    Migration(version=9, title="scopes of senders", statements=v0009_scopes.statements),
    Migration(version=10, title="activity by dead-letter queue", statements=v0010_activity_by_dlq.statements),
    Migration(version=11, title="what was said of groups, and why", statements=v0011_said_of_groups.statements),
    Migration(version=12, title="scopes of changed rules", statements=v0012_rule_changes_of.statements),
    Migration(
        version=13,
        title="the secret of group ids",
        statements=v0013_secrets.statements,
        fill_sqlite=v0013_secrets.fill_sqlite,
        fill_postgresql=v0013_secrets.fill_postgresql,
    ),
)
"""Versions count from 1 without a gap."""


def migrate_sqlite(connection: sqlite3.Connection, address: str) -> int:
    """Brings a file up to date; the version it has now."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        connection.execute(_VERSIONS)
        found = connection.execute(_FIND).fetchone()[0]
        for step in _missing(found, address):
            for statement in step.statements(SQLITE):
                connection.execute(statement)
            if step.fill_sqlite is not None:
                step.fill_sqlite(connection)
            connection.execute("INSERT INTO schema_version (version) VALUES (?)", (step.version,))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return MIGRATIONS[-1].version


async def migrate_postgresql(connection: "PoolConnectionProxy[Any]", address: str) -> int:
    """Brings a database up to date, inside the caller's transaction; the version it has now.

    One that is up to date is only looked at: a role that may make no tables can open it.
    """
    if await connection.fetchval(_IS_THERE) is not None and not _missing(await connection.fetchval(_FIND), address):
        return MIGRATIONS[-1].version
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
    await connection.execute(_VERSIONS)
    found = await connection.fetchval(_FIND)
    for step in _missing(found, address):
        for statement in step.statements(POSTGRESQL):
            await connection.execute(statement)
        if step.fill_postgresql is not None:
            await step.fill_postgresql(connection)
        await connection.execute("INSERT INTO schema_version (version) VALUES ($1)", step.version)
    return MIGRATIONS[-1].version


def _missing(found: int | None, address: str) -> tuple[Migration, ...]:
    known = MIGRATIONS[-1].version
    if found is not None and found > known:
        raise StoreTooNew(address, found, known)
    return tuple(step for step in MIGRATIONS if found is None or step.version > found)
