"""Forgetting dead letters that nobody needs any more, a bounded number at a time."""

from collections.abc import Sequence

from redrive.records import IN_FLIGHT, AuditEntry, Status
from redrive.stores.audit import note
from redrive.stores.database import Database
from redrive.stores.tallies import Ledger
from redrive.stores.transitions import lock, remove

WHO = "retention"
PIECE = 500
_OLD = """
SELECT l.seq FROM letters AS l WHERE l.status = $1 AND l.dead_at_ms < $2 AND l.updated_at_ms < $2
ORDER BY l.dead_at_ms, l.seq LIMIT $3
"""


async def retain(database: Database, *, before_ms: int, statuses: Sequence[Status], limit: int, now_ms: int) -> int:
    """Deletes at most `limit` dead letters that have one of the statuses and were left alone since `before_ms`.

    How many it were. Those with a copy on its way are never among them.
    """
    deleted = 0
    for status in statuses:
        if status in IN_FLIGHT:
            continue
        while deleted < limit:
            async with database.write() as tx:
                rows = await tx.rows(_OLD, status.value, before_ms, min(PIECE, limit - deleted))
                ledger = Ledger()
                standings = [each for each in await lock(tx, [row[0] for row in rows]) if each.status is status]
                removed = await remove(tx, ledger, standings)
                if removed:
                    ids = [each.id for each in removed]
                    entry = AuditEntry(
                        at_ms=now_ms,
                        who=WHO,
                        action="letters.deleted",
                        subject=f"{status.value}, left alone since {before_ms}",
                        count=len(ids),
                        why="their time is over",
                        detail={"ids": ids},
                    )
                    await note(tx, entry)
                await ledger.write(tx)
            deleted += len(removed)
            if len(removed) < PIECE:
                break
    return deleted
