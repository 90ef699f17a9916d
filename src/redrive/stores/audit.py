"""The audit log: who did what to which messages, when, why. Entries are only added, and form a chain of hashes.

Every change writes its audit entry in the same transaction, so neither exists without the other. The chain has one
head, which a transaction locks last and holds for its commit alone: any number of instances write one chain.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from redrive.records import (
    GENESIS,
    AuditEntry,
    AuditRow,
    ChainCheck,
    ChainHead,
    ChainReport,
    chain_hash,
    storable,
)
from redrive.stores.cursors import read_cursor, write_cursor
from redrive.stores.database import Database, ReadTransaction, Row, WriteTransaction
from redrive.stores.search.filter_sql import sql

_ADD = """
INSERT INTO audit (at_ms, who, token_id, action, subject, n, why, detail, place, hash)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
_LOCK_HEAD = "SELECT place, hash FROM audit_head WHERE id = 1 FOR UPDATE"
_MOVE_HEAD = "UPDATE audit_head SET place = $1, hash = $2 WHERE id = 1"
_HEAD = "SELECT place, hash FROM audit_head WHERE id = 1"
_COLUMNS = "seq, place, hash, at_ms, who, token_id, action, subject, n, why, detail"
_IN_ORDER = sql("SELECT", _COLUMNS, "FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2")
_FROM_THE_LOWEST = sql("SELECT", _COLUMNS, "FROM audit ORDER BY seq LIMIT $1")
_IS_ADOPTED = "SELECT is_adopted FROM audit_head WHERE id = 1"
_ADOPT = "UPDATE audit SET place = $2, hash = $3 WHERE seq = $1"
_ADOPTED = "UPDATE audit_head SET place = $1, hash = $2, is_adopted = 1 WHERE id = 1"
_LOOKED_AT = 2_000
_CURSOR = "audit"

_acting: ContextVar[str] = ContextVar("redrive_acting", default="")


@contextmanager
def acting_as(token_id: str) -> Iterator[None]:
    """Entries that are noted within the block are this token's (`AuditEntry.token_id`).

    It goes with the task and not with the arguments, so that no part on the way can leave it out or choose another.
    Empty within what Redrive does by itself.
    """
    before = _acting.set(token_id)
    try:
        yield
    finally:
        _acting.reset(before)


async def write_audit(tx: WriteTransaction, entry: AuditEntry) -> None:
    """Adds an entry to the transaction that makes the change; it is written just before the commit."""
    tx.defer(entry if entry.token_id else replace(entry, token_id=_acting.get()), _append)


async def _append(tx: WriteTransaction, entries: list[AuditEntry]) -> None:
    row = await tx.row(_LOCK_HEAD)
    assert row is not None
    head = _head(row)
    for entry in entries:
        # `default`: what AMQP and dates have that JSON has not is kept as its text. A refusal here would undo the deed.
        detail = json.dumps(entry.detail, default=str, ensure_ascii=True).replace("\\u0000", "\\ufffd")
        stored = AuditRow(
            seq=0,
            place=head.place + 1,
            hash=None,
            at_ms=entry.at_ms,
            who=storable(entry.who),
            token_id=storable(entry.token_id),
            action=storable(entry.action),
            subject=storable(entry.subject),
            count=entry.count,
            why=storable(entry.why),
            detail=detail,
        )
        head = ChainHead(place=head.place + 1, hash=chain_hash(head.hash, stored))
        await tx.run(
            _ADD,
            stored.at_ms,
            stored.who,
            stored.token_id,
            stored.action,
            stored.subject,
            stored.count,
            stored.why,
            stored.detail,
            head.place,
            head.hash,
        )
    await tx.run(_MOVE_HEAD, head.place, head.hash)


async def adopt_older(tx: WriteTransaction) -> int:
    """Takes the entries from before there was a chain into it, once; how many they were."""
    row = await tx.row(_LOCK_HEAD)
    assert row is not None
    if await tx.value(_IS_ADOPTED):
        return 0
    # Older ones have no place. If an entry was written since, the head has moved, and all older ones have a place.
    head, seq, count = _head(row), 0, 0
    while rows := await tx.rows(_IN_ORDER, seq, _LOOKED_AT):
        changes = []
        for found in map(_stored, rows):
            seq = found.seq
            if head.place != count or found.place is not None:
                continue
            count += 1
            head = ChainHead(place=count, hash=chain_hash(head.hash, replace(found, place=count)))
            changes.append((seq, head.place, head.hash))
        await tx.many(_ADOPT, changes)
    await tx.run(_ADOPTED, head.place, head.hash)
    return count


