"""Operations as people see them: asking for one, looking at it, stopping it. Running one is in `runs`.

An operation is a row and its items, frozen in the transaction that makes it. Asking twice with one idempotency key, or
with one id after an answer was lost, makes it once.
"""

import hashlib
import json
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from redrive.records import (
    MARK_SECRET_BYTES,
    AuditEntry,
    ClaimedLetter,
    ItemState,
    NewOperation,
    Operation,
    OperationItem,
    OperationKind,
    OperationState,
    Preview,
    Selection,
    SendResult,
)
from redrive.stores.audit import write_audit
from redrive.stores.cursors import read_cursor, write_cursor
from redrive.stores.database import Database, WriteTransaction
from redrive.stores.errors import IdempotencyConflict
from redrive.stores.leases import Lease
from redrive.stores.operations import runs
from redrive.stores.operations.frozen_selection import (
    freeze,
    freeze_due,
    leave_batches,
    look_up_claimable,
    may_take_doubtful,
    preview,
)
from redrive.stores.operations.operation_rows import (
    COLUMNS,
    OperationRow,
    count_on,
    find_operation,
    lock_operation,
    read_item,
    read_operation,
)
from redrive.stores.operations.send_outcomes import resolve_silent, silent_queues
from redrive.stores.retry_rules import ALL, read_rules
from redrive.stores.search.budgets import SELECT_BUDGET, VIEW_BUDGET, reads_contents, within_budget

_INSERT = """
INSERT INTO operations (id, kind, state, selection_text, target_exchange, target_routing_key, rate_per_s, keep_attempts,
    ramp, settle_s, who, why, includes_in_doubt, idempotency_key, request, total, sending, sent, refused, in_doubt,
    skipped, created_at_ms, started_at_ms, ended_at_ms, note, secret, queues, token_id)
VALUES ($1, $2, 'waiting', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, 0, 0, 0, 0, 0, $15, NULL, NULL, '',
    $16, $17, $18)
ON CONFLICT DO NOTHING
"""
_EARLIER = " ".join(("SELECT", COLUMNS, "FROM operations AS o WHERE o.id = $1 OR o.idempotency_key = $2"))
_TOTAL = "UPDATE operations SET total = $2 WHERE seq = $1"
_PAGE = """
FROM operations AS o WHERE o.seq < $1 AND (CAST($2 AS TEXT) IS NULL OR o.state = $2) ORDER BY o.seq DESC LIMIT $3
"""
_ITEMS = """
SELECT i.place, i.letter_id, i.queue, i.state, i.reason, i.at_ms FROM items AS i
WHERE i.operation_seq = $1 AND i.place > $2 AND (CAST($3 AS TEXT) IS NULL OR i.state = $3) ORDER BY i.place LIMIT $4
"""
_SET_STATE = "UPDATE operations SET state = $2, note = $3 WHERE seq = $1"
_CANCEL_ITEMS = """
UPDATE items SET state = 'skipped', reason = 'cancelled', at_ms = $2 WHERE operation_seq = $1 AND state = 'queued'
"""
_CANCEL = "UPDATE operations SET state = 'cancelled', note = $2 WHERE seq = $1"
_WAITING = """
SELECT o.id FROM operations AS o LEFT JOIN leases AS h ON h.name = 'operation:' || o.id
WHERE o.ended_at_ms IS NULL AND (o.state IN ('waiting', 'running') OR o.sending > 0)
    AND (h.name IS NULL OR h.until_ms <= {now_ms})
    AND (CAST($1 AS TEXT) IS NULL OR $1 = coalesce((
        SELECT l.vhost FROM items AS i /* INDEXED BY items_queued */ JOIN letters AS l ON l.seq = i.letter_seq
        WHERE i.operation_seq = o.seq AND i.state = 'queued' ORDER BY i.place LIMIT 1), $1))
ORDER BY o.seq
"""
_OPEN = "FROM operations AS o WHERE o.ended_at_ms IS NULL ORDER BY o.seq DESC LIMIT $1"
_PLACES = """
SELECT DISTINCT o.id, i.queue, l.dlq FROM operations AS o JOIN items AS i ON i.operation_seq = o.seq
LEFT JOIN letters AS l ON l.seq = i.letter_seq WHERE o.id = ANY($1::text[])
"""
_UNDER_WAY = """
SELECT l.id, o.id FROM letters AS l JOIN items AS i ON i.letter_seq = l.seq AND i.state = 'queued'
JOIN operations AS o ON o.seq = i.operation_seq
WHERE l.id = ANY($1::text[]) AND o.state IN ('waiting', 'running')
    AND (CAST($2 AS TEXT) IS NULL OR o.idempotency_key IS NULL OR o.idempotency_key <> $2)
ORDER BY o.seq
"""
_LARGEST = (1 << 63) - 1


