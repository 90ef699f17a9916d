"""The collector's side of the store: a hand of messages becomes rows and the batch that lists them, all at once.

The batch row says "these are stored, but not yet known to be acked". It is deleted (`own`) when the ack is known to
have arrived; one that is still there after a crash tells the next session what it may meet again.

What becomes a new row and what comes back to its old one is decided in `recurring`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from redrive.records import Arrival, AuditEntry, LetterEvent, owner_of
from redrive.stores.audit import write_audit
from redrive.stores.database import Database, Row, WriteTransaction
from redrive.stores.leases import Lease, check_lease
from redrive.stores.letters.counts import CountChanges
from redrive.stores.letters.incoming import IncomingLetter, died_at_ms, incoming_letter, insert_letters, upsert_groups
from redrive.stores.letters.recurrences import (
    ArrivalKind,
    ClassifiedArrival,
    Recurrence,
    apply_recurrences,
    audit_recurrences,
    look_up_redriven,
)
from redrive.stores.retry_rules import RuleBook, rules_to_decide_by

_OPEN = "SELECT id, vhost, dlq, owner, at_ms, entries FROM batches WHERE vhost = $1 AND dlq = $2 ORDER BY at_ms, id"
_STORED = "SELECT outcome FROM batches WHERE id = $1"
_INSERT_BATCH = """
INSERT INTO batches (id, vhost, dlq, owner, at_ms, entries, outcome) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_DROP_BATCHES = "DELETE FROM batches WHERE id = ANY($1::text[])"
_QUEUE_OF = "SELECT vhost, dlq FROM letters WHERE id = ANY($1::text[])"
_STOP = """
INSERT INTO stopped_queues (vhost, dlq, reason, at_ms) VALUES ($1, $2, $3, $4)
ON CONFLICT (vhost, dlq) DO UPDATE SET reason = excluded.reason, at_ms = excluded.at_ms
"""
_RESUME = "DELETE FROM stopped_queues WHERE vhost = $1 AND dlq = $2"
_STOPPED = "SELECT vhost, dlq, reason FROM stopped_queues ORDER BY vhost, dlq"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """What one collector had in hand and stored: (fingerprint, dead letter's id) of each message."""

    id: str
    vhost: str
    dlq: str
    entries: tuple[tuple[bytes, str], ...]
    owner: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of a hand: ids of new rows, of rows that came back, and which of the new ones are further copies."""

    batch_id: str
    inserted: tuple[str, ...]
    came_back: tuple[str, ...]
    copies: tuple[str, ...]


class Batches:
    """Storing what was collected."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_batches(self, vhost: str, dlq: str) -> tuple[StoredBatch, ...]:
        """Batches of a queue that nobody has owned yet, oldest first."""
        async with self._database.read() as tx:
            return tuple(_read_batch(row) for row in await tx.rows(_OPEN, vhost, dlq))

    async def store(
        self,
        arrivals: Sequence[Arrival],
        *,
        lease: Lease,
        known: Sequence[tuple[bytes, str]] = (),
        replaces: Sequence[str] = (),
        batch_id: str,
        now_ms: int,
        queue: tuple[str, str] | None = None,
    ) -> BatchResult:
        """Stores a hand and opens its batch, which also lists what is `known` (stored before, met again). The batches
        it `replaces` are closed. With a batch id that is stored already: what was answered then, and nothing is done.
        With `queue` (vhost, dlq) the batch is opened even if it lists nothing: a hand is about to be taken.
        Raises `LeaseLost`."""
        async with self._database.write() as tx:
            await check_lease(tx, lease)
            done = await tx.value(_STORED, batch_id)
            if done is not None:
                return msgspec.msgpack.decode(done, type=BatchResult)
            count_changes = CountChanges()
            book = await rules_to_decide_by(tx)
            hand = await _sort_out(tx, arrivals, book)
            group_seqs = await upsert_groups(tx, hand.entries(), hand.left_groups())
            await insert_letters(tx, count_changes, hand.new, group_seqs)
            await apply_recurrences(tx, count_changes, hand.returned, group_seqs, now_ms=now_ms)
            stored = BatchResult(
                batch_id=batch_id,
                inserted=tuple([entry.id for entry in hand.new]),
                came_back=tuple(one.standing.id for one in hand.returned),
                copies=tuple(hand.copies),
            )
            await audit_recurrences(tx, hand.judged, now_ms=now_ms)
            await tx.run(_DROP_BATCHES, list(replaces))
            await _open_batch(tx, stored, arrivals, hand, known, queue=queue, owner=lease.owner, now_ms=now_ms)
            await count_changes.write(tx)
            return stored

    async def close(self, batch_id: str) -> None:
        """The ack of the batch is known to have arrived: its messages are ours alone. Twice is as good as once."""
        async with self._database.write() as tx:
            await tx.run(_DROP_BATCHES, [batch_id])

    async def stop_queue(self, vhost: str, dlq: str, reason: str, *, now_ms: int, who: str) -> None:
        """Nothing is collected from this queue until somebody says resume."""
        async with self._database.write() as tx:
            await tx.run(_STOP, vhost, dlq, reason, now_ms)
            await write_audit(tx, _about_queue("queue.stopped", dlq, reason, now_ms=now_ms, who=who))

    async def resume_queue(self, vhost: str, dlq: str, *, now_ms: int, who: str) -> None:
        """It may be collected again."""
        async with self._database.write() as tx:
            if await tx.run(_RESUME, vhost, dlq):
                await write_audit(tx, _about_queue("queue.resumed", dlq, "", now_ms=now_ms, who=who))

    async def stopped_queues(self) -> dict[tuple[str, str], str]:
        """Why each of the stopped queues, (vhost, dlq), was stopped."""
        async with self._database.read() as tx:
            return {(vhost, dlq): reason for vhost, dlq, reason in await tx.rows(_STOPPED)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SortedBatch:
    """A hand, sorted: what becomes new rows and what comes back to old ones, each arrival's row, and which of the new
    ones are further copies."""

    new: list[IncomingLetter]
    returned: list[Recurrence]
    row_ids: list[str]
    copies: list[str]
    judged: list[ClassifiedArrival]

    def entries(self) -> Iterable[IncomingLetter]:
        yield from self.new
        yield from (one.entry for one in self.returned)

    def left_groups(self) -> set[int]:
        return {one.standing.place.group_seq for one in self.returned}


async def _sort_out(tx: WriteTransaction, arrivals: Sequence[Arrival], book: RuleBook) -> _SortedBatch:
    """Which row each arrival belongs to."""
    recurrences = await look_up_redriven(tx, arrivals)
    hand = _SortedBatch(new=[], returned=[], row_ids=[], copies=[], judged=[])
    for arrived in arrivals:
        judged = recurrences.judge(arrived)
        hand.judged.append(judged)
        arrival, row = judged.arrival, judged.standing
        told = arrival.explanation
        owner = owner_of(arrival.dlq, queue=told.queue) if told.owner is None else told.owner
        rule = book.rule_for(told.queue, told.group_id, dlq=arrival.dlq, owner=owner)
        if row is None or judged.verdict is not ArrivalKind.CAME_BACK:
            due_at_ms = None if rule is None else rule.due_at_ms(died_at_ms=died_at_ms(arrival), returns=0)
            copy_of = row.id if row is not None and judged.verdict is ArrivalKind.COPY else arrival.twin_of
            hand.new.append(incoming_letter(arrival, due_at_ms=due_at_ms, copy_of=copy_of))
            if copy_of is not None:
                hand.copies.append(arrival.id)
            hand.row_ids.append(arrival.id)
            continue
        due_at_ms, event = None, LetterEvent.CAME_BACK
        if rule is not None and rule.enabled:
            due_at_ms = rule.due_at_ms(died_at_ms=died_at_ms(arrival), returns=judged.counted)
            event = LetterEvent.CAME_BACK if due_at_ms is not None else LetterEvent.SPENT
        entry = incoming_letter(arrival, due_at_ms=due_at_ms, copy_of=None)
        hand.returned.append(Recurrence(standing=row, event=event, entry=entry, returns=judged.returns))
        hand.row_ids.append(row.id)
    return hand


async def _open_batch(
    tx: WriteTransaction,
    stored: BatchResult,
    arrivals: Sequence[Arrival],
    hand: _SortedBatch,
    known: Sequence[tuple[bytes, str]],
    *,
    queue: tuple[str, str] | None,
    owner: str,
    now_ms: int,
) -> None:
    entries = [*known, *((arrival.fingerprint, id) for arrival, id in zip(arrivals, hand.row_ids, strict=True))]
    if not entries and queue is None:
        return
    if queue is not None:
        vhost, dlq = queue
    elif arrivals:
        vhost, dlq = arrivals[0].vhost, arrivals[0].dlq
    else:
        row = await tx.row(_QUEUE_OF, [id for _, id in known])
        if row is None:
            # All of them were deleted meanwhile: whatever comes again is new.
            return
        vhost, dlq = row
    packed, outcome = msgspec.msgpack.encode(entries), msgspec.msgpack.encode(stored)
    await tx.run(_INSERT_BATCH, stored.batch_id, vhost, dlq, owner, now_ms, packed, outcome)


def _read_batch(row: Row) -> StoredBatch:
    id, vhost, dlq, owner, at_ms, packed = row
    entries = msgspec.msgpack.decode(packed, type=tuple[tuple[bytes, str], ...])
    return StoredBatch(id=id, vhost=vhost, dlq=dlq, entries=entries, owner=owner, at_ms=at_ms)


def _about_queue(action: str, dlq: str, reason: str, *, now_ms: int, who: str) -> AuditEntry:
    return AuditEntry(at_ms=now_ms, who=who, action=action, subject=dlq, count=0, why=reason)
