"""Running an operation: claim it, take a batch, send it, record how it ended. The runner holds `operation:<id>`.

    item      queued ──take──▶ sending ──record──▶ sent | refused | in_doubt | queued again
    letter    pending|failed|in_doubt ─▶ retrying ─▶ (stays) | pending | in_doubt | pending

Taking commits the intent before anything is sent. A runner that is gone leaves `sending` items; the next one, under a
higher fence, can't know what became of them: `claim` makes them in doubt. A runner whose take was not answered has
sent nothing of it: it asks again with the same `turn` and gets the same items. Without a turn, or if it dies, they end
in doubt too; in no case is one given out a second time as if it were the first.
"""

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from redrive.records import (
    MARK_SECRET_BYTES,
    ClaimedLetter,
    ItemState,
    LetterEvent,
    Operation,
    OperationState,
    SendResult,
)
from redrive.stores.database import WriteTransaction
from redrive.stores.leases import Lease, check_lease
from redrive.stores.letters.transitions import LockedLetter, lock_letters
from redrive.stores.operations.claims import given_out_before, next_queued, take_queued
from redrive.stores.operations.operation_rows import OperationRow, RunTransaction, lock_operation
from redrive.stores.operations.send_outcomes import SendOutcome, SentItem, end_letters

_STALE = """
SELECT place, letter_seq, redrives FROM items /* INDEXED BY items_sending */
WHERE operation_seq = $1 AND state = 'sending' AND fence <> $2 ORDER BY place
"""
_START = """
UPDATE operations SET state = 'running', started_at_ms = coalesce(started_at_ms, $2), note = '',
    secret = coalesce(secret, $3)
WHERE seq = $1
"""
_SENDING = """
SELECT place, letter_seq, letter_id, redrives, was_in_doubt FROM items /* INDEXED BY items_sending */
WHERE operation_seq = $1 AND state = 'sending' AND fence = $2 ORDER BY place
"""
_END_ITEMS = (
    "UPDATE items SET state = $3, reason = $4, at_ms = $5 WHERE operation_seq = $1 AND place = ANY($2::bigint[])"
)

_Ends: TypeAlias = dict[tuple[ItemState, LetterEvent, str], list[SentItem]]

_SENDER_GONE = SendOutcome(
    state=ItemState.IN_DOUBT,
    event=LetterEvent.LOST,
    reason="its sender was gone before it could say whether the broker has it",
)


async def claim(tx: WriteTransaction, id: str, lease: Lease, *, now_ms: int) -> Operation | None:
    """Begins to run, or goes on where another runner stopped: what that had on the way is in doubt now. None if the
    operation is paused or has ended. Raises `LeaseLost`, `UnknownOperation`."""
    await check_lease(tx, lease)
    row = await lock_operation(tx, id)
    stale = await tx.rows(_STALE, row.seq, lease.fence)
    if stale:
        run = RunTransaction(tx=tx, row=row, fence=lease.fence, now_ms=now_ms)
        items = [SentItem(place=place, seq=seq, redrives=redrives) for place, seq, redrives in stale]
        locked = {one.seq: one for one in await lock_letters(tx, [item.seq for item in items])}
        await _end_items(run, items, locked, _SENDER_GONE)
        await run.write_counts()
        row = await lock_operation(tx, id)
    if row.operation.state not in (OperationState.WAITING, OperationState.RUNNING):
        return None
    await tx.run(_START, row.seq, now_ms, secrets.token_bytes(MARK_SECRET_BYTES))
    return (await lock_operation(tx, id)).operation


async def record_and_take(
    tx: WriteTransaction,
    id: str,
    lease: Lease,
    results: Sequence[SendResult],
    *,
    limit: int,
    now_ms: int,
    turn: int | None = None,
) -> tuple[Operation, tuple[ClaimedLetter, ...] | None]:
    """Records how taken dead letters ended, and takes the next, up to `limit`: one transaction for both, since each
    costs the disk a commit. The operation as it is then, ended when nothing is left; and what to publish.

    Results that are recorded already are passed over. With a `turn` (> 0, another for each batch) that was taken before
    and is not recorded yet: the same again. () when none is queued, or the operation does not run. Items whose dead
    letter can't be redriven any more are skipped; None when all of these were, and the next are for another
    transaction: one that locks twice could lock out another. Raises `LeaseLost`, `UnknownOperation`.
    """
    await check_lease(tx, lease)
    row = await lock_operation(tx, id)
    ends = await _ends(tx, row, lease, results) if results else {}
    again = await given_out_before(tx, row, lease, turn) if turn is not None and limit > 0 else ()
    queued = {} if again else await next_queued(tx, row, limit)
    if not ends and not queued:
        return row.operation, again
    run = RunTransaction(tx=tx, row=row, fence=lease.fence, now_ms=now_ms)
    # Rows are locked once and in order; what becomes of each follows.
    ended = [item.seq for items in ends.values() for item in items]
    locked = {one.seq: one for one in await lock_letters(tx, [*ended, *queued])}
    for ended_as, items in ends.items():
        await _end_items(run, items, locked, SendOutcome(*ended_as))
    taken = again
    if queued:
        taken = await take_queued(run, queued, locked, turn=0 if turn is None else turn)
    await run.write_counts()
    operation = (await lock_operation(tx, id)).operation
    return operation, None if queued and not taken else taken


_EVENTS = {
    ItemState.SENT: LetterEvent.CONFIRMED,
    ItemState.REFUSED: LetterEvent.REFUSED,
    ItemState.QUEUED: LetterEvent.REFUSED,
    ItemState.IN_DOUBT: LetterEvent.LOST,
}
"""What an item's end is to its dead letter."""


def _event(state: ItemState, was_in_doubt: bool) -> LetterEvent:
    """That this copy was refused says nothing about the earlier one that may be with the broker."""
    event = _EVENTS[state]
    return LetterEvent.LOST if was_in_doubt and event is LetterEvent.REFUSED else event


async def _ends(tx: WriteTransaction, row: OperationRow, lease: Lease, results: Sequence[SendResult]) -> _Ends:
    """The items of these results that are being sent, by how they ended."""
    sending = {
        letter_id: (SentItem(place=place, seq=seq, redrives=redrives), bool(was_in_doubt))
        for place, seq, letter_id, redrives, was_in_doubt in await tx.rows(_SENDING, row.seq, lease.fence)
    }
    ends: _Ends = defaultdict(list)
    for result in results:
        if result.id in sending:
            item, was_in_doubt = sending.pop(result.id)
            ends[result.state, _event(result.state, was_in_doubt), result.reason].append(item)
    return ends


async def _end_items(
    run: RunTransaction, items: list[SentItem], locked: Mapping[int, LockedLetter], outcome: SendOutcome
) -> None:
    """Ends items, with what that means for their dead letters, which the caller has `locked`."""
    await end_letters(run, items, locked, outcome)
    places = [item.place for item in items]
    await run.tx.run(_END_ITEMS, run.row.seq, places, outcome.state.value, outcome.reason, run.now_ms)
    run.item_counts[ItemState.SENDING] -= len(items)
    run.item_counts[outcome.state] += len(items)
