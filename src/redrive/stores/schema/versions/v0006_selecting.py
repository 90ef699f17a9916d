"""Version 6: what `error:` searches, and a mark on letters of which the full-text index does not have everything.

Both are written with every letter from now on; here for those that are there.
"""

import sqlite3
from typing import TYPE_CHECKING, Any

from redrive.records import BODY_BYTES_MAX
from redrive.stores.letters.incoming import folded_error
from redrive.stores.schema.dialect import Dialect
from redrive.stores.search.full_text import CUT

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

_PIECE = 1_000
_NEXT = """
SELECT seq, error_type, error_message FROM letters WHERE seq > $1
    AND octet_length(concat(error_type, error_message)) <> char_length(concat(error_type, error_message))
ORDER BY seq LIMIT $2
"""


def statements(dialect: Dialect) -> tuple[str, ...]:
    """All of it but the folded texts of letters that are there, in one dialect."""
    large = f"SELECT seq FROM letters WHERE size_bytes > {BODY_BYTES_MAX}"  # noqa: S608 - a number of ours
    if dialect.kind == "sqlite":
        # A second entry for a letter adds to the first: the index keeps no texts. It outlives the letter and finds
        # nothing then, as all that this word is for is looking at the letters it finds.
        mark = f"INSERT INTO letter_words (rowid, words) SELECT seq, '{CUT}' FROM ({large})"  # noqa: S608
    else:
        mark = f"UPDATE letter_words SET words = words || '{CUT}'::tsvector WHERE seq IN ({large})"  # noqa: S608
    return "ALTER TABLE letters ADD COLUMN error_folded TEXT", mark


def fill_sqlite(connection: sqlite3.Connection) -> None:
    """The folded texts of letters that are there."""
    connection.create_function("folded_error", 2, folded_error, deterministic=True)
    connection.execute(
        "UPDATE letters SET error_folded = folded_error(error_type, error_message) "
        "WHERE folded_error(error_type, error_message) IS NOT NULL"
    )
    connection.create_function("folded_error", 2, None)


async def fill_postgresql(connection: "PoolConnectionProxy[Any]") -> None:
    """The folded texts of letters that are there."""
    last = 0
    while rows := await connection.fetch(_NEXT, last, _PIECE):
        folded = [(row[0], folded_error(row[1], row[2])) for row in rows]
        await connection.executemany("UPDATE letters SET error_folded = $2 WHERE seq = $1", folded)
        last = rows[-1][0]
