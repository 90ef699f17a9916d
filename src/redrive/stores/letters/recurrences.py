"""Messages that say they were redriven: which dead letter each belongs to, and what becomes of its row.

What a message says is believed as far as it is proven.

    the message                                                    becomes
    names a dead letter, and its mark proves that we sent it,      that row again (a recurrence): pending, or failed
        from the same queue, by the last redrive, of which no          when the attempts of its rule are spent
        copy came back before; and the row has not failed
    the same, but not all of the rest                              a new row, `copy_of` that one: a second copy died
    names a dead letter, and proves nothing                        a new row: somebody wrote or copied the header
    anything else                                                  a new row

A recurrence overwrites its row; what the row said before stays in its past contents and in its life. Where a dead
letter came from is known best the first time: later deaths say how its copies came there. So the row keeps its exchange
and key; its failed queue changes only if the copy was sent to another queue by name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from redrive.records import (
    Arrival,
    AuditEntry,
    Explanation,
    LetterEvent,
    RedriveTarget,
    is_same_mark,
    make_mark,
    marking_operation,
    owner_of,
    statuses_allowing,
    with_failed_queue,
)
from redrive.stores.audit import write_audit
from redrive.stores.database import WriteTransaction
from redrive.stores.groups import read_group_key
from redrive.stores.letters.counts import CountChanges
from redrive.stores.letters.incoming import IncomingLetter, count_key, overwritten_values, text_to_index
from redrive.stores.letters.letter_columns import OVERWRITTEN
from redrive.stores.letters.transitions import LockedLetter, change_status, lock_letters, record_lifecycle
from redrive.stores.message_contents import pack_history
from redrive.stores.search.full_text import forget_words, index_words

WHO = "collector"
NAMED_MAX = 100
"""So many ids one audit entry has; its count has them all."""

POISON_RECURRENCES = 3
"""One that came back so often is poison: it will come back again."""

_KEEP_PAST = """
INSERT INTO past_contents (letter_seq, at_ms, redrives, properties, body)
SELECT l.seq, $2, l.redrives, c.properties, c.body FROM letters AS l JOIN contents AS c ON c.seq = l.seq
WHERE l.seq = ANY($1::bigint[]) ORDER BY l.seq
"""
_OVERWRITE = " ".join(
    (
        "UPDATE letters SET",
        ", ".join(f"{name} = ${n}" for n, name in enumerate((*OVERWRITTEN, "returns", "is_poison", "due_at_ms"), 2)),
        ", silent_at_ms = NULL, resolved_by = NULL, is_edited = 0 WHERE seq = $1",
    )
)
_OVERWRITE_CONTENT = "UPDATE contents SET stack = $2, history = $3, properties = $4, body = $5 WHERE seq = $1"
_SEQS = "SELECT seq FROM letters WHERE id = ANY($1::text[])"
_ROWS = "SELECT seq, returns, forgiven, vhost, exchange FROM letters WHERE seq = ANY($1::bigint[])"
_BACK_ALREADY = "SELECT letter_seq, redrives FROM past_contents WHERE letter_seq = ANY($1::bigint[])"
_MARKING = """
SELECT id, secret, target_exchange, target_routing_key FROM operations
WHERE id = ANY($1::text[]) AND secret IS NOT NULL
"""


class ArrivalKind(StrEnum):
    """What a message is. The values are the audit's actions."""

    NEW = "letters.collected"
    """It names no dead letter of ours. Not audited."""
    CAME_BACK = "letters.came_back"
    COPY = "letters.copied"
    UNPROVEN = "letters.unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedArrival:
    """What an arrival is, which row it names, and why it is no more than that; the arrival as it will be stored."""

    kind: ArrivalKind
    arrival: Arrival
    letter: LockedLetter | None = None
    recurrences: int = 0
    counted: int = 0
    """The recurrences that auto-retry counts: those after the last redrive by a person."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A row whose copy died again, and what the row says from now on."""

    letter: LockedLetter
    event: LetterEvent
    incoming: IncomingLetter
    recurrences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _RedrivenRow:
    letter: LockedLetter
    recurrences: int
    forgiven: int
    vhost: str
    exchange: str


