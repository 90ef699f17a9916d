"""Dead letters as people see them: finding, reading, changing and exporting them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from redrive.core import Attempt
from redrive.records import (
    ID_LENGTH,
    DeadLetter,
    Filter,
    LetterEvent,
    LifecycleEntry,
    MessageContent,
    Selection,
    storable,
)
from redrive.stores.cursors import read_cursor, write_cursor
from redrive.stores.database import Database, ReadTransaction, Row
from redrive.stores.letters.changes import Attribution, ChangePreview, ChangeResult, change, edit, preview_change
from redrive.stores.letters.exports import EarlierContent, ExportedLetter, ImportResult, export, insert_exported
from redrive.stores.letters.letter_rows import read_letter, read_letters, read_whole
from redrive.stores.message_contents import unpack_history, unwrap_envelope
from redrive.stores.search.budgets import VIEW_BUDGET, within_budget
from redrive.stores.search.filter_sql import sql
from redrive.stores.search.walk import Key, filter_condition, start_walk

LOOKED_AT_MAX = 5_000
"""How many letters a page looks at one by one before it is partial."""
PAGE_S_MAX = 0.06
"""How long a page looks for more letters before it is partial."""
FOUND_MAX = 10
_ORDERS = {True: "newest", False: "oldest"}
_EDITED = "SELECT e.properties, e.body FROM edits AS e WHERE e.letter_seq = $1 ORDER BY e.seq DESC LIMIT 1"
_ORIGINAL = "SELECT c.properties, c.body FROM contents AS c WHERE c.seq = $1"
_HISTORY = "SELECT c.history, c.properties FROM letters AS l JOIN contents AS c ON c.seq = l.seq WHERE l.id = $1"
_PAST = """
SELECT p.at_ms, p.redrives, p.properties, p.body FROM letters AS l JOIN past_contents AS p ON p.letter_seq = l.seq
WHERE l.id = $1 ORDER BY p.seq
"""
_LIFE = """
SELECT l.collected_at_ms, h.at_ms, h.event, h.who, h.detail, h.operation_id
FROM letters AS l LEFT JOIN happenings AS h ON h.letter_seq = l.seq WHERE l.id = $1 ORDER BY h.version
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """Some letters. With a cursor there may be more; a partial page has looked at enough before it was full."""

    letters: tuple[DeadLetter, ...]
    next_cursor: str | None
    is_partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeLetter:
    """A dead letter and everything about it. `content` is what would be sent, or what was collected."""

    letter: DeadLetter
    content: MessageContent
    history: tuple[Attempt, ...]
    lifecycle: tuple[LifecycleEntry, ...]
    earlier_contents: tuple[EarlierContent, ...]


