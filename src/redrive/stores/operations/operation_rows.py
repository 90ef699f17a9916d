"""Operations as rows: reading one, locking one, counting on, and ending it when nothing is left."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from redrive.records import ItemState, Operation, OperationItem, OperationKind, OperationState, RedriveTarget
from redrive.stores.database import ReadTransaction, Row, WriteTransaction
from redrive.stores.errors import UnknownOperation
from redrive.stores.letters.counts import CountChanges

COLUMNS = """
o.seq, o.id, o.kind, o.state, o.selection_text, o.target_exchange, o.target_routing_key, o.rate_per_s, o.keep_attempts,
o.ramp, o.settle_s, o.who, o.why, o.includes_in_doubt, o.request, o.total, o.sending, o.sent, o.refused, o.in_doubt,
o.skipped, o.created_at_ms, o.started_at_ms, o.ended_at_ms, o.note,
o.secret, o.queues, o.token_id
"""
_BY_ID = " ".join(("SELECT", COLUMNS, "FROM operations AS o WHERE o.id = $1"))
_BY_ID_LOCKED = " ".join((_BY_ID, "FOR UPDATE OF o"))
_COUNT = """
UPDATE operations SET sending = sending + $2, sent = sent + $3, refused = refused + $4, in_doubt = in_doubt + $5,
    skipped = skipped + $6
WHERE seq = $1
"""
# A cancelled operation stays so, whatever becomes of the last copies it had on the way.
_END = """
UPDATE operations SET state = CASE WHEN state = 'cancelled' THEN state ELSE 'done' END, ended_at_ms = $2
WHERE seq = $1 AND ended_at_ms IS NULL AND total = sent + refused + in_doubt + skipped
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """An operation with what only the store knows of it."""

    seq: int
    includes_in_doubt: bool
    request: str
    """What was asked for, shortened: equal for equal requests."""
    sending: int
    secret: bytes
    """The secret from which the marks of its copies are made; never shown."""
    operation: Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTransaction:
    """One transaction of an operation's runner, with the counts that it changes."""

    tx: WriteTransaction
    row: OperationRow
    fence: int
    now_ms: int
    count_changes: CountChanges = field(default_factory=CountChanges)
    item_counts: Counter[ItemState] = field(default_factory=Counter)

    async def write_counts(self) -> None:
        """Adds up what has changed, and ends the operation when every item has ended. The last thing it does."""
        await count_on(self.tx, self.row.seq, self.item_counts, now_ms=self.now_ms)
        await self.count_changes.write(self.tx)


def read_operation(row: Row) -> OperationRow:
    """A row of `COLUMNS`."""
    (
        seq, id, kind, state, selection_text, exchange, routing_key, rate_per_s, keep_attempts,
        ramp, settle_s, who, why, includes_in_doubt, request, total, sending, sent, refused, in_doubt,
        skipped, created_at_ms, started_at_ms, ended_at_ms, note, secret, queues, token_id,
    ) = row  # fmt: skip
    operation = Operation(
        id=id,
        kind=OperationKind(kind),
        state=OperationState(state),
        selection_text=selection_text,
        target=RedriveTarget(exchange=exchange, routing_key=routing_key),
        rate_per_s=rate_per_s,
        keep_attempts=bool(keep_attempts),
        ramp=tuple(json.loads(ramp)),
        settle_s=settle_s,
        who=who,
        why=why,
        total=total,
        sent=sent,
        refused=refused,
        in_doubt=in_doubt,
        skipped=skipped,
        created_at_ms=created_at_ms,
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
        note=note,
        queues=tuple(json.loads(queues)),
        token_id=token_id,
    )
    return OperationRow(
        seq=seq,
        includes_in_doubt=bool(includes_in_doubt),
        request=request,
        sending=sending,
        operation=operation,
        secret=b"" if secret is None else bytes(secret),
    )


def read_item(row: Row) -> OperationItem:
    """A row of (letter_id, queue, state, reason, at_ms)."""
    letter_id, queue, state, reason, at_ms = row
    return OperationItem(letter_id=letter_id, queue=queue, state=ItemState(state), reason=reason, at_ms=at_ms)


async def find_operation(tx: ReadTransaction, id: str) -> OperationRow | None:
    """The operation with this id."""
    row = await tx.row(_BY_ID, id)
    return None if row is None else read_operation(row)


async def lock_operation(tx: WriteTransaction, id: str) -> OperationRow:
    """The operation, which nobody else changes before the transaction ends. Raises `UnknownOperation`."""
    row = await tx.row(_BY_ID_LOCKED, id)
    if row is None:
        raise UnknownOperation(id)
    return read_operation(row)


async def count_on(tx: WriteTransaction, seq: int, changes: Mapping[ItemState, int], *, now_ms: int) -> None:
    """Adds to the counts of items by state, and ends the operation when every item has."""
    counted = (ItemState.SENDING, ItemState.SENT, ItemState.REFUSED, ItemState.IN_DOUBT, ItemState.SKIPPED)
    await tx.run(_COUNT, seq, *(changes.get(state, 0) for state in counted))
    await tx.run(_END, seq, now_ms)
