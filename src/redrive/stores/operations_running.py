"""Running an operation: claim it, take a batch, send it, record how it ended. Whoever runs holds `operation:<id>`.

    item      queued ──take──▶ sending ──record──▶ sent | refused | in_doubt | queued again
    letter    pending|failed|in_doubt ─▶ retrying ─▶ (stays) | pending | in_doubt | pending

`take` commits the intent before anything is sent. A runner that is gone leaves `sending` items; the next one, under a
higher fence, can't know what became of them: `claim` makes them in doubt. A runner whose `take` was not answered has
sent nothing of it: it asks again with the same `turn` and gets the same items. Without a turn, or if it dies, they end
in doubt too; in no case is one given out a second time as if it were the first.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from redrive.records import (
    Claimed,
    Content,
    Event,
    ItemState,
    Operation,
    OperationState,
    Sent,
    Status,
    sources,
)
from redrive.stores.database import Writing
from redrive.stores.leases import Lease, check
from redrive.stores.operations_ending import SentItem, end_letters
from redrive.stores.operations_rows import OperationRow, count_on, lock_operation
from redrive.stores.tallies import Ledger
from redrive.stores.transitions import Standing, lock, move

TAKE_BYTES_MAX = 32 << 20
"""A batch with larger contents is cut short: it is in memory until it is recorded."""

_STALE = """
SELECT place, letter_seq, redrives FROM items WHERE operation_seq = $1 AND state = 'sending' AND fence <> $2
ORDER BY place
"""
_START = """
UPDATE operations SET state = 'running', started_at_ms = coalesce(started_at_ms, $2), note = '' WHERE seq = $1
"""
_QUEUED = """
SELECT i.place, i.letter_seq, l.size_bytes FROM items AS i LEFT JOIN letters AS l ON l.seq = i.letter_seq
WHERE i.operation_seq = $1 AND i.state = 'queued' ORDER BY i.place LIMIT $2
"""
_SENDING = """
SELECT place, letter_seq, letter_id, redrives, was_in_doubt FROM items
WHERE operation_seq = $1 AND state = 'sending' AND fence = $2 ORDER BY place
"""
_OF_TURN = """
SELECT letter_seq FROM items WHERE operation_seq = $1 AND state = 'sending' AND fence = $2 AND turn = $3 ORDER BY place
"""
_TAKE_ITEMS = """
UPDATE items SET state = 'sending', reason = '', at_ms = $3, fence = $4, turn = $5, was_in_doubt = $6,
    redrives = (SELECT l.redrives FROM letters AS l WHERE l.seq = items.letter_seq)
