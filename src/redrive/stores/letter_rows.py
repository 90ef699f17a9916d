"""Rows of dead letters read as values."""

from collections.abc import Sequence

from redrive.records import DeadLetter, Status
from redrive.stores.database import Reading, Row

_COLUMNS = """l.seq, l.id, l.version, l.status, l.vhost, l.dlq, l.dlq_exchange, l.dlq_routing_key, l.queue, l.exchange,
    l.routing_key, l.reason, l.told_by, l.error_type, l.error_message, l.status_code, c.stack, l.attempts, l.message_id,
    l.correlation_id, l.type, l.service, g.id, l.size_bytes, l.dead_at_ms, l.collected_at_ms, l.updated_at_ms,
    l.redrives, l.returns, l.is_poison, l.due_at_ms, l.silent_at_ms, l.status_reason, l.resolved_by, l.copy_of,
    l.operation_id, l.is_edited"""
_FROM = "FROM letters AS l JOIN groups AS g ON g.seq = l.group_seq LEFT JOIN contents AS c ON c.seq = l.seq"
_BY_SEQ = " ".join(("SELECT", _COLUMNS, _FROM, "WHERE l.seq = ANY($1::bigint[])"))
_BY_ID = " ".join(("SELECT", _COLUMNS, _FROM, "WHERE l.id = $1"))


async def read_letters(tx: Reading, seqs: Sequence[int]) -> list[tuple[int, DeadLetter]]:
    """The letters with these numbers, in their order; gone ones are missing."""
    if not seqs:
        return []
    found = {row[0]: row for row in await tx.rows(_BY_SEQ, list(seqs))}
    return [(seq, _letter(found[seq])) for seq in seqs if seq in found]


async def read_letter(tx: Reading, id: str) -> tuple[int, DeadLetter] | None:
    """The letter with this id, and its number."""
    row = await tx.row(_BY_ID, id)
    return None if row is None else (row[0], _letter(row))


def _letter(row: Row) -> DeadLetter:
    return DeadLetter(
        id=row[1],
        version=row[2],
        status=Status(row[3]),
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
    )
