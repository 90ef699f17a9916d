"""Which dead letter a message that says it was redriven belongs to. What it says is believed as far as it is proven.

    the message                                                    becomes
    names a dead letter, and its mark proves that we sent it,      that row again: pending, or failed when the attempts
        from the same queue, by the last redrive, of which no          of its rule are spent
        copy came back before; and the row has not failed
    the same, but not all of the rest                              a new row, `copy_of` that one: a second copy died
    names a dead letter, and proves nothing                        a new row: somebody wrote or copied the header
    anything else                                                  a new row

Where a dead letter came from is known best the first time: later deaths tell how its copies came there. So a row that
comes back keeps its exchange and key; its failed queue changes only if the copy was sent to another by name.
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
from redrive.stores.letters.incoming import IncomingLetter, count_key, explained_values, text_to_index
from redrive.stores.letters.transitions import LockedLetter, change_status, lock_letters, record_life
from redrive.stores.message_contents import pack_history
from redrive.stores.search.full_text import forget_words, index_words

WHO = "collector"
NAMED_MAX = 100
"""So many ids one audit entry has; its count has them all."""

RETURNS_OF_POISON = 3
"""One that came back so often will come back again."""

_KEEP_PAST = """
INSERT INTO past_contents (letter_seq, at_ms, redrives, properties, body)
SELECT l.seq, $2, l.redrives, c.properties, c.body FROM letters AS l JOIN contents AS c ON c.seq = l.seq
WHERE l.seq = ANY($1::bigint[]) ORDER BY l.seq
"""
_TELL_ANEW = """
UPDATE letters SET vhost = $2, dlq = $3, dlq_exchange = $4, dlq_routing_key = $5, queue = $6, exchange = $7,
    routing_key = $8, reason = $9, told_by = $10, error_type = $11, error_message = $12, status_code = $13,
    attempts = $14, message_id = $15, correlation_id = $16, type = $17, service = $18, error_folded = $19,
    group_seq = $20, size_bytes = $21, dead_at_ms = $22, returns = $23, is_poison = $24, due_at_ms = $25,
    silent_at_ms = NULL, resolved_by = NULL, is_edited = 0