WHERE operation_seq = $1 AND place = ANY($2::bigint[])
"""
_END_ITEMS = (
    "UPDATE items SET state = $3, reason = $4, at_ms = $5 WHERE operation_seq = $1 AND place = ANY($2::bigint[])"
)
# Three questions that each have one answer by key; joined, PostgreSQL goes astray as long as it knows no statistics.
_SENDING_MARKS = """
SELECT letter_seq, letter_id, redrives, was_in_doubt FROM items
WHERE operation_seq = $1 AND state = 'sending' AND fence = $2 ORDER BY place
"""
_WHENCE = """
SELECT seq, vhost, queue, dlq, dlq_exchange, dlq_routing_key, attempts, is_edited FROM letters
WHERE seq = ANY($1::bigint[])
"""
_CONTENTS = "SELECT seq, properties, body FROM contents WHERE seq = ANY($1::bigint[])"
_EDITED = """
SELECT e.letter_seq, e.properties, e.body FROM edits AS e
WHERE e.seq IN (SELECT max(seq) FROM edits WHERE letter_seq = ANY($1::bigint[]) GROUP BY letter_seq)
"""


async def claim(tx: Writing, id: str, lease: Lease, *, now_ms: int) -> Operation | None:
    """Begins to run, or goes on where another runner stopped: what that had on the way is in doubt now. None if the
    operation is paused or has ended. Raises `LeaseLost`, `UnknownOperation`."""
    await check(tx, lease)
    row = await lock_operation(tx, id)
    stale = await tx.rows(_STALE, row.seq, lease.fence)
    if stale:
        ledger = Ledger()
        reason = "its sender was gone before it could say whether the broker has it"
        items = [SentItem(place=place, seq=seq, redrives=redrives) for place, seq, redrives in stale]
        locked = {one.seq: one for one in await lock(tx, [item.seq for item in items])}
        await end_letters(tx, ledger, row.operation, items, locked, Event.LOST, reason, now_ms=now_ms)
        await _end_items(tx, row, items, ItemState.IN_DOUBT, reason, now_ms=now_ms)
        changes = {ItemState.SENDING: -len(stale), ItemState.IN_DOUBT: len(stale)}
        await count_on(tx, row.seq, changes, now_ms=now_ms)
        await ledger.write(tx)
        row = await lock_operation(tx, id)
    if row.operation.state not in (OperationState.WAITING, OperationState.RUNNING):
        return None
    await tx.run(_START, row.seq, now_ms)
    return (await lock_operation(tx, id)).operation


async def take(
    tx: Writing, id: str, lease: Lease, *, limit: int, now_ms: int, turn: int | None = None
) -> tuple[Claimed, ...] | None:
    """Commits the intent to send the next dead letters, and gives them out; () when none is queued, or the operation
    does not run. Items whose dead letter can't be redriven any more are skipped; None when all of these were, and the
    next are for another transaction: one that locks twice could lock out another. With a `turn` (> 0, another for each
    batch) that was taken before and is not recorded yet: the same again. Raises `LeaseLost`, `UnknownOperation`."""
    await check(tx, lease)
    row = await lock_operation(tx, id)
    if turn is not None:
        again = [seq for (seq,) in await tx.rows(_OF_TURN, row.seq, lease.fence, turn)]
        if again:
            return await _give_out(tx, row, lease, again)
    if row.operation.state is not OperationState.RUNNING:
        return ()
    queued = await _next_queued(tx, row, limit)
    if not queued:
        return ()
    ledger = Ledger()
    counts: Counter[ItemState] = Counter()
    taken = await _claim_letters(tx, ledger, row, lease, queued, counts, turn=turn or 0, now_ms=now_ms)
    await count_on(tx, row.seq, counts, now_ms=now_ms)
    await ledger.write(tx)
    return await _give_out(tx, row, lease, taken) if taken else None


async def record(tx: Writing, id: str, lease: Lease, results: Sequence[Sent], *, now_ms: int) -> Operation:
    """Writes down how taken dead letters ended, and ends the operation when nothing is left. Results that are recorded
    already are passed over. Raises `LeaseLost`, `UnknownOperation`."""
    await check(tx, lease)
    row = await lock_operation(tx, id)
    sending = {
        letter_id: (SentItem(place=place, seq=seq, redrives=redrives), bool(was_in_doubt))
        for place, seq, letter_id, redrives, was_in_doubt in await tx.rows(_SENDING, row.seq, lease.fence)
    }
    by_end: defaultdict[tuple[ItemState, str, Event], list[SentItem]] = defaultdict(list)
    for result in results:
        if result.id in sending:
            item, was_in_doubt = sending.pop(result.id)
            by_end[result.state, result.reason, _event(result.state, was_in_doubt)].append(item)
    if not by_end:
        return row.operation
    ledger = Ledger()
    counts: Counter[ItemState] = Counter()
    # Rows are locked once and in order; the letters of each end follow.
    locked = {one.seq: one for one in await lock(tx, [item.seq for items in by_end.values() for item in items])}
    for (state, reason, event), items in by_end.items():
        await end_letters(tx, ledger, row.operation, items, locked, event, reason, now_ms=now_ms)
        await _end_items(tx, row, items, state, reason, now_ms=now_ms)
        counts[ItemState.SENDING] -= len(items)
        counts[state] += len(items)
    await count_on(tx, row.seq, counts, now_ms=now_ms)
    await ledger.write(tx)
    return (await lock_operation(tx, id)).operation


_EVENTS = {
    ItemState.SENT: Event.CONFIRMED,
    ItemState.REFUSED: Event.REFUSED,
    ItemState.QUEUED: Event.REFUSED,
    ItemState.IN_DOUBT: Event.LOST,
}
"""What an item's end is to its dead letter."""