class Operations:
    """Operations of the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def preview(self, selection: Selection, *, now_ms: int, is_patient: bool = False) -> Preview:
        """What an operation on this selection would take now, counted exactly. `is_patient`: the caller would wait as
        long for the operation. Raises FilterTooExpensive."""
        budget = SELECT_BUDGET if is_patient else VIEW_BUDGET
        async with within_budget(budget, self._database, selection.filter), self._database.read() as tx:
            return await preview(tx, selection, now_ms=now_ms, budget=budget)

    async def create(self, new: NewOperation, *, id: str, now_ms: int) -> Operation:
        """Makes an operation and freezes its selection. One without items is done at once. With an idempotency key (or
        an id) that was used for the same request: the earlier one.

        Raises `IdempotencyConflict`, `FilterTooExpensive`.
        """
        looked_up: list[int] | None = None
        if reads_contents(new.selection.filter):
            async with (
                within_budget(SELECT_BUDGET, self._database, new.selection.filter),
                self._database.read() as reading,
            ):
                looked_up = await look_up_claimable(reading, new.selection, now_ms=now_ms)
        async with self._database.write() as tx:
            row, is_new = await _insert(tx, new, id=id, now_ms=now_ms)
            if not is_new:
                return row.operation
            total = await freeze(tx, row.seq, new.selection, looked_up, now_ms=now_ms)
            if new.kind is OperationKind.RESTORE:
                await leave_batches(tx, row.seq)
            return await _begin(tx, row, total, now_ms=now_ms)

    async def create_due(
        self, *, id: str, who: str, now_ms: int, limit: int, vhost: str | None = None
    ) -> Operation | None:
        """An operation on what is due for auto-retry, of one vhost if one is given, longest due first; None when
        nothing is."""
        async with self._database.write() as tx:
            widest = (await read_rules(tx)).rules.get(ALL)
            new = NewOperation(
                kind=OperationKind.AUTO_RETRY,
                selection=Selection(filter_text="due"),
                who=who,
                settle_s=600.0 if widest is None else widest.settle_ms / 1000,
            )
            row, is_new = await _insert(tx, new, id=id, now_ms=now_ms)
            if not is_new:
                return row.operation
            total = await freeze_due(tx, row.seq, now_ms=now_ms, limit=limit, vhost=vhost)
            if total == 0:
                await tx.run("DELETE FROM operations WHERE seq = $1", row.seq)
                return None
            return await _begin(tx, row, total, now_ms=now_ms)

    async def get(self, id: str) -> Operation | None:
        """The operation with this id."""
        async with self._database.autocommit() as tx:
            row = await find_operation(tx, id)
        return None if row is None else row.operation

    async def page(
        self, limit: int, cursor: str | None = None, state: OperationState | None = None
    ) -> tuple[list[Operation], str | None]:
        """The newest operations first, and the cursor of the next page, if there is one."""
        before = _LARGEST if cursor is None else read_cursor("operations", cursor, sizes=(1,))[0]
        sql = " ".join(("SELECT", COLUMNS, _PAGE))
        async with self._database.autocommit() as tx:
            rows = await tx.rows(sql, before, None if state is None else state.value, limit + 1)
        found = [read_operation(row) for row in rows[:limit]]
        next_cursor = write_cursor("operations", (found[-1].seq,)) if len(rows) > limit else None
        return [row.operation for row in found], next_cursor

    async def open(self, limit: int) -> list[Operation]:
        """The newest of those that have not ended."""
        async with self._database.autocommit() as tx:
            rows = await tx.rows(" ".join(("SELECT", COLUMNS, _OPEN)), limit)
        return [read_operation(row).operation for row in rows]

    async def places(self, ids: Sequence[str]) -> dict[str, frozenset[tuple[str, str | None]]]:
        """The failed queues and dead-letter queues of each operation's dead letters; of one that is gone the failed
        queue alone. Reads every item."""
        found: defaultdict[str, set[tuple[str, str | None]]] = defaultdict(set)
        async with self._database.read() as tx:
            for id, queue, dlq in await tx.rows(_PLACES, list(ids)):
                found[id].add((queue, dlq))
        return {id: frozenset(found[id]) for id in ids}

    async def under_way(self, letter_ids: Sequence[str], *, but_for_key: str | None = None) -> dict[str, str]:
        """Of these dead letters, those that an operation will send which waits or runs, and its id. The operation with
        the idempotency key `but_for_key` is left out."""
        async with self._database.autocommit() as tx:
            rows = await tx.rows(_UNDER_WAY, list(letter_ids), but_for_key)
        return {letter: operation for letter, operation, *_ in reversed(rows)}

    async def items(
        self, id: str, limit: int, cursor: str | None = None, state: ItemState | None = None
    ) -> tuple[list[OperationItem], str | None]:
        """An operation's dead letters in the order they are sent, and the cursor of the next page."""
        after = 0 if cursor is None else read_cursor("items", cursor, sizes=(1,))[0]
        async with self._database.read() as tx:
            row = await find_operation(tx, id)
            if row is None:
                return [], None
            rows = await tx.rows(_ITEMS, row.seq, after, None if state is None else state.value, limit + 1)
        found = [read_item(tuple(one)[1:]) for one in rows[:limit]]
        return found, write_cursor("items", (rows[limit - 1][0],)) if len(rows) > limit else None

    async def claim(self, id: str, lease: Lease, *, now_ms: int) -> Operation | None:
        """See `runs.claim`."""
        async with self._database.write() as tx:
            return await runs.claim(tx, id, lease, now_ms=now_ms)

    async def take(
        self, id: str, lease: Lease, *, limit: int, now_ms: int, turn: int | None = None
    ) -> tuple[ClaimedLetter, ...]:
        """Commits the intent to send the next dead letters, and gives them out: see `runs.record_and_take`. ()
        means that nothing is queued, or that the operation does not run."""
        _, taken = await self._record_and_take(id, lease, (), limit=limit, now_ms=now_ms, turn=turn)
        return taken

    async def record(self, id: str, lease: Lease, results: Sequence[SendResult], *, now_ms: int) -> Operation:
        """Writes down how taken dead letters ended: see `runs.record_and_take`."""
        operation, _ = await self._record_and_take(id, lease, results, limit=0, now_ms=now_ms, turn=None)
        return operation

    async def record_and_take(
        self, id: str, lease: Lease, results: Sequence[SendResult], *, limit: int, now_ms: int, turn: int | None = None
    ) -> tuple[Operation, tuple[ClaimedLetter, ...]]:
        """`record` and `take` in one transaction, for a runner that has another batch on the wire meanwhile."""
        return await self._record_and_take(id, lease, results, limit=limit, now_ms=now_ms, turn=turn)

    async def silent_queues(self, *, now_ms: int, limit: int, vhost: str) -> tuple[int, frozenset[str]]:
        """See `send_outcomes.silent_queues`."""
        async with self._database.read() as tx:
            return await silent_queues(tx, now_ms=now_ms, limit=limit, vhost=vhost)

    async def resolve_silent(
        self, *, now_ms: int, limit: int, vhost: str = "", waiting: Mapping[str, str] | None = None
    ) -> int:
        """Resolves redriven dead letters that have not come back in their time; how many. See `send_outcomes`."""
        async with self._database.write() as tx:
            return await resolve_silent(tx, now_ms=now_ms, limit=limit, vhost=vhost, waiting=waiting)

    async def pause(self, id: str, text: str = "", *, now_ms: int, who: str) -> Operation:
        """Nothing more of it is taken until it is resumed; what is on the way is still recorded. An operation that has
        ended stays as it is."""
        async with self._database.write() as tx:
            row = await lock_operation(tx, id)
            if row.operation.state not in (OperationState.WAITING, OperationState.RUNNING):
                return row.operation
            await tx.run(_SET_STATE, row.seq, OperationState.PAUSED.value, text)
            await _note(tx, row.operation, "redrive.paused", who=who, why=text, now_ms=now_ms)
            return (await lock_operation(tx, id)).operation

    async def resume(self, id: str, *, now_ms: int, who: str) -> Operation:
        """A paused one waits for a runner again; any other stays as it is."""
        async with self._database.write() as tx:
            row = await lock_operation(tx, id)
            if row.operation.state is not OperationState.PAUSED:
                return row.operation
            await tx.run(_SET_STATE, row.seq, OperationState.WAITING.value, "")
            await _note(tx, row.operation, "redrive.resumed", who=who, why="", now_ms=now_ms)
            return (await lock_operation(tx, id)).operation

    async def cancel(self, id: str, *, who: str, now_ms: int, why: str = "") -> Operation:
        """Ends it: what is queued is skipped, what is on the way is still recorded. An ended one stays as it is."""
        async with self._database.write() as tx:
            row = await lock_operation(tx, id)
            if row.operation.state in (OperationState.DONE, OperationState.CANCELLED):
                return row.operation
            skipped = await tx.run(_CANCEL_ITEMS, row.seq, now_ms)
            await tx.run(_CANCEL, row.seq, f"cancelled by {who}" if who else "cancelled")
            await count_on(tx, row.seq, {ItemState.SKIPPED: skipped}, now_ms=now_ms)
            await _note(tx, row.operation, "redrive.cancelled", who=who, why=why, now_ms=now_ms)
            return (await lock_operation(tx, id)).operation

    async def waiting(self, *, vhost: str | None = None) -> tuple[str, ...]:
        """Ids of operations that need a runner: nobody has them, and something is to do, if only to say of what a dead
        runner had on the way that it is in doubt. With a `vhost` not those whose next dead letter is of another: a
        runner there would refuse it."""
        async with self._database.read() as tx:
            sql = _WAITING.replace("{now_ms}", tx.dialect.now_ms)
            return tuple(row[0] for row in await tx.rows(sql, vhost))

    async def _record_and_take(
        self, id: str, lease: Lease, results: Sequence[SendResult], *, limit: int, now_ms: int, turn: int | None
    ) -> tuple[Operation, tuple[ClaimedLetter, ...]]:
        """What is queued again by one that was cancelled meanwhile is skipped."""
        while True:
            async with self._database.write() as tx:
                operation, taken = await runs.record_and_take(
                    tx, id, lease, results, limit=limit, now_ms=now_ms, turn=turn
                )
                if operation.state is OperationState.CANCELLED and operation.left:
                    row = await lock_operation(tx, id)
                    skipped = await tx.run(_CANCEL_ITEMS, row.seq, now_ms)
                    await count_on(tx, row.seq, {ItemState.SKIPPED: skipped}, now_ms=now_ms)
                    operation = (await lock_operation(tx, id)).operation
            if taken is not None:
                return operation, taken
            results = ()