class RedrivenRows:
    """The rows that the arrivals of a batch name, locked, and the secrets of the operations that may have sent them."""

    def __init__(
        self,
        rows: dict[str, _RedrivenRow],
        back_already: set[tuple[int, int]],
        marking: dict[str, tuple[bytes, RedriveTarget]],
        group_key: bytes,
    ) -> None:
        self._group_key = group_key
        self._rows = rows
        self._back_already = back_already
        self._marking = marking

    def classify(self, arrival: Arrival) -> ClassifiedArrival:
        """What an arrival is. Only the first of a redrive is its recurrence: the next is a copy."""
        row = None if arrival.redriven_id is None else self._rows.get(arrival.redriven_id)
        if row is None:
            return ClassifiedArrival(kind=ArrivalKind.NEW, arrival=arrival)
        letter = row.letter
        target = self._proven_target(arrival)
        if target is None:
            why = "it names a dead letter, and no mark proves that we sent it"
            return ClassifiedArrival(kind=ArrivalKind.UNPROVEN, arrival=arrival, letter=letter, why=why)
        why = self._why_no_recurrence(arrival, row)
        if why:
            return ClassifiedArrival(kind=ArrivalKind.COPY, arrival=arrival, letter=letter, why=why)
        self._back_already.add((letter.seq, letter.redrives))
        return ClassifiedArrival(
            kind=ArrivalKind.CAME_BACK,
            arrival=replace(arrival, explanation=_with_known_origin(arrival.explanation, row, target, self._group_key)),
            letter=letter,
            recurrences=row.recurrences + 1,
            counted=max(row.recurrences + 1 - row.forgiven, 0),
        )

    def _proven_target(self, arrival: Arrival) -> RedriveTarget | None:
        """Where the operation sent it whose mark it bears; None if it bears no valid mark."""
        mark, letter_id = arrival.redriven_mark, arrival.redriven_id
        if mark is None or letter_id is None:
            return None
        operation_id = marking_operation(mark)
        if operation_id is None or operation_id not in self._marking:
            return None
        secret, target = self._marking[operation_id]
        expected = make_mark(
            secret,
            operation_id=operation_id,
            vhost=arrival.vhost,
            letter_id=letter_id,
            count=arrival.redriven_count,
            message_id=arrival.own_id,
            body=arrival.content.body if arrival.own_body is None else arrival.own_body,
        )
        return target if is_same_mark(mark, expected) else None

    def _why_no_recurrence(self, arrival: Arrival, row: _RedrivenRow) -> str:
        letter = row.letter
        if (row.vhost, letter.key.dlq) != (arrival.vhost, arrival.dlq):
            return "it died into another queue than the dead letter it was"
        if letter.redrives != arrival.redriven_count:
            return "its dead letter was redriven again since"
        if (letter.seq, letter.redrives) in self._back_already:
            return "another copy of the same redrive came before"
        if letter.status not in statuses_allowing(LetterEvent.CAME_BACK):
            return f"its dead letter is {letter.status.value}"
        return ""


async def look_up_redriven(tx: WriteTransaction, arrivals: Sequence[Arrival]) -> RedrivenRows:
    """Locks the rows that these arrivals name."""
    named = sorted({arrival.redriven_id for arrival in arrivals if arrival.redriven_id is not None})
    seqs = [row[0] for row in await tx.rows(_SEQS, named)] if named else []
    if not seqs:
        return RedrivenRows({}, set(), {}, b"")
    letters = {letter.seq: letter for letter in await lock_letters(tx, seqs)}
    rows = {
        letters[seq].id: _RedrivenRow(
            letter=letters[seq], recurrences=recurrences, forgiven=forgiven, vhost=vhost, exchange=exchange
        )
        for seq, recurrences, forgiven, vhost, exchange in await tx.rows(_ROWS, seqs)
        if seq in letters
    }
    back_already = {(seq, count) for seq, count in await tx.rows(_BACK_ALREADY, seqs)}
    operations = {marking_operation(arrival.redriven_mark) for arrival in arrivals}
    wanted = sorted(id for id in operations if id is not None)
    marking = {
        id: (bytes(secret), RedriveTarget(exchange=exchange, routing_key=key))
        for id, secret, exchange, key in (await tx.rows(_MARKING, wanted) if wanted else ())
    }
    return RedrivenRows(rows, back_already, marking, await read_group_key(tx))


