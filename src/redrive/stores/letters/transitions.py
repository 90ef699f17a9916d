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
_CHANGE_STATUS = """
UPDATE letters SET status = $2, version = version + 1, updated_at_ms = $3, status_reason = $4{sets}
WHERE seq = ANY($1::bigint[]) AND coalesce(status, '') = $5
"""
_LIFE = """
INSERT INTO happenings (letter_seq, version, at_ms, event, who, detail, operation_id)
SELECT seq, version, $2, $3, $4, $5, CAST($6 AS TEXT) FROM letters WHERE seq = ANY($1::bigint[])
"""
_STATUSES = {status.value: status for status in Status}
_DELETES = (
    "DELETE FROM contents WHERE seq = ANY($1::bigint[])",
    "DELETE FROM past_contents WHERE letter_seq = ANY($1::bigint[])",
    "DELETE FROM edits WHERE letter_seq = ANY($1::bigint[])",
    "DELETE FROM happenings WHERE letter_seq = ANY($1::bigint[])",
    "DELETE FROM letters WHERE seq = ANY($1::bigint[])",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedLetter:
    """A dead letter that a transaction has locked: its status, and what it is counted by."""

    seq: int
    id: str
    status: Status
    version: int
    redrives: int
    key: CountKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignments:
    """Further columns that a change of status sets, such as `, resolved_by = $6`; their arguments begin at $6."""

    sql: str = ""
    arguments: tuple[Any, ...] = ()


NO_ASSIGNMENTS = Assignments()


async def lock_letters(tx: WriteTransaction, seqs: Sequence[int]) -> list[LockedLetter]:
    """These dead letters; nobody else changes them before this transaction ends. Deleted ones are missing."""
    # Many have equal keys; each is made once, which also makes counting by them cheap.
    keys: dict[Row, CountKey] = {}
    return [read_locked(row, keys) for row in await tx.rows(_LOCK, sorted(seqs))]


def read_locked(row: Row, keys: dict[Row, CountKey] | None = None) -> LockedLetter:
    """A row of `LOCKED_COLUMNS`. `keys`: those that were made before."""
    seq, id, status, version, redrives, *counted_by = row
    known = tuple(counted_by)
    key = None if keys is None else keys.get(known)
    if key is None:
        queue, dlq, topic, service, type, group_seq = known
        key = CountKey(queue=queue, dlq=dlq, topic=topic, service=service, type=type, group_seq=group_seq)
        if keys is not None:
            keys[known] = key
    return LockedLetter(seq=seq, id=id, status=_STATUSES[status], version=version, redrives=redrives, key=key)


async def change_status(
    tx: WriteTransaction,
    count_changes: CountChanges,
    letters: Iterable[LockedLetter],
    event: LetterEvent,
    *,
    now_ms: int,
    reason: str | None,
    sets: Assignments = NO_ASSIGNMENTS,
) -> list[LockedLetter]:
    """Moves locked dead letters along the table of transitions; those that moved, as they are now.

    Those whose status has no entry for the event are left as they are.
    """
    sorted_out: defaultdict[tuple[Status, Status], list[LockedLetter]] = defaultdict(list)
    for letter in letters:
        after = TRANSITIONS.get((letter.status, event))
        if after is not None:
            sorted_out[letter.status, after].append(letter)
    moved: list[LockedLetter] = []
    for (before, after), these in sorted_out.items():
        seqs = [letter.seq for letter in these]
        await tx.run(
            _CHANGE_STATUS.replace("{sets}", sets.sql), seqs, after.value, now_ms, reason, before.value, *sets.arguments
        )
        for key, n in Counter([letter.key for letter in these]).items():
            count_changes.move(key, before, after, n=n)
        moved += [_moved(letter, after) for letter in these]
    return moved


def _moved(letter: LockedLetter, after: Status) -> LockedLetter:
    # Not by `replace`, which takes longer than all else that is done here for a letter.
    return LockedLetter(
        seq=letter.seq,
        id=letter.id,
        status=after,
        version=letter.version + 1,
        redrives=letter.redrives,
        key=letter.key,
    )


async def record_lifecycle(
    tx: WriteTransaction,
    seqs: Sequence[int],
    event: str,
    *,
    now_ms: int,
    who: str,
    detail: str = "",
    operation_id: str | None = None,
) -> None:
    """Adds an entry to the life of each, under the version it has now: call it after the change."""
    if seqs:
        await tx.run(_LIFE, list(seqs), now_ms, event, who, detail, operation_id)


async def delete_letters(
    tx: WriteTransaction, count_changes: CountChanges, letters: Iterable[LockedLetter]
) -> list[LockedLetter]:
    """Deletes locked dead letters with everything about them, and returns them. Those in a status that forbids it are
    left."""
    deleted = [letter for letter in letters if (letter.status, LetterEvent.DELETED) in TRANSITIONS]
    seqs = [letter.seq for letter in deleted]
    if not seqs:
        return []
    await forget_words(tx, seqs)
    for sql in _DELETES:
        await tx.run(sql, seqs)
    for letter in deleted:
        count_changes.move(letter.key, letter.status, None)
    return deleted