WHERE seq = $1
"""
_NEW_CONTENT = "UPDATE contents SET stack = $2, history = $3, properties = $4, body = $5 WHERE seq = $1"
_SEQS = "SELECT seq FROM letters WHERE id = ANY($1::text[])"
_ROWS = "SELECT seq, returns, forgiven, vhost, exchange FROM letters WHERE seq = ANY($1::bigint[])"
_BACK_ALREADY = "SELECT letter_seq, redrives FROM past_contents WHERE letter_seq = ANY($1::bigint[])"
_MARKING = """
SELECT id, secret, target_exchange, target_routing_key FROM operations
WHERE id = ANY($1::text[]) AND secret IS NOT NULL
"""


class ArrivalKind(StrEnum):
    """What a message is; the words are the audit's."""

    NEW = "letters.collected"
    """It names no dead letter of ours. Not audited."""
    CAME_BACK = "letters.came_back"
    COPY = "letters.copied"
    UNPROVEN = "letters.unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedArrival:
    """What an arrival is, of which row, and why it is no more than that; the arrival as it is stored."""

    verdict: ArrivalKind
    arrival: Arrival
    standing: LockedLetter | None = None
    returns: int = 0
    counted: int = 0
    """The returns that auto-retry counts: those after that of the copy which a person sent last."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    standing: LockedLetter
    returns: int
    forgiven: int
    vhost: str
    exchange: str


class RedrivenRows:
    """The rows that a hand's arrivals name, locked, and the secrets of the operations that may have sent them."""

    def __init__(
        self,
        rows: dict[str, _Row],
        back_already: set[tuple[int, int]],
        marking: dict[str, tuple[bytes, RedriveTarget]],
        group_key: bytes,
    ) -> None:
        self._group_key = group_key
        self._rows = rows
        self._back_already = back_already
        self._marking = marking

    def judge(self, arrival: Arrival) -> ClassifiedArrival:
        """What an arrival is. One that comes back is the only one of its redrive: the next is a copy."""
        row = None if arrival.redriven_id is None else self._rows.get(arrival.redriven_id)
        if row is None:
            return ClassifiedArrival(verdict=ArrivalKind.NEW, arrival=arrival)
        target = self._proven_target(arrival)
        if target is None:
            why = "it names a dead letter, and no mark proves that we sent it"
            return ClassifiedArrival(verdict=ArrivalKind.UNPROVEN, arrival=arrival, standing=row.standing, why=why)
        why = self._why_no_return(arrival, row)
        if why:
            return ClassifiedArrival(verdict=ArrivalKind.COPY, arrival=arrival, standing=row.standing, why=why)
        standing = row.standing
        self._back_already.add((standing.seq, standing.redrives))
        return ClassifiedArrival(
            verdict=ArrivalKind.CAME_BACK,
            arrival=replace(arrival, explanation=_as_known(arrival.explanation, row, target, self._group_key)),
            standing=standing,
            returns=row.returns + 1,
            counted=max(row.returns + 1 - row.forgiven, 0),
        )

    def _proven_target(self, arrival: Arrival) -> RedriveTarget | None:
        """Where the operation sent it whose mark it rightly bears; None if it bears none."""
        mark, letter_id = arrival.redriven_mark, arrival.redriven_id
        if mark is None or letter_id is None:
            return None
        operation_id = marking_operation(mark)
        if operation_id is None or operation_id not in self._marking:
            return None
        secret, target = self._marking[operation_id]
        right = make_mark(
            secret,
            operation_id=operation_id,
            vhost=arrival.vhost,
            letter_id=letter_id,
            count=arrival.redriven_count,
            message_id=arrival.own_id,
            body=arrival.content.body if arrival.own_body is None else arrival.own_body,
        )
        return target if is_same_mark(mark, right) else None

    def _why_no_return(self, arrival: Arrival, row: _Row) -> str:
        standing = row.standing
        if (row.vhost, standing.place.dlq) != (arrival.vhost, arrival.dlq):
            return "it died into another queue than the dead letter it was"
        if standing.redrives != arrival.redriven_count:
            return "its dead letter was redriven again since"
        if (standing.seq, standing.redrives) in self._back_already:
            return "another copy of the same redrive came before"
        if standing.status not in statuses_allowing(LetterEvent.CAME_BACK):
            return f"its dead letter is {standing.status.value}"
        return ""