class Letters:
    """The dead letters of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, id: str) -> DeadLetter | None:
        """The letter with this id."""
        async with self._database.autocommit() as tx:
            found = await read_letter(tx, storable(id))
        return None if found is None else found[1]

    async def find(self, text: str) -> tuple[str, ...]:
        """Ids that begin with the text, else those that end with it; at most ten."""
        text = storable(text.lower())
        if not text or not text.isalnum() or len(text) > ID_LENGTH:
            return ()
        low, high = text.ljust(ID_LENGTH, "0"), text.ljust(ID_LENGTH, "z")
        async with self._database.read() as tx:
            query = "SELECT l.id FROM letters AS l WHERE l.id BETWEEN $1 AND $2 ORDER BY l.id LIMIT $3"
            rows = await tx.rows(query, low, high, FOUND_MAX)
            if not rows:
                query = "SELECT l.id FROM letters AS l WHERE l.id LIKE $1 ORDER BY l.id LIMIT $2"
                rows = await tx.rows(query, f"%{text}", FOUND_MAX)
        return tuple(row[0] for row in rows if row[0].startswith(text) or row[0].endswith(text))

    async def whole(self, id: str, *, edited: bool = True) -> WholeLetter | None:
        """What `get`, `content`, `history`, `lifecycle` and `earlier_contents` return, with one connection and few
        queries."""
        async with self._database.autocommit() as tx:
            found = await read_whole(tx, storable(id))
            if found is None:
                return None
            seq, letter, history, *original = found
            row = await tx.row(_EDITED, seq) if edited and letter.is_edited else None
            properties, body = original if row is None else map(bytes, row)
            lifecycle = await tx.rows(_LIFE, letter.id)
            earlier = await tx.rows(_PAST, letter.id)
        return WholeLetter(
            letter=letter,
            content=unwrap_envelope(MessageContent(properties=properties, body=body)),
            history=unpack_history(history, original[0]),
            lifecycle=_lifecycle(lifecycle),
            earlier_contents=_earlier_contents(earlier),
        )

    async def content(self, id: str, *, edited: bool = True) -> MessageContent | None:
        """What would be sent: the last edit, or without `edited` the original; out of its envelope if it is in one."""
        async with self._database.autocommit() as tx:
            found = await read_letter(tx, storable(id))
            if found is None:
                return None
            row = await tx.row(_EDITED, found[0]) if edited and found[1].is_edited else None
            if row is None:
                row = await tx.row(_ORIGINAL, found[0])
        return None if row is None else unwrap_envelope(MessageContent(properties=bytes(row[0]), body=bytes(row[1])))

    async def earlier_contents(self, id: str) -> tuple[EarlierContent, ...]:
        """What it was before each of its recurrences, the oldest first."""
        async with self._database.autocommit() as tx:
            return _earlier_contents(await tx.rows(_PAST, storable(id)))

    async def history(self, id: str) -> tuple[Attempt, ...]:
        """The attempts that its headers list."""
        async with self._database.autocommit() as tx:
            row = await tx.row(_HISTORY, storable(id))
        return () if row is None else unpack_history(row[0], bytes(row[1]))

    async def lifecycle(self, id: str) -> tuple[LifecycleEntry, ...]:
        """What happened to it since it was collected."""
        async with self._database.autocommit() as tx:
            return _lifecycle(await tx.rows(_LIFE, storable(id)))

    async def page(
        self, filter: Filter, *, limit: int, cursor: str | None = None, newest_first: bool = True, now_ms: int
    ) -> LetterPage:
        """Letters that answer the filter: by when they died, or by when they were stored where words are looked for.

        Raises InvalidCursor, FilterTooExpensive.
        """
        after, is_searched = _read_cursor(cursor, newest_first)
        found: list[Key] = []
        looked_at = 0
        # Each statement for itself: somebody who turns pages sees things change anyway, and two round trips are saved.
        async with within_budget(VIEW_BUDGET, self._database, filter), self._database.autocommit() as tx:
            walk = await start_walk(
                tx,
                filter,
                now_ms=now_ms,
                newest_first=newest_first,
                is_searched=is_searched,
                seconds=PAGE_S_MAX,
            )
            while True:
                step = await walk.step(after, limit + 1 - len(found))
                found += step.found
                looked_at += step.looked_at
                after = step.last
                if len(found) > limit or step.is_end or looked_at >= LOOKED_AT_MAX or walk.is_late:
                    break
            letters = await read_letters(tx, [key[-1] for key in found[:limit]])
        if len(found) > limit:
            return LetterPage(letters=_values(letters), next_cursor=_write_cursor(found[limit - 1], newest_first))
        if step.is_end or after is None:
            return LetterPage(letters=_values(letters), next_cursor=None)
        return LetterPage(letters=_values(letters), next_cursor=_write_cursor(after, newest_first), is_partial=True)

    async def count(self, filter: Filter, *, now_ms: int, at_most: int | None = None) -> int:
        """How many answer the filter; not more than `at_most` are counted. Raises FilterTooExpensive."""
        async with within_budget(VIEW_BUDGET, self._database, filter), self._database.read() as tx:
            if not filter.terms:
                counted = await tx.value("SELECT coalesce(sum(n), 0) FROM tallies WHERE dimension = 'all'")
                return int(counted) if at_most is None else min(int(counted), at_most)
            asked = filter_condition(filter, dialect=tx.dialect, now_ms=now_ms)
            if not asked.is_exact:
                return await _count_by_looking(tx, filter, now_ms=now_ms, at_most=at_most)
            rows = sql("SELECT 1 FROM letters AS l WHERE", asked.sql)
            if at_most is not None:
                rows = sql(rows, f"LIMIT ${len(asked.args) + 1}")
            limit = () if at_most is None else (at_most,)
            return int(await tx.value(sql("SELECT count(*) FROM (", rows, ") AS found"), *asked.args, *limit))

    async def resolve(
        self,
        selection: Selection,
        *,
        who: str,
        why: str,
        now_ms: int,
        if_version: int | None = None,
        on_behalf_of: str | None = None,
    ) -> ChangeResult:
        """Nothing more is to be done about them."""
        by = Attribution(who=who, why=why, now_ms=now_ms, on_behalf_of=on_behalf_of)
        return await change(self._database, selection, LetterEvent.RESOLVED, by, if_version=if_version)

    async def reopen(
        self, selection: Selection, *, who: str, why: str, now_ms: int, if_version: int | None = None
    ) -> ChangeResult:
        """They are pending again."""
        by = Attribution(who=who, why=why, now_ms=now_ms)
        return await change(self._database, selection, LetterEvent.REOPENED, by, if_version=if_version)

    async def delete(
        self, selection: Selection, *, who: str, why: str, now_ms: int, if_version: int | None = None
    ) -> ChangeResult:
        """Deletes them with everything about them but the audit."""
        by = Attribution(who=who, why=why, now_ms=now_ms)
        return await change(self._database, selection, LetterEvent.DELETED, by, if_version=if_version)

    async def preview_change(self, selection: Selection, event: LetterEvent, *, now_ms: int) -> ChangePreview:
        """How many a change would change now, and how many it would leave, by reason."""
        return await preview_change(self._database, selection, event, now_ms=now_ms)

    async def edit(
        self,
        id: str,
        content: MessageContent,
        *,
        who: str,
        why: str,
        diff: str,
        if_version: int | None = None,
        now_ms: int,
    ) -> DeadLetter:
        """Another content for the copies to come. Raises UnknownLetter, LetterBusy, VersionConflict."""
        by = Attribution(who=who, why=why, now_ms=now_ms)
        return await edit(self._database, id, content, by, diff=diff, if_version=if_version)

    def stream(self, filter: Filter, *, now_ms: int) -> AsyncIterator[ExportedLetter]:
        """All letters that answer the filter, with everything about them, the longest dead first."""
        return export(self._database, filter, now_ms=now_ms)

    async def insert_exported(self, batch: Sequence[ExportedLetter], *, who: str, now_ms: int) -> ImportResult:
        """Stores what another store exported."""
        return await insert_exported(self._database, batch, who=who, now_ms=now_ms)


def _lifecycle(rows: Sequence[Row]) -> tuple[LifecycleEntry, ...]:
    if not rows:
        return ()
    collected = LifecycleEntry(at_ms=rows[0][0], event="collected", who="collector", detail="", operation_id=None)
    entries = [
        LifecycleEntry(at_ms=at_ms, event=event, who=who, detail=detail, operation_id=operation_id)
        for _, at_ms, event, who, detail, operation_id in rows
        if event is not None
    ]
    return (collected, *entries)


def _earlier_contents(rows: Sequence[Row]) -> tuple[EarlierContent, ...]:
    contents = [MessageContent(properties=bytes(row[2]), body=bytes(row[3])) for row in rows]
    pairs = zip(rows, contents, strict=True)
    return tuple(EarlierContent(at_ms=row[0], redrives=row[1], content=content) for row, content in pairs)


def _values(letters: list[tuple[int, DeadLetter]]) -> tuple[DeadLetter, ...]:
    return tuple(letter for _, letter in letters)


def _write_cursor(key: Key, newest_first: bool) -> str:
    return write_cursor(_ORDERS[newest_first], key)


def _read_cursor(cursor: str | None, newest_first: bool) -> tuple[Key | None, bool | None]:
    """The key, and whether the walk was by number."""
    if cursor is None:
        return None, None
    key = read_cursor(_ORDERS[newest_first], cursor, sizes=(1, 2))
    return key, len(key) == 1


async def _count_by_looking(tx: ReadTransaction, filter: Filter, *, now_ms: int, at_most: int | None) -> int:
    walk = await start_walk(tx, filter, now_ms=now_ms, newest_first=True)
    counted = 0
    async for keys in walk.steps(1_000, VIEW_BUDGET):
        counted += len(keys)
        if at_most is not None and counted >= at_most:
            return at_most
    return counted