async def _insert(tx: WriteTransaction, new: NewOperation, *, id: str, now_ms: int) -> tuple[OperationRow, bool]:
    """The operation's row, and whether it is new. Two at once with one key wait for each other at its index."""
    request = hashlib.sha256(repr(replace(new, idempotency_key=None)).encode("utf-8", "replace")).hexdigest()
    selection = new.selection
    text = selection.filter_text if not selection.ids else f"{len(selection.ids)} by id"
    count = await tx.run(
        _INSERT,
        id,
        new.kind.value,
        text,
        new.target.exchange,
        new.target.routing_key,
        new.rate_per_s,
        int(new.keep_attempts),
        json.dumps(new.ramp),
        float(new.settle_s),
        new.who,
        new.why,
        int(may_take_doubtful(selection)),
        new.idempotency_key,
        request,
        now_ms,
        secrets.token_bytes(MARK_SECRET_BYTES),
        json.dumps(new.queues),
        new.token_id,
    )
    found = await tx.row(_EARLIER, id, new.idempotency_key)
    assert found is not None
    row = read_operation(found)
    if row.request != request:
        raise IdempotencyConflict(new.idempotency_key or id, row.operation.id)
    return row, count > 0


async def _begin(tx: WriteTransaction, row: OperationRow, total: int, *, now_ms: int) -> Operation:
    await tx.run(_TOTAL, row.seq, total)
    await count_on(tx, row.seq, {}, now_ms=now_ms)
    made = (await lock_operation(tx, row.operation.id)).operation
    await _note(tx, made, f"{made.kind.value}.created", who=made.who, why=made.why, now_ms=now_ms)
    return made


async def _note(tx: WriteTransaction, operation: Operation, action: str, *, who: str, why: str, now_ms: int) -> None:
    entry = AuditEntry(
        at_ms=now_ms,
        who=who,
        action=action,
        subject=operation.id,
        count=operation.total,
        why=why,
        detail=_detail(operation),
    )
    await write_audit(tx, entry)


def _detail(operation: Operation) -> dict[str, object]:
    """What was selected, where its copies go, and what its sender is limited to."""
    target = operation.target
    detail: dict[str, object] = {"selection": operation.selection_text}
    if operation.kind is OperationKind.RESTORE:
        return {**detail, "target": "the dead-letter queues they came from"}
    if target.exchange is None:
        detail["target"] = "the failed queue" if target.routing_key is None else target.routing_key
    else:
        detail["target"] = {"exchange": target.exchange, "routing_key": target.routing_key}
    if operation.token_id:
        detail["token"] = operation.token_id
    if operation.queues:
        detail["queues"] = list(operation.queues)
    return detail
