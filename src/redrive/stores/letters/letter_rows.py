"""Rows of dead letters read as values."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from redrive.records import DeadLetter, Status
from redrive.stores.database import ReadTransaction, Row
from redrive.stores.letters.letter_columns import SELECTED

_FROM = "FROM letters AS l JOIN groups AS g ON g.seq = l.group_seq LEFT JOIN contents AS c ON c.seq = l.seq"
_BY_SEQ = " ".join(("SELECT", SELECTED, _FROM, "WHERE l.seq = ANY($1::bigint[])"))
_WHOLE = " ".join(("SELECT", SELECTED, ", c.history, c.properties, c.body", _FROM, "WHERE l.id = $1"))
_BY_ID = " ".join(("SELECT", SELECTED, _FROM, "WHERE l.id = $1"))
_PIECE = 100
_STATUSES = {status.value: status for status in Status}


async def read_whole(tx: ReadTransaction, id: str) -> tuple[int, DeadLetter, bytes | None, bytes, bytes] | None:
    """The letter with this id after its number; its history as it is stored, properties and body, as collected."""
    row = await tx.row(_WHOLE, id)
    if row is None or row[-2] is None:
        return None
    history, properties, body = row[-3], bytes(row[-2]), bytes(row[-1])
    return row[0], _letter(row), None if history is None else bytes(history), properties, body


async def read_letters(tx: ReadTransaction, seqs: Sequence[int]) -> list[tuple[int, DeadLetter]]:
    """The letters with these numbers, in their order; deleted ones are missing."""
    if not seqs:
        return []
    # PostgreSQL keeps to the plan of a statement that it has seen often, until the table is analysed: one it made for a
    # nearly empty table reads all rows. Numbers grow with the table, so with each of their bits it plans anew.
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


def _setter(name: str) -> Callable[[DeadLetter, Any], None]:
    """Sets one field of a new letter from its column."""
    store: Callable[[DeadLetter, Any], None] = getattr(DeadLetter, name).__set__
    if name == "status":
        return lambda letter, value: store(letter, _STATUSES[value])
    if name in _FLAGS:
        return lambda letter, value: store(letter, bool(value))
    return store


_FLAGS = {field.name for field in fields(DeadLetter) if field.type is bool}
_SETTERS = tuple(_setter(field.name) for field in fields(DeadLetter))


def _letter(row: Row) -> DeadLetter:
    # By its slots: the constructor of a frozen value takes twice as long, and a page has a thousand of them.
    letter = DeadLetter.__new__(DeadLetter)
    columns = iter(row)
    next(columns)  # its number
    for store, value in zip(_SETTERS, columns, strict=False):
        store(letter, value)
    return letter
