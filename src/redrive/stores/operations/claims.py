"""The next batch of an operation: which items, whether their dead letters may still be redriven, what to publish."""

from collections import defaultdict
from collections.abc import Mapping

from redrive.records import (
    ClaimedLetter,
    ItemState,
    LetterEvent,
    MessageContent,
    OperationKind,
    OperationState,
    Status,
    statuses_allowing,
)
from redrive.stores.database import WriteTransaction
from redrive.stores.leases import Lease
from redrive.stores.letters.transitions import Assignments, LockedLetter, change_status
from redrive.stores.operations.operation_rows import OperationRow, RunTransaction
from redrive.stores.operations.send_outcomes import by_silence_time

TAKE_BYTES_MAX = 32 << 20
"""A batch with larger contents is cut short: it is in memory until it is recorded."""

_QUEUED = """
SELECT i.place, i.letter_seq, l.size_bytes FROM items AS i /* INDEXED BY items_queued */
LEFT JOIN letters AS l ON l.seq = i.letter_seq
WHERE i.operation_seq = $1 AND i.state = 'queued' ORDER BY i.place LIMIT $2
"""
_OF_TURN = """
SELECT letter_seq, letter_id, redrives, was_in_doubt FROM items /* INDEXED BY items_sending */
WHERE operation_seq = $1 AND state = 'sending' AND fence = $2 AND turn = $3 ORDER BY place
"""
_TAKE_ITEMS = """
UPDATE items SET state = 'sending', reason = '', at_ms = $3, fence = $4, turn = $5, was_in_doubt = $6, redrives = $7
WHERE operation_seq = $1 AND place = ANY($2::bigint[])
"""
_SKIP_ITEMS = """
UPDATE items SET state = 'skipped', reason = $3, at_ms = $4 WHERE operation_seq = $1 AND place = ANY($2::bigint[])
"""
# Two questions that each have one answer by key; joined, PostgreSQL goes astray as long as it knows no statistics.
_WHENCE = """
SELECT seq, vhost, queue, dlq, dlq_exchange, dlq_routing_key, exchange, routing_key, attempts, is_edited FROM letters
WHERE seq = ANY($1::bigint[])
"""
_CONTENTS = "SELECT seq, properties, body FROM contents WHERE seq = ANY($1::bigint[])"
_EDITED = """
SELECT e.letter_seq, e.properties, e.body FROM edits AS e
WHERE e.seq IN (SELECT max(seq) FROM edits WHERE letter_seq = ANY($1::bigint[]) GROUP BY letter_seq)
"""


async def given_out_before(
    tx: WriteTransaction, row: OperationRow, lease: Lease, turn: int
) -> tuple[ClaimedLetter, ...]:
    """What was taken in this turn and is not recorded yet."""
    taken = [tuple(one) for one in await tx.rows(_OF_TURN, row.seq, lease.fence, turn)]
    return await _give_out(tx, row, taken) if taken else ()


async def next_queued(tx: WriteTransaction, row: OperationRow, limit: int) -> dict[int, int]:
    """Dead letter → place of the next items whose contents fit into memory together, in their order; at least one. None
    if the operation does not run."""
    queued: dict[int, int] = {}
    if row.operation.state is not OperationState.RUNNING or limit < 1:
        return queued
    total = 0
    for place, seq, size_bytes in await tx.rows(_QUEUED, row.seq, limit):
        total += size_bytes or 0
        if queued and total > TAKE_BYTES_MAX:
            break
        queued[seq] = place
    return queued


async def take_queued(
    run: RunTransaction, queued: Mapping[int, int], locked: Mapping[int, LockedLetter], *, turn: int
) -> tuple[ClaimedLetter, ...]:
    """Makes retrying what may be of `next_queued`, whose letters the caller has `locked`; skips the rest. What to
    publish, in the operation's order."""
    tx, row, now_ms = run.tx, run.row, run.now_ms
    claimable: list[LockedLetter] = []
    may_be_claimed = statuses_allowing(LetterEvent.CLAIMED)
    skipped: defaultdict[str, list[int]] = defaultdict(list)
    for seq, place in queued.items():
        letter = locked.get(seq)
        if letter is None:
            skipped["it was deleted"].append(place)
        elif letter.status not in may_be_claimed:
            skipped[f"it is {letter.status.value}"].append(place)
        elif letter.status is Status.IN_DOUBT and not row.includes_in_doubt:
            skipped["it is in doubt now, and doubtful ones were not asked for"].append(place)
        else:
            claimable.append(letter)
    for reason, some in skipped.items():
        await tx.run(_SKIP_ITEMS, row.seq, some, reason, now_ms)
        run.item_counts[ItemState.SKIPPED] += len(some)
    if not claimable:
        return ()
    sets = ", redrives = redrives + 1, operation_id = $6, due_at_ms = NULL, silent_at_ms = $7"
    if row.operation.kind is OperationKind.REDRIVE:
        # A person's redrive begins anew: when its copy comes back, auto-retry has all its attempts again.
        sets += ", forgiven = returns + 1"
    for settle_ms, these in (await by_silence_time(tx, row.operation, claimable)).items():
        arguments = (row.operation.id, None if settle_ms is None else now_ms + settle_ms)
        claiming = Assignments(sql=sets, arguments=arguments)
        await change_status(
            tx, run.count_changes, these, LetterEvent.CLAIMED, now_ms=now_ms, reason=None, sets=claiming
        )
    taken = [(one.seq, one.id, one.redrives + 1, int(one.status is Status.IN_DOUBT)) for one in claimable]
    places: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for seq, _, redrives, was_in_doubt in taken:
        places[was_in_doubt, redrives].append(queued[seq])
    for (was_in_doubt, redrives), some in places.items():
        await tx.run(_TAKE_ITEMS, row.seq, some, now_ms, run.fence, turn, was_in_doubt, redrives)
    run.item_counts[ItemState.SENDING] += len(claimable)
    return await _give_out(tx, row, taken)


async def _give_out(
    tx: WriteTransaction, row: OperationRow, taken: list[tuple[int, str, int, int]]
) -> tuple[ClaimedLetter, ...]:
    """What to publish: (number, id, redrives, whether it was in doubt) of each, with its content."""
    seqs = [one[0] for one in taken]
    letters = {letter[0]: tuple(letter) for letter in await tx.rows(_WHENCE, seqs)}
    contents = {
        seq: MessageContent(properties=properties, body=body)
        for seq, properties, body in await tx.rows(_CONTENTS, seqs)
    }
    edited = [seq for seq, *_, is_edited in letters.values() if is_edited]
    if edited:
        for seq, properties, body in await tx.rows(_EDITED, edited):
            contents[seq] = MessageContent(properties=properties, body=body)
    given_out = []
    for seq, letter_id, redrives, was_in_doubt in taken:
        _, vhost, queue, dlq, dlq_exchange, dlq_routing_key, exchange, routing_key, attempts, _ = letters[seq]
        claimed = ClaimedLetter(
            id=letter_id,
            vhost=vhost,
            queue=queue,
            dlq=dlq,
            dlq_exchange=dlq_exchange,
            dlq_routing_key=dlq_routing_key,
            exchange=exchange,
            routing_key=routing_key,
            content=contents[seq],
            redrives=redrives,
            attempts=attempts,
            was_in_doubt=bool(was_in_doubt),
            operation_id=row.operation.id,
            secret=row.secret,
        )
        given_out.append(claimed)
    return tuple(given_out)