class Audit:
    """The audit log of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: AuditEntry) -> None:
        """An entry about something that is not in the store: a refusal, a login."""
        async with self._database.write() as tx:
            await write_audit(tx, entry)

    async def page(
        self,
        limit: int,
        cursor: str | None = None,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        token_id: str | None = None,
    ) -> tuple[list[AuditEntry], str | None]:
        """The newest entries first, and a cursor where there are more. Raises InvalidCursor."""
        arguments: list[Any] = [limit + 1]
        conditions = ["TRUE"]
        for column, value in (("who", who), ("action", action), ("subject", subject), ("token_id", token_id)):
            if value is not None:
                arguments.append(storable(value))
                conditions.append(f"{column} = ${len(arguments)}")
        if cursor is not None:
            arguments.append(read_cursor(_CURSOR, cursor, sizes=(1,))[0])
            conditions.append(f"seq < ${len(arguments)}")
        query = sql("SELECT", _COLUMNS, "FROM audit WHERE", " AND ".join(conditions), "ORDER BY seq DESC LIMIT $1")
        async with self._database.autocommit() as tx:
            rows = await tx.rows(query, *arguments)
        following = write_cursor(_CURSOR, [rows[limit - 1][0]]) if len(rows) > limit else None
        return [_entry(_stored(row)) for row in rows[:limit]], following

    async def actions(self) -> tuple[str, ...]:
        """The kinds of entries there are, in order."""
        async with self._database.autocommit() as tx:
            rows = await tx.rows("SELECT DISTINCT action FROM audit ORDER BY action")
        return tuple(row[0] for row in rows)

    async def all(self) -> AsyncIterator[AuditEntry]:
        """Every entry, the oldest first, as they were at one moment."""
        async with self._database.read() as tx:
            async for row in _rows(tx):
                yield _entry(row)

    async def verify(self, anchors: Sequence[ChainHead] = ()) -> ChainReport:
        """Whether the chain is whole, and still holds the `anchors`: heads that were written down before."""
        check = ChainCheck(anchors)
        async with self._database.read() as tx:
            async for row in _rows(tx):
                check.see(row)
            kept = await tx.row(_HEAD)
        return check.report(ChainHead() if kept is None else _head(kept))


async def _rows(tx: ReadTransaction) -> AsyncIterator[AuditRow]:
    """Every row there is, also those that somebody gave a number which ours never have."""
    rows = await tx.rows(_FROM_THE_LOWEST, _LOOKED_AT)
    while rows:
        for row in map(_stored, rows):
            yield row
        rows = await tx.rows(_IN_ORDER, rows[-1][0], _LOOKED_AT)


def _head(row: Row) -> ChainHead:
    place, hash = row
    return ChainHead(place=place, hash=GENESIS if hash is None else bytes(hash))


def _stored(row: Row) -> AuditRow:
    """A row, also one that somebody else wrote: SQLite holds a text, a number or bytes in any column, whatever it was
    declared as. What is of another kind than we write it is none of the chain, or is shown as Python would."""
    seq, place, hash, at_ms, *texts = row
    who, token_id, action, subject, n, why, detail = (
        one if isinstance(one, str | int) else f"{type(one).__name__} {one!r}" for one in texts
    )
    return AuditRow(
        seq=seq,
        place=place if isinstance(place, int) else None,
        hash=bytes(hash) if isinstance(hash, bytes | memoryview) else None,
        at_ms=at_ms if isinstance(at_ms, int) else 0,
        who=str(who),
        token_id=str(token_id),
        action=str(action),
        subject=str(subject),
        count=n if isinstance(n, int) else 0,
        why=str(why),
        detail=str(detail),
    )


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(
        at_ms=row.at_ms,
        who=row.who,
        action=row.action,
        subject=row.subject,
        count=row.count,
        why=row.why,
        detail=_read_detail(row.detail),
        token_id=row.token_id,
        place=row.place,
        hash=row.hash,
    )


def _read_detail(text: str) -> dict[str, Any]:
    """Also of an entry that somebody else wrote: the audit must be readable most of all then."""
    try:
        read = json.loads(text)
    except ValueError:
        return {"unreadable": text}
    return read if isinstance(read, dict) else {"unreadable": text}
