"""Groups: dead letters of one kind, how they stand, and what people said about them."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from redrive.records import AuditEntry, Group, GroupNote, GroupState, GroupStateChange, glob_matcher, storable
from redrive.stores.audit import write_audit
from redrive.stores.cursors import read_cursor, write_cursor
from redrive.stores.database import Database, ReadTransaction, Row
from redrive.stores.errors import StoreError
from redrive.stores.search.filter_sql import sql

_COLUMNS = """g.seq, g.id, g.title, g.queue, g.error_type, g.state, g.first_seen_ms, g.last_seen_ms, g.letters,
    g.redriven, g.returned, g.owner, g.said, g.said_at_ms, g.said_by, g.said_why"""
_SAY = "UPDATE groups SET state = $2, said = $2, said_at_ms = $3, said_by = $4, said_why = $5 WHERE id = $1"
_ORDERS = {"last_seen": "last_seen_ms", "count": "letters"}
_STANDING = """
SELECT key, status, n FROM tallies WHERE dimension = 'group' AND key = ANY($1::text[]) ORDER BY key, status
"""
_NOTES = """
SELECT group_seq, at_ms, who, text FROM notes WHERE group_seq = ANY($1::bigint[]) ORDER BY group_seq, seq
"""


_KEY = "SELECT value FROM secrets WHERE name = 'groups'"


async def read_group_key(tx: ReadTransaction) -> bytes:
    """The database's secret that ids of groups are made with."""
    return bytes(await tx.value(_KEY))


class UnknownGroup(StoreError):
    """No group has this id."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        super().__init__(f"there is no group {group_id}; list them to see which there are")


class Groups:
    """The groups of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self,
        *,
        limit: int,
        cursor: str | None = None,
        state: GroupState | None = None,
        queue: str | None = None,
        order: Literal["last_seen", "count"] = "last_seen",
        queues: Sequence[str] = (),
    ) -> tuple[list[Group], str | None]:
        """Groups that have dead letters, the last seen or the largest first, and a cursor where there are more.

        With `queues` (names with `*`) only those that belong to these.
        Raises InvalidCursor.
        """
        column = f"g.{_ORDERS[order]}"
        arguments: list[Any] = [limit + 1]
        conditions = ["g.letters > 0"]
        for name, value in (("state", state), ("queue", queue)):
            if value is not None:
                arguments.append(storable(str(value)))
                conditions.append(f"g.{name} = ${len(arguments)}")
        if cursor is not None:
            arguments += read_cursor(f"groups by {order}", cursor, sizes=(2,))
            conditions.append(f"({column}, g.seq) < (${len(arguments) - 1}, ${len(arguments)})")
        # Each statement for itself, as a page of letters.
        async with self._database.autocommit() as tx:
            if queues:
                arguments.append(await _known_owners(tx, queues))
                conditions.append(f"g.owner = ANY(${len(arguments)}::text[])")
            query = sql("SELECT", _COLUMNS, "FROM groups AS g WHERE", " AND ".join(conditions))
            rows = await tx.rows(sql(query, f"ORDER BY {column} DESC, g.seq DESC LIMIT $1"), *arguments)
            groups = await _groups(tx, rows[:limit])
        if len(rows) <= limit:
            return groups, None
        last = rows[limit - 1]
        return groups, write_cursor(f"groups by {order}", [last[7] if order == "last_seen" else last[8], last[0]])

    async def get(self, id: str) -> Group | None:
        """The group with this id, also when it has no dead letters any more."""
        async with self._database.autocommit() as tx:
            return await _get(tx, id)

    async def set_state(self, id: str, state: GroupState, who: str, why: str, now_ms: int) -> Group:
        """What people say about it now. Raises UnknownGroup."""
        async with self._database.write() as tx:
            changed = await tx.run(_SAY, storable(id), state.value, now_ms, storable(who), storable(why))
            group = await _get(tx, id) if changed else None
            if group is None:
                raise UnknownGroup(id)
            await write_audit(
                tx,
                AuditEntry(
                    at_ms=now_ms, who=who, action=f"group.{state.value}", subject=id, count=group.count, why=why
                ),
            )
        return group

    async def add_note(self, id: str, text: str, who: str, now_ms: int) -> Group:
        """Something to remember about it. Raises UnknownGroup."""
        async with self._database.write() as tx:
            seq = await tx.value("SELECT seq FROM groups WHERE id = $1", storable(id))
            if seq is None:
                raise UnknownGroup(id)
            keep = "INSERT INTO notes (group_seq, at_ms, who, text) VALUES ($1, $2, $3, $4)"
            await tx.run(keep, seq, now_ms, storable(who), storable(text))
            await write_audit(
                tx, AuditEntry(at_ms=now_ms, who=who, action="group.noted", subject=id, count=1, why=text)
            )
            group = await _get(tx, id)
            if group is None:
                raise UnknownGroup(id)
        return group


async def _known_owners(tx: ReadTransaction, globs: Sequence[str]) -> list[str]:
    """The queues that groups belong to and one of the names stands for."""
    rows = await tx.rows("SELECT DISTINCT owner FROM groups")
    return list(filter(glob_matcher(globs), (row[0] for row in rows)))


async def _get(tx: ReadTransaction, id: str) -> Group | None:
    rows = await tx.rows(sql("SELECT", _COLUMNS, "FROM groups AS g WHERE g.id = $1"), storable(id))
    groups = await _groups(tx, rows)
    return groups[0] if groups else None


async def _groups(tx: ReadTransaction, rows: Sequence[Row]) -> list[Group]:
    seqs = [row[0] for row in rows]
    standing: defaultdict[int, dict[str, int]] = defaultdict(dict)
    notes: defaultdict[int, list[GroupNote]] = defaultdict(list)
    if seqs:
        for key, status, n in await tx.rows(_STANDING, [str(seq) for seq in seqs]):
            standing[int(key)][status] = n
        for seq, at_ms, who, text in await tx.rows(_NOTES, seqs):
            notes[seq].append(GroupNote(at_ms=at_ms, who=who, text=text))
    return [
        Group(
            id=row[1],
            title=row[2],
            queue=row[3],
            error_type=row[4],
            state=GroupState(row[5]),
            first_seen_ms=row[6],
            last_seen_ms=row[7],
            count=row[8],
            by_status=standing[row[0]],
            redriven=row[9],
            returned=row[10],
            owner=row[11],
            notes=tuple(notes[row[0]]),
            state_change=_state_change(*row[12:16]),
        )
        for row in rows
    ]


def _state_change(state: str | None, at_ms: int | None, who: str | None, why: str | None) -> GroupStateChange | None:
    if state is None or at_ms is None:
        return None
    return GroupStateChange(state=GroupState(state), at_ms=at_ms, who=who or "", why=why or "")