def _event(state: ItemState, was_in_doubt: bool) -> Event:
    """That this copy was refused says nothing about the earlier one that may be with the broker."""
    event = _EVENTS[state]
    return Event.LOST if was_in_doubt and event is Event.REFUSED else event


async def _next_queued(tx: Writing, row: OperationRow, limit: int) -> list[tuple[int, int]]:
    """(place, letter) of the next items whose contents fit into memory together; at least one."""
    queued: list[tuple[int, int]] = []
    total = 0
    for place, seq, size_bytes in await tx.rows(_QUEUED, row.seq, limit):
        total += size_bytes or 0
        if queued and total > TAKE_BYTES_MAX:
            break
        queued.append((place, seq))
    return queued


async def _claim_letters(
    tx: Writing,
    ledger: Ledger,
    row: OperationRow,
    lease: Lease,
    queued: list[tuple[int, int]],
    counts: Counter[ItemState],
    *,
    turn: int,
    now_ms: int,
) -> list[int]:
    """Makes retrying what may be, skips the rest; the numbers of the claimed."""
    places = {seq: place for place, seq in queued}
    standings = {one.seq: one for one in await lock(tx, list(places))}
    claimable: list[Standing] = []
    may_be_claimed = sources(Event.CLAIMED)
    skipped: defaultdict[str, list[int]] = defaultdict(list)
    for place, seq in queued:
        standing = standings.get(seq)
        if standing is None:
            skipped["it was deleted"].append(place)
        elif standing.status not in may_be_claimed:
            skipped[f"it is {standing.status.value}"].append(place)
        elif standing.status is Status.IN_DOUBT and not row.includes_in_doubt:
            skipped["it is in doubt now, and doubtful ones were not asked for"].append(place)
        else:
            claimable.append(standing)
    for reason, some in skipped.items():
        await tx.run(_END_ITEMS, row.seq, some, ItemState.SKIPPED.value, reason, now_ms)
        counts[ItemState.SKIPPED] += len(some)
    sets = ", redrives = redrives + 1, operation_id = $6, due_at_ms = NULL, silent_at_ms = NULL"
    moved = await move(
        tx, ledger, claimable, Event.CLAIMED, now_ms=now_ms, reason=None, sets=sets, arguments=(row.operation.id,)
    )
    for was_in_doubt in (False, True):
        these = [places[one.seq] for one in claimable if (one.status is Status.IN_DOUBT) is was_in_doubt]
        if these:
            await tx.run(_TAKE_ITEMS, row.seq, these, now_ms, lease.fence, turn, int(was_in_doubt))
    counts[ItemState.SENDING] += len(moved)
    return [one.seq for one in moved]


async def _give_out(tx: Writing, row: OperationRow, lease: Lease, seqs: list[int]) -> tuple[Claimed, ...]:
    """What to publish, in the operation's order."""
    wanted = set(seqs)
    marks = [mark for mark in await tx.rows(_SENDING_MARKS, row.seq, lease.fence) if mark[0] in wanted]
    letters = {letter[0]: tuple(letter) for letter in await tx.rows(_WHENCE, seqs)}
    contents = {
        seq: Content(properties=properties, body=body) for seq, properties, body in await tx.rows(_CONTENTS, seqs)
    }
    edited = [seq for seq, *_, is_edited in letters.values() if is_edited]
    if edited:
        for seq, properties, body in await tx.rows(_EDITED, edited):
            contents[seq] = Content(properties=properties, body=body)
    given_out = []
    for seq, letter_id, redrives, was_in_doubt in marks:
        _, vhost, queue, dlq, dlq_exchange, dlq_routing_key, attempts, _ = letters[seq]
        claimed = Claimed(
            id=letter_id,
            vhost=vhost,
            queue=queue,
            dlq=dlq,
            dlq_exchange=dlq_exchange,
            dlq_routing_key=dlq_routing_key,
            content=contents[seq],
            redrives=redrives,
            attempts=attempts,
            was_in_doubt=bool(was_in_doubt),
        )
        given_out.append(claimed)
    return tuple(given_out)


async def _end_items(
    tx: Writing, row: OperationRow, items: list[SentItem], state: ItemState, reason: str, *, now_ms: int
) -> None:
    await tx.run(_END_ITEMS, row.seq, [item.place for item in items], state.value, reason, now_ms)
