"""Running the steps a database lacks, in one transaction that nobody else can be in."""

import sqlite3
from typing import TYPE_CHECKING, Any

from redrive.stores.dialect import POSTGRESQL, SQLITE
from redrive.stores.errors import StoreTooNew
from redrive.stores.migrations.steps import STEPS, Step

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"
_FIND = "SELECT max(version) FROM schema_version"
_IS_THERE = "SELECT to_regclass('schema_version')"
_LOCK_KEY = 7_265_647_269_766_501
"""PostgreSQL's advisory locks have numbers for names; this one says "redriv" and 01."""


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
    return STEPS[-1].version


async def migrate_postgresql(connection: "PoolConnectionProxy[Any]", address: str) -> int:
    """Brings a database up to date, inside the caller's transaction; the version it has now.

    One that is up to date is only looked at: a role that may make no tables can open it.
    """
    if await connection.fetchval(_IS_THERE) is not None and not _missing(await connection.fetchval(_FIND), address):
        return STEPS[-1].version
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
    await connection.execute(_VERSIONS)
    found = await connection.fetchval(_FIND)
    for step in _missing(found, address):
        for statement in step.statements(POSTGRESQL):
            await connection.execute(statement)
        if step.fill_postgresql is not None:
            await step.fill_postgresql(connection)
        await connection.execute("INSERT INTO schema_version (version) VALUES ($1)", step.version)
    return STEPS[-1].version


def _missing(found: int | None, address: str) -> tuple[Step, ...]:
    known = STEPS[-1].version
    if found is not None and found > known:
        raise StoreTooNew(address, found, known)
    return tuple(step for step in STEPS if found is None or step.version > found)
