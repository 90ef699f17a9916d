"""Which dead letters an operation takes, and freezing them into it.

By ids or by a filter; only those that may be claimed (`records.states`), doubtful ones only when asked for. What
arrives after this transaction is not in it.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from redrive.records import Filter, LetterEvent, Preview, Selection, Status, may_send, statuses_allowing
from redrive.stores.database import ReadTransaction, WriteTransaction
from redrive.stores.retry_rules import read_rules
from redrive.stores.search.budgets import SELECT_BUDGET, SearchBudget, reads_contents
from redrive.stores.search.walk import filter_condition, find_matching

_NO_LIMIT = 1 << 62

_FREEZE = """
INSERT INTO items (operation_seq, place, letter_seq, letter_id, queue, state, reason, at_ms, fence, turn, redrives,
    was_in_doubt)
SELECT CAST($1 AS BIGINT), row_number() OVER (ORDER BY l.dead_at_ms, l.seq), l.seq, l.id, l.queue, 'queued', '',
    CAST(NULL AS BIGINT), 0, 0, 0, 0
FROM letters AS l WHERE l.status = ANY($2::text[]) AND ({condition})
ORDER BY l.dead_at_ms, l.seq LIMIT $3
"""
_BY_QUEUE = """
SELECT queue, dlq, count(*) FROM (
    SELECT l.queue, l.dlq FROM letters AS l WHERE l.status = ANY($1::text[]) AND ({condition})
    ORDER BY l.dead_at_ms, l.seq LIMIT $2
) AS chosen GROUP BY queue, dlq ORDER BY queue, dlq
"""
_LEFT_ALONE = """
SELECT l.status, count(*) FROM letters AS l WHERE l.status <> ALL($1::text[]) AND ({condition}) GROUP BY l.status
"""
_DUE = """
SELECT l.seq FROM letters AS l
WHERE l.due_at_ms <= $1 AND l.status = 'pending' AND (CAST($3 AS TEXT) IS NULL OR l.vhost = $3)
    AND NOT EXISTS (SELECT 1 FROM items AS i WHERE i.letter_seq = l.seq AND i.state = 'queued')
ORDER BY l.due_at_ms, l.seq LIMIT $2
"""
_WHOSE = """
SELECT l.seq, l.queue, l.dlq, g.id, g.owner FROM letters AS l JOIN groups AS g ON g.seq = l.group_seq
WHERE l.seq = ANY($1::bigint[])
"""
_NOT_DUE = "UPDATE letters SET due_at_ms = NULL, version = version + 1 WHERE seq = ANY($1::bigint[])"
_BATCHES = "SELECT id, entries FROM batches"
_OF_BATCH = "SELECT letter_id FROM items WHERE operation_seq = $1 AND letter_id = ANY($2::text[])"
_SHRINK = "UPDATE batches SET entries = $2 WHERE id = $1"


def may_take_doubtful(selection: Selection) -> bool:
    """Whether doubtful ones are asked for: by their ids, or by the option."""
    return bool(selection.ids) or selection.includes_in_doubt


async def preview(tx: ReadTransaction, selection: Selection, *, now_ms: int, budget: SearchBudget) -> Preview:
    """What an operation on this selection would take now. Raises FilterTooExpensive."""
    statuses = _takes(includes_in_doubt=may_take_doubtful(selection))
    looked_up = await look_up(tx, selection, statuses=tuple(Status), limit=None, now_ms=now_ms, budget=budget)
    where = _condition(tx, selection, looked_up, now_ms=now_ms, first=3)
    limit = _NO_LIMIT if selection.limit is None else selection.limit
    rows = await tx.rows(_BY_QUEUE.replace("{condition}", where.sql), statuses, limit, *where.arguments)
    where = _condition(tx, selection, looked_up, now_ms=now_ms, first=2)
    left = await tx.rows(_LEFT_ALONE.replace("{condition}", where.sql), statuses, *where.arguments)
    by_queue: Counter[str] = Counter()
    for queue, _, count in rows:
        by_queue[queue] += count
    return Preview(
        total=by_queue.total(),
        by_queue=dict(by_queue),
        left_alone=dict(left),
        places={(queue, dlq): count for queue, dlq, count in rows},
    )


async def look_up_claimable(tx: ReadTransaction, selection: Selection, *, now_ms: int) -> list[int] | None:
    """Numbers of the letters that an operation on the selection takes, where contents must be looked into to know;
    None where not. Raises FilterTooExpensive."""
    statuses = tuple(Status(status) for status in _takes(includes_in_doubt=may_take_doubtful(selection)))
    return await look_up(tx, selection, statuses=statuses, limit=selection.limit, now_ms=now_ms, budget=SELECT_BUDGET)


async def look_up(
    tx: ReadTransaction,
    selection: Selection,
    *,
    statuses: tuple[Status, ...],
    limit: int | None,
    now_ms: int,
    budget: SearchBudget,
) -> list[int] | None:
    """The same for any statuses, within a budget."""
    if selection.ids or selection.filter is None or not reads_contents(selection.filter):
        return None
    return await find_matching(tx, selection.filter, statuses=statuses, limit=limit, now_ms=now_ms, budget=budget)


async def freeze(
    tx: WriteTransaction, operation_seq: int, selection: Selection, looked_up: list[int] | None, *, now_ms: int
) -> int:
    """Writes the selection down as the operation's items, the longest dead first; how many. `looked_up` is what
    `look_up_claimable` found, before this transaction: it may take long, and nobody can write meanwhile."""
    statuses = _takes(includes_in_doubt=may_take_doubtful(selection))
    where = _condition(tx, selection, looked_up, now_ms=now_ms, first=4)
    limit = _NO_LIMIT if selection.limit is None else selection.limit
    sql = _FREEZE.replace("{condition}", where.sql)
    return await tx.run(sql, operation_seq, statuses, limit, *where.arguments)


async def freeze_due(
    tx: WriteTransaction, operation_seq: int, *, now_ms: int, limit: int, vhost: str | None = None
) -> int:
    """Writes down what is due for auto-retry (in one vhost) and not in another operation's queue; how many."""
    seqs = await _within_rules(tx, [row[0] for row in await tx.rows(_DUE, now_ms, limit, vhost)])
    if not seqs:
        return 0
    sql = _FREEZE.replace("{condition}", "l.seq = ANY($4::bigint[])")
    return await tx.run(sql, operation_seq, [Status.PENDING.value], _NO_LIMIT, seqs)


