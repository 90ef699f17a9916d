"""Rows of dead letters read as values."""

import asyncio
from collections.abc import Sequence

from redrive.records import DeadLetter, Status
from redrive.stores.database import ReadTransaction, Row
from redrive.stores.operations.operation_rows import BEING_SENT

_COLUMNS = f"""l.seq, l.id, l.version, l.status, l.vhost, l.dlq, l.dlq_exchange, l.dlq_routing_key, l.queue, l.exchange,
    l.routing_key, l.reason, l.told_by, l.error_type, l.error_message, l.status_code, c.stack, l.attempts, l.message_id,
    l.correlation_id, l.type, l.service, g.id, l.size_bytes, l.dead_at_ms, l.collected_at_ms, l.updated_at_ms,
    l.redrives, l.returns, l.is_poison, l.due_at_ms, CASE WHEN {BEING_SENT} THEN NULL ELSE l.silent_at_ms END,
    l.status_reason, l.resolved_by, l.copy_of, l.operation_id, l.is_edited, l.forgiven"""
_FROM = "FROM letters AS l JOIN groups AS g ON g.seq = l.group_seq LEFT JOIN contents AS c ON c.seq = l.seq"
_STATUSES = {status.value: status for status in Status}
_BY_SEQ = " ".join(("SELECT", _COLUMNS, _FROM, "WHERE l.seq = ANY($1::bigint[])"))
_WHOLE = " ".join(("SELECT", _COLUMNS, ", c.history, c.properties, c.body", _FROM, "WHERE l.id = $1"))
_BY_ID = " ".join(("SELECT", _COLUMNS, _FROM, "WHERE l.id = $1"))


async def read_whole(tx: ReadTransaction, id: str) -> tuple[int, DeadLetter, bytes | None, bytes, bytes] | None:
    """The letter with this id after its number; its history as it is stored, properties and body, as collected."""
    row = await tx.row(_WHOLE, id)
    if row is None or row[-2] is None:
        return None
    history, properties, body = row[-3], bytes(row[-2]), bytes(row[-1])
    return row[0], _letter(row), None if history is None else bytes(history), properties, body


_PIECE = 100


async def read_letters(tx: ReadTransaction, seqs: Sequence[int]) -> list[tuple[int, DeadLetter]]:
    """The letters with these numbers, in their order; gone ones are missing."""
    if not seqs:
        return []
    # PostgreSQL keeps to the plan of a statement that it has seen often, until the table is analysed: one it made for a
    # table of nearly nothing reads all of them. Numbers grow with the table, so with each of their bits it plans anew.
    query = f"{_BY_SEQ} /* numbers of {max(seqs).bit_length()} bits */"
    found = {row[0]: row for row in await tx.rows(query, list(seqs))}
    letters = []
    for number, seq in enumerate(seqs, start=1):
        if seq in found:
            letters.append((seq, _letter(found[seq])))
        if number % _PIECE == 0:
            await asyncio.sleep(0)  # a thousand take as long as many a request: others get their turn in between
    return letters


async def read_letter(tx: ReadTransaction, id: str) -> tuple[int, DeadLetter] | None:
    """The letter with this id, and its number."""
    row = await tx.row(_BY_ID, id)
    return None if row is None else (row[0], _letter(row))


def _letter(row: Row) -> DeadLetter:
    return DeadLetter(
        id=row[1],
        version=row[2],
        status=_STATUSES[row[3]],
        vhost=row[4],
        dlq=row[5],
        dlq_exchange=row[6],
        dlq_routing_key=row[7],
        queue=row[8],
        exchange=row[9],
        routing_key=row[10],
        reason=row[11],
        told_by=row[12],
        error_type=row[13],
        error_message=row[14],
        status_code=row[15],
        stack=row[16],
        attempts=row[17],
        message_id=row[18],
        correlation_id=row[19],
        type=row[20],
        service=row[21],
        group_id=row[22],
        size_bytes=row[23],
        dead_at_ms=row[24],
        collected_at_ms=row[25],
        updated_at_ms=row[26],
        redrives=row[27],
        returns=row[28],
        is_poison=bool(row[29]),
        due_at_ms=row[30],
        silent_at_ms=row[31],
        status_reason=row[32],
        resolved_by=row[33],
        copy_of=row[34],
        operation_id=row[35],
        is_edited=bool(row[36]),
        forgiven=row[37],
    )
