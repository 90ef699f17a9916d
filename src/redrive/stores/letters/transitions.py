"""The only way a dead letter changes its status: along the table of `records.states`, with its life and the counts.

`lock_letters` first (rows in the order of their numbers, so that two transactions wait instead of deadlocking), then
`change_status` or `delete_letters`, then `CountChanges.write` at the end of the transaction.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.records import TRANSITIONS, LetterEvent, Status
from redrive.stores.database import Row, WriteTransaction
from redrive.stores.letters.counts import CountChanges, CountKey
from redrive.stores.search.full_text import forget_words

LOCKED_COLUMNS = (
    "l.seq, l.id, l.status, l.version, l.redrives, l.queue, l.dlq, l.routing_key, l.service, l.type, l.group_seq"
)
"""The columns of a `LockedLetter`."""

_LOCK = " ".join(
    ("SELECT", LOCKED_COLUMNS, "FROM letters AS l WHERE l.seq = ANY($1::bigint[]) ORDER BY l.seq FOR UPDATE OF l")
)
# `coalesce` keeps PostgreSQL from the index on the status: with the letters' numbers it looks like a short way, and is
# as long as the index for each of them.
_MOVE = """
UPDATE letters SET status = $2, version = version + 1, updated_at_ms = $3, status_reason = $4{sets}
WHERE seq = ANY($1::bigint[]) AND coalesce(status, '') = $5
"""
_LIFE = """
INSERT INTO happenings (letter_seq, version, at_ms, event, who, detail, operation_id)
SELECT seq, version, $2, $3, $4, $5, CAST($6 AS TEXT) FROM letters WHERE seq = ANY($1::bigint[])
"""
_STATUSES = {status.value: status for status in Status}
_REMOVALS = (
    "DELETE FROM contents WHERE seq = ANY($1::bigint[])",
    "DELETE FROM past_contents WHERE letter_seq = ANY($1::bigint[])",
    "DELETE FROM edits WHERE letter_seq = ANY($1::bigint[])",
    "DELETE FROM happenings WHERE letter_seq = ANY($1::bigint[])",
    "DELETE FROM letters WHERE seq = ANY($1::bigint[])",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedLetter:
    """How a dead letter stands, and where it is counted."""

    seq: int
    id: str
    status: Status
    version: int
    redrives: int
    place: CountKey


async def lock_letters(tx: WriteTransaction, seqs: Sequence[int]) -> list[LockedLetter]:
    """How these dead letters stand; nobody else changes them before this transaction ends. Gone ones are missing."""
    # Many stand in one place; equal ones are made once, which also makes counting in them cheap.
    places: dict[Row, CountKey] = {}
    return [read_locked(row, places) for row in await tx.rows(_LOCK, sorted(seqs))]


def read_locked(row: Row, places: dict[Row, CountKey] | None = None) -> LockedLetter:
    """A row of `LOCKED_COLUMNS`'s columns. `places`: those that were made before."""
    seq, id, status, version, redrives, *where = row
    known = tuple(where)
    place = None if places is None else places.get(known)
    if place is None:
        queue, dlq, topic, service, type, group_seq = known
        place = CountKey(queue=queue, dlq=dlq, topic=topic, service=service, type=type, group_seq=group_seq)
        if places is not None:
            places[known] = place
    return LockedLetter(seq=seq, id=id, status=_STATUSES[status], version=version, redrives=redrives, place=place)


async def change_status(
    tx: WriteTransaction,
    count_changes: CountChanges,
    standings: Iterable[LockedLetter],
    event: LetterEvent,
    *,
    now_ms: int,
    reason: str | None,
    sets: str = "",
    arguments: tuple[Any, ...] = (),
) -> list[LockedLetter]:
    """What the event makes of locked dead letters; those it made something of, as they stand now.

    Those whose status the table does not know with this event are left as they are. `sets` are further columns, such as
    `, resolved_by = $6`; its arguments begin at $6.
    """
    sorted_out: defaultdict[tuple[Status, Status], list[LockedLetter]] = defaultdict(list)
    for standing in standings:
        after = TRANSITIONS.get((standing.status, event))
        if after is not None:
            sorted_out[standing.status, after].append(standing)
    moved: list[LockedLetter] = []
    for (before, after), these in sorted_out.items():
        seqs = [standing.seq for standing in these]
        await tx.run(_MOVE.replace("{sets}", sets), seqs, after.value, now_ms, reason, before.value, *arguments)
        for place, n in Counter([standing.place for standing in these]).items():
            count_changes.moved(place, before, after, n=n)
        moved += [_moved(standing, after) for standing in these]
    return moved


def _moved(standing: LockedLetter, after: Status) -> LockedLetter:
    # Not by `replace`, which takes longer than all else that is done here for a letter.
    return LockedLetter(
        seq=standing.seq,
        id=standing.id,
        status=after,
        version=standing.version + 1,
        redrives=standing.redrives,
        place=standing.place,
    )


async def record_life(
    tx: WriteTransaction,
    seqs: Sequence[int],
    event: str,
    *,
    now_ms: int,
    who: str,
    detail: str = "",
    operation_id: str | None = None,
) -> None:
    """An entry in the life of each, under the version it has now: after the change it tells of."""
    if seqs:
        await tx.run(_LIFE, list(seqs), now_ms, event, who, detail, operation_id)


async def delete_letters(
    tx: WriteTransaction, count_changes: CountChanges, standings: Iterable[LockedLetter]
) -> list[LockedLetter]:
    """Deletes locked dead letters with everything about them; those that may not be deleted now are left. The rest is
    returned."""
    removed = [standing for standing in standings if (standing.status, LetterEvent.DELETED) in TRANSITIONS]
    seqs = [standing.seq for standing in removed]
    if not seqs:
        return []
    await forget_words(tx, seqs)
    for sql in _REMOVALS:
        await tx.run(sql, seqs)
    for standing in removed:
        count_changes.moved(standing.place, standing.status, None)
    return removed
