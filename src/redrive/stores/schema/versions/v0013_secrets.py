"""Version 13: secrets of the database itself: what group ids are made with, so that nobody can guess what is in them.

Groups from before keep their ids; letters that come since are in groups of their own.
"""

import secrets
import sqlite3
from typing import TYPE_CHECKING, Any

from redrive.stores.schema.dialect import Dialect

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

_BYTES = 32
_TABLE = """\
CREATE TABLE secrets (
    name TEXT NOT NULL PRIMARY KEY,
    value {blob} NOT NULL
)"""


def statements(dialect: Dialect) -> tuple[str, ...]:
    """The same in both dialects but for the type."""
    return (_TABLE.format(blob=dialect.blob),)


def fill_sqlite(connection: sqlite3.Connection) -> None:
    """Makes the secret."""
    connection.execute("INSERT INTO secrets (name, value) VALUES ('groups', ?)", (secrets.token_bytes(_BYTES),))


async def fill_postgresql(connection: "PoolConnectionProxy[Any]") -> None:
    """Makes the secret."""
    await connection.execute("INSERT INTO secrets (name, value) VALUES ('groups', $1)", secrets.token_bytes(_BYTES))