async def look_up_redriven(tx: WriteTransaction, arrivals: Sequence[Arrival]) -> RedrivenRows:
    """Looks up what these arrivals name."""
    named = sorted({arrival.redriven_id for arrival in arrivals if arrival.redriven_id is not None})
    seqs = [row[0] for row in await tx.rows(_SEQS, named)] if named else []
    if not seqs:
        return RedrivenRows({}, set(), {}, b"")
    standings = {standing.seq: standing for standing in await lock_letters(tx, seqs)}
    rows = {
        standings[seq].id: _Row(
            standing=standings[seq], returns=returns, forgiven=forgiven, vhost=vhost, exchange=exchange
        )
        for seq, returns, forgiven, vhost, exchange in await tx.rows(_ROWS, seqs)
        if seq in standings
    }
    back_already = {(seq, count) for seq, count in await tx.rows(_BACK_ALREADY, seqs)}
    operations = {marking_operation(arrival.redriven_mark) for arrival in arrivals}
    wanted = sorted(id for id in operations if id is not None)
    marking = {
        id: (bytes(secret), RedriveTarget(exchange=exchange, routing_key=key))
        for id, secret, exchange, key in (await tx.rows(_MARKING, wanted) if wanted else ())
    }
    return RedrivenRows(rows, back_already, marking, await read_group_key(tx))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A row whose copy died again, and what its row says from now on."""

    standing: LockedLetter
    event: LetterEvent
    entry: IncomingLetter
    returns: int


async def audit_recurrences(tx: WriteTransaction, judged: Iterable[ClassifiedArrival], *, now_ms: int) -> None:
    """Tells of what took the place of a row, and of what names one and did not: an entry for each kind in a hand."""
    kinds: dict[tuple[ArrivalKind, str, str], list[ClassifiedArrival]] = {}
    for one in judged:
        if one.verdict is not ArrivalKind.NEW:
            kinds.setdefault((one.verdict, one.arrival.dlq, one.why), []).append(one)
    for (verdict, dlq, why), these in kinds.items():
        named = [one.standing.id for one in these if one.standing is not None]
        detail: dict[str, object] = {"ids": named[:NAMED_MAX]}
        if verdict is not ArrivalKind.CAME_BACK:
            detail = {"named": named[:NAMED_MAX], "ids": [one.arrival.id for one in these[:NAMED_MAX]]}
        entry = AuditEntry(
            at_ms=now_ms, who=WHO, action=verdict.value, subject=dlq, count=len(these), why=why, detail=detail
        )
        await write_audit(tx, entry)


async def apply_recurrences(
    tx: WriteTransaction,
    count_changes: CountChanges,
    returned: Sequence[Recurrence],
    group_seqs: dict[str, int],
    *,
    now_ms: int,
) -> None:
    """Rows whose copies died again: what they said joins the past, what the copy says takes its place."""
    if not returned:
        return
    seqs = [one.standing.seq for one in returned]
    await tx.run(_KEEP_PAST, seqs, now_ms)
    for event in (LetterEvent.CAME_BACK, LetterEvent.SPENT):
        these = [one for one in returned if one.event is event]
        if not these:
            continue
        reason = "it came back" if event is LetterEvent.CAME_BACK else "it came back, and its attempts are spent"
        moved = await change_status(
            tx, count_changes, [one.standing for one in these], event, now_ms=now_ms, reason=reason
        )
        for one, standing in zip(sorted(these, key=_by_seq), sorted(moved, key=lambda each: each.seq), strict=True):
            place = count_key(one.entry, group_seqs[one.entry.told.group_id])
            count_changes.moved(standing.place, standing.status, None)
            count_changes.moved(place, None, standing.status)
            count_changes.happened("returned", place, now_ms)
        for text, some in _by_error(these).items():
            await record_life(tx, some, event.value, now_ms=now_ms, who="", detail=text)
    await tx.many(_TELL_ANEW, [_row_anew(one, group_seqs) for one in returned])
    await tx.many(_NEW_CONTENT, [_content_anew(one) for one in returned])
    await forget_words(tx, seqs)
    await index_words(tx, [text_to_index(one.standing.seq, one.entry) for one in returned])


def _by_seq(one: Recurrence) -> int:
    return one.standing.seq


def _by_error(returned: Iterable[Recurrence]) -> dict[str, list[int]]:
    """Numbers of the rows by what they died of this time."""
    texts: dict[str, list[int]] = {}
    for one in returned:
        told = one.entry.told
        texts.setdefault(told.error_message or told.error_type or told.reason, []).append(one.standing.seq)
    return texts


def _row_anew(one: Recurrence, group_seqs: dict[str, int]) -> tuple[object, ...]:
    entry = one.entry
    return (
        one.standing.seq,
        *explained_values(entry, group_seqs[entry.told.group_id]),
        one.returns,
        int(one.returns >= RETURNS_OF_POISON),
        entry.due_at_ms,
    )


def _content_anew(one: Recurrence) -> tuple[object, ...]:
    content = one.entry.content
    packed = pack_history(one.entry.history)
    return (one.standing.seq, one.entry.told.stack, packed, content.properties, content.body)


def _as_known(told: Explanation, row: _Row, target: RedriveTarget, group_key: bytes) -> Explanation:
    """What a copy tells of its death, with what its row knows of its origin."""
    place = row.standing.place
    queue = told.queue if told.queue == _sent_to(target, place.queue) else place.queue
    owner = told.owner if queue == told.queue else owner_of(place.dlq, queue=queue)
    told = replace(told, exchange=row.exchange, routing_key=place.topic)
    return with_failed_queue(told, queue, owner=owner, group_key=group_key)


def _sent_to(target: RedriveTarget, queue: str) -> str | None:
    """The one queue that the copy of a letter of this failed queue went to; None if an exchange chose."""
    if target.exchange:
        return None
    return queue if target.routing_key is None else target.routing_key.replace("{queue}", queue)
