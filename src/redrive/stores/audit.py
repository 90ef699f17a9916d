"""Who did what to which messages, when, why. Entries are added, never changed.

Whatever changes something notes it in its own transaction, so neither is there without the other.
"""

import json
from typing import Any

from redrive.records import AuditEntry
from redrive.stores.arriving import clean
from redrive.stores.cursors import read_cursor, write_cursor
from redrive.stores.database import Database, Row, Writing
from redrive.stores.questions import sql

_ADD = "INSERT INTO audit (at_ms, who, action, subject, n, why, detail) VALUES ($1, $2, $3, $4, $5, $6, $7)"
_CURSOR = "audit"


async def note(tx: Writing, entry: AuditEntry) -> None:
    """Adds an entry in a transaction that changes what it tells of."""
    # `default`: what AMQP and dates have that JSON has not is kept as its text. A refusal here would undo the deed.
    detail = json.dumps(entry.detail, default=str, ensure_ascii=True).replace("\\u0000", "\\ufffd")
    texts = [clean(text) for text in (entry.who, entry.action, entry.subject, entry.why)]
    await tx.run(_ADD, entry.at_ms, *texts[:3], entry.count, texts[3], detail)


class Audit:
    """The audit log of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: AuditEntry) -> None:
        """An entry about something that is not in the store: a refusal, a login."""
        async with self._database.write() as tx:
            await note(tx, entry)

    async def page(
        self,
        limit: int,
        cursor: str | None = None,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
    ) -> tuple[list[AuditEntry], str | None]:
        """The newest entries first, and a cursor where there are more. Raises InvalidCursor."""
        arguments: list[Any] = [limit + 1]
        conditions = ["TRUE"]
        for column, value in (("who", who), ("action", action), ("subject", subject)):
            if value is not None:
                arguments.append(clean(value))
                conditions.append(f"{column} = ${len(arguments)}")
        if cursor is not None:
            arguments.append(read_cursor(_CURSOR, cursor, sizes=(1,))[0])
            conditions.append(f"seq < ${len(arguments)}")
        query = "SELECT seq, at_ms, who, action, subject, n, why, detail FROM audit WHERE"
        query = sql(query, " AND ".join(conditions), "ORDER BY seq DESC LIMIT $1")
        async with self._database.look() as tx:
            rows = await tx.rows(query, *arguments)
        following = write_cursor(_CURSOR, [rows[limit - 1][0]]) if len(rows) > limit else None
        return [_entry(row) for row in rows[:limit]], following


def _entry(row: Row) -> AuditEntry:
    _, at_ms, who, action, subject, n, why, detail = row
    return AuditEntry(at_ms=at_ms, who=who, action=action, subject=subject, count=n, why=why, detail=json.loads(detail))
