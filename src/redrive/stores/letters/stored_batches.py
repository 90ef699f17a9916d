"""The collector's side of the store: the messages of a batch become rows, together with the batch row that lists them.

The batch row says "these are stored, but not yet known to be acked". The collector closes the batch when it knows that
the ack has arrived. A batch that is still open after a crash tells the next session what it may meet again.

`recurrences` decides what becomes a new row, and what overwrites the row it was before.
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
    """What one collector took and stored: (fingerprint, dead letter's id) of each message."""

    id: str
    vhost: str
    dlq: str
    entries: tuple[tuple[bytes, str], ...]
    owner: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of a batch: ids of new rows, of rows that came back, and which of the new ones are further copies."""

    batch_id: str
    inserted: tuple[str, ...]
    came_back: tuple[str, ...]
    copies: tuple[str, ...]


class Batches:
    """Storing what was collected."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_batches(self, vhost: str, dlq: str) -> tuple[StoredBatch, ...]:
        """Batches of a queue that nobody has closed yet, oldest first."""
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
        """Stores arrivals and opens their batch, which also lists what is `known` (stored before, met again). The
        batches it `replaces` are closed. With a batch id that is stored already: the result of that time, and nothing
        is done. With `queue` (vhost, dlq) the batch is opened even if it lists nothing: messages are about to be taken.
        Raises `LeaseLost`."""
        async with self._database.write() as tx:
            await check_lease(tx, lease)
            done = await tx.value(_STORED, batch_id)
            if done is not None:
                return msgspec.msgpack.decode(done, type=BatchResult)
            count_changes = CountChanges()
            book = await rules_to_decide_by(tx)
            batch = await _sort_out(tx, arrivals, book)
            group_seqs = await upsert_groups(tx, batch.incoming(), batch.left_groups())
            await insert_letters(tx, count_changes, batch.new, group_seqs)
            await apply_recurrences(tx, count_changes, batch.recurrences, group_seqs, now_ms=now_ms)
            result = BatchResult(
                batch_id=batch_id,
                inserted=tuple([letter.id for letter in batch.new]),
                came_back=tuple(one.letter.id for one in batch.recurrences),
                copies=tuple(batch.copies),
            )
            await audit_recurrences(tx, batch.classified, now_ms=now_ms)
            await tx.run(_DROP_BATCHES, list(replaces))
            listed = [*known, *zip((arrival.fingerprint for arrival in arrivals), batch.row_ids, strict=True)]
            if queue is None and arrivals:
                queue = arrivals[0].vhost, arrivals[0].dlq
            await _open_batch(tx, result, listed, queue=queue, owner=lease.owner, now_ms=now_ms)
            await count_changes.write(tx)
            return result

    async def close(self, batch_id: str) -> None:
        """The ack of the batch is known to have arrived: its messages are ours alone. Twice is as good as once."""
        async with self._database.write() as tx:
            await tx.run(_DROP_BATCHES, [batch_id])

    async def stop_queue(self, vhost: str, dlq: str, reason: str, *, now_ms: int, who: str) -> None:
        """Nothing is collected from this queue until `resume_queue`."""
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
    """A batch, sorted: what becomes new rows and what overwrites old ones, each arrival's row, and which of the new
    ones are further copies."""

    new: list[IncomingLetter]
    recurrences: list[Recurrence]
    row_ids: list[str]
    copies: list[str]
    classified: list[ClassifiedArrival]

    def incoming(self) -> Iterable[IncomingLetter]:
        yield from self.new
        yield from (one.incoming for one in self.recurrences)

    def left_groups(self) -> set[int]:
        return {one.letter.key.group_seq for one in self.recurrences}


async def _sort_out(tx: WriteTransaction, arrivals: Sequence[Arrival], book: RuleBook) -> _SortedBatch:
    """Which row each arrival belongs to."""
    redriven = await look_up_redriven(tx, arrivals)
    batch = _SortedBatch(new=[], recurrences=[], row_ids=[], copies=[], classified=[])
    for arrived in arrivals:
        classified = redriven.classify(arrived)
        batch.classified.append(classified)
        arrival, row = classified.arrival, classified.letter
        explanation = arrival.explanation
        owner = explanation.owner
        if owner is None:
            owner = owner_of(arrival.dlq, queue=explanation.queue)
        rule = book.rule_for(explanation.queue, explanation.group_id, dlq=arrival.dlq, owner=owner)
        if row is None or classified.kind is not ArrivalKind.CAME_BACK:
            due_at_ms = None if rule is None else rule.due_at_ms(died_at_ms=died_at_ms(arrival), recurrences=0)
            copy_of = row.id if row is not None and classified.kind is ArrivalKind.COPY else arrival.twin_of
            batch.new.append(incoming_letter(arrival, due_at_ms=due_at_ms, copy_of=copy_of))
            if copy_of is not None:
                batch.copies.append(arrival.id)
            batch.row_ids.append(arrival.id)
            continue
        due_at_ms, event = None, LetterEvent.CAME_BACK
        if rule is not None and rule.enabled:
            due_at_ms = rule.due_at_ms(died_at_ms=died_at_ms(arrival), recurrences=classified.counted)
            event = LetterEvent.CAME_BACK if due_at_ms is not None else LetterEvent.SPENT
        incoming = incoming_letter(arrival, due_at_ms=due_at_ms, copy_of=None)
        batch.recurrences.append(
            Recurrence(letter=row, event=event, incoming=incoming, recurrences=classified.recurrences)
        )
        batch.row_ids.append(row.id)
    return batch


async def _open_batch(
    tx: WriteTransaction,
    result: BatchResult,
    listed: Sequence[tuple[bytes, str]],
    *,
    queue: tuple[str, str] | None,
    owner: str,
    now_ms: int,
) -> None:
    """Opens a batch that lists these. `queue`: None where it is that of the dead letters listed."""
    if queue is None:
        row = await tx.row(_QUEUE_OF, [id for _, id in listed]) if listed else None
        if row is None:
            # It lists nothing, or all of it was deleted meanwhile: whatever comes again is new.
            return
        queue = row[0], row[1]
    packed, outcome = msgspec.msgpack.encode(listed), msgspec.msgpack.encode(result)
    await tx.run(_INSERT_BATCH, result.batch_id, *queue, owner, now_ms, packed, outcome)


def _read_batch(row: Row) -> StoredBatch:
    id, vhost, dlq, owner, at_ms, packed = row
    entries = msgspec.msgpack.decode(packed, type=tuple[tuple[bytes, str], ...])
    return StoredBatch(id=id, vhost=vhost, dlq=dlq, entries=entries, owner=owner, at_ms=at_ms)


def _about_queue(action: str, dlq: str, reason: str, *, now_ms: int, who: str) -> AuditEntry:
    return AuditEntry(at_ms=now_ms, who=who, action=action, subject=dlq, count=0, why=reason)