async def _within_rules(tx: WriteTransaction, seqs: list[int]) -> list[int]:
    """Those that their rules may send. A rule of somebody who is limited to some queues counts for dead letters that
    were collected for these, and sends to these alone; what is due by no rule is not due any more."""
    book = await read_rules(tx)
    if not seqs or not any(rule.queues for rule in book.rules.values()):
        return seqs
    outside = set()
    for seq, queue, dlq, group_id, owner in await tx.rows(_WHOSE, seqs):
        rule = book.rule_for(queue, group_id, dlq=dlq, owner=owner)
        if rule is None or not may_send(rule.queues, dlq=dlq, exchange="", routing_key=queue):
            outside.add(seq)
    if outside:
        await tx.run(_NOT_DUE, sorted(outside))
    return [seq for seq in seqs if seq not in outside]


async def leave_batches(tx: WriteTransaction, operation_seq: int) -> None:
    """Takes an operation's dead letters out of the open batches: restored, they lie in their queue with the same
    bytes, and a collector that took them for those it had stored would ack what nobody has stored."""
    for id, packed in await tx.rows(_BATCHES):
        entries = msgspec.msgpack.decode(packed, type=tuple[tuple[bytes, str], ...])
        rows = await tx.rows(_OF_BATCH, operation_seq, [letter_id for _, letter_id in entries])
        taken = {row[0] for row in rows}
        if taken:
            await tx.run(_SHRINK, id, msgspec.msgpack.encode([one for one in entries if one[1] not in taken]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    sql: str
    arguments: tuple[Any, ...]


def _condition(
    tx: ReadTransaction, selection: Selection, looked_up: list[int] | None, *, now_ms: int, first: int
) -> _Where:
    """The selection in SQL; where contents were looked into, what was found."""
    if selection.ids:
        return _Where(sql=f"l.id = ANY(${first}::text[])", arguments=(list(selection.ids),))
    if looked_up is not None:
        return _Where(sql=f"l.seq = ANY(${first}::bigint[])", arguments=(looked_up,))
    asked = Filter() if selection.filter is None else selection.filter
    condition = filter_condition(asked, dialect=tx.dialect, now_ms=now_ms, first=first)
    return _Where(sql=condition.sql, arguments=condition.args)


def _takes(*, includes_in_doubt: bool) -> list[str]:
    return [
        status.value
        for status in statuses_allowing(LetterEvent.CLAIMED)
        if status is not Status.IN_DOUBT or includes_in_doubt
    ]