async def apply_recurrences(
    tx: WriteTransaction,
    count_changes: CountChanges,
    recurrences: Sequence[Recurrence],
    group_seqs: dict[str, int],
    *,
    now_ms: int,
) -> None:
    """Overwrites the rows whose copies died again with what the copies say; what they said before becomes a past
    content."""
    if not recurrences:
        return
    seqs = [one.letter.seq for one in recurrences]
    await tx.run(_KEEP_PAST, seqs, now_ms)
    for event in (LetterEvent.CAME_BACK, LetterEvent.SPENT):
        these = [one for one in recurrences if one.event is event]
        if not these:
            continue
        reason = "it came back" if event is LetterEvent.CAME_BACK else "it came back, and its attempts are spent"
        moved = await change_status(
            tx, count_changes, [one.letter for one in these], event, now_ms=now_ms, reason=reason
        )
        for one, letter in zip(sorted(these, key=_by_seq), sorted(moved, key=lambda each: each.seq), strict=True):
            key = count_key(one.incoming, group_seqs[one.incoming.explanation.group_id])
            count_changes.move(letter.key, letter.status, None)
            count_changes.move(key, None, letter.status)
            count_changes.add_activity("returned", key, now_ms)
        for text, some in _by_error(these).items():
            await record_lifecycle(tx, some, event.value, now_ms=now_ms, who="", detail=text)
    await tx.many(_OVERWRITE, [_row_values(one, group_seqs) for one in recurrences])
    await tx.many(_OVERWRITE_CONTENT, [_content_values(one) for one in recurrences])
    await forget_words(tx, seqs)
    await index_words(tx, [text_to_index(one.letter.seq, one.incoming) for one in recurrences])


async def audit_recurrences(tx: WriteTransaction, classified: Iterable[ClassifiedArrival], *, now_ms: int) -> None:
    """Audits what overwrote a row, and what named a row and did not: one entry for each kind in a batch."""
    kinds: dict[tuple[ArrivalKind, str, str], list[ClassifiedArrival]] = {}
    for one in classified:
        if one.kind is not ArrivalKind.NEW:
            kinds.setdefault((one.kind, one.arrival.dlq, one.why), []).append(one)
    for (kind, dlq, why), these in kinds.items():
        named = [one.letter.id for one in these if one.letter is not None]
        detail: dict[str, object] = {"ids": named[:NAMED_MAX]}
        if kind is not ArrivalKind.CAME_BACK:
            detail = {"named": named[:NAMED_MAX], "ids": [one.arrival.id for one in these[:NAMED_MAX]]}
        entry = AuditEntry(
            at_ms=now_ms, who=WHO, action=kind.value, subject=dlq, count=len(these), why=why, detail=detail
        )
        await write_audit(tx, entry)


def _by_seq(one: Recurrence) -> int:
    return one.letter.seq


def _by_error(recurrences: Iterable[Recurrence]) -> dict[str, list[int]]:
    """Numbers of the rows by what they died of this time."""
    texts: dict[str, list[int]] = {}
    for one in recurrences:
        explanation = one.incoming.explanation
        text = explanation.error_message or explanation.error_type or explanation.reason
        texts.setdefault(text, []).append(one.letter.seq)
    return texts


def _row_values(one: Recurrence, group_seqs: dict[str, int]) -> tuple[object, ...]:
    incoming = one.incoming
    return (
        one.letter.seq,
        *overwritten_values(incoming, group_seqs[incoming.explanation.group_id]),
        one.recurrences,
        int(one.recurrences >= POISON_RECURRENCES),
        incoming.due_at_ms,
    )


def _content_values(one: Recurrence) -> tuple[object, ...]:
    incoming, content = one.incoming, one.incoming.content
    packed = pack_history(incoming.history)
    return (one.letter.seq, incoming.explanation.stack, packed, content.properties, content.body)


def _with_known_origin(
    explanation: Explanation, row: _RedrivenRow, target: RedriveTarget, group_key: bytes
) -> Explanation:
    """What a copy says of its death, with what its row knows of its origin."""
    key = row.letter.key
    queue = explanation.queue if explanation.queue == _sent_to(target, key.queue) else key.queue
    owner = explanation.owner if queue == explanation.queue else owner_of(key.dlq, queue=queue)
    explanation = replace(explanation, exchange=row.exchange, routing_key=key.topic)
    return with_failed_queue(explanation, queue, owner=owner, group_key=group_key)


def _sent_to(target: RedriveTarget, queue: str) -> str | None:
    """The one queue that the copy of a letter of this failed queue went to; None if an exchange chose."""
    if target.exchange:
        return None
    return queue if target.routing_key is None else target.routing_key.replace("{queue}", queue)
