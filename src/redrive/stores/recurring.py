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
from redrive.stores.audit import note
from redrive.stores.database import WriteTransaction
from redrive.stores.groups import read_group_key
from redrive.stores.transitions import Standing, lock

WHO = "collector"
NAMED_MAX = 100
"""So many ids one audit entry has; its count has them all."""

_SEQS = "SELECT seq FROM letters WHERE id = ANY($1::text[])"
_ROWS = "SELECT seq, returns, forgiven, vhost, exchange FROM letters WHERE seq = ANY($1::bigint[])"
_BACK_ALREADY = "SELECT letter_seq, redrives FROM past_contents WHERE letter_seq = ANY($1::bigint[])"
_MARKING = """
SELECT id, secret, target_exchange, target_routing_key FROM operations
WHERE id = ANY($1::text[]) AND secret IS NOT NULL
"""


class Verdict(StrEnum):
    """What a message is; the words are the audit's."""

    NEW = "letters.collected"
    """It names no dead letter of ours. Not audited."""
    CAME_BACK = "letters.came_back"
    COPY = "letters.copied"
    UNPROVEN = "letters.unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What an arrival is, of which row, and why it is no more than that; the arrival as it is stored."""

    verdict: Verdict
    arrival: Arrival
    standing: Standing | None = None
    returns: int = 0
    counted: int = 0
    """The returns that auto-retry counts: those after that of the copy which a person sent last."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    standing: Standing
    returns: int
    forgiven: int
    vhost: str
    exchange: str


class Recurrences:
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

    def judge(self, arrival: Arrival) -> Judged:
        """What an arrival is. One that comes back is the only one of its redrive: the next is a copy."""
        row = None if arrival.redriven_id is None else self._rows.get(arrival.redriven_id)
        if row is None:
            return Judged(verdict=Verdict.NEW, arrival=arrival)
        target = self._proven_target(arrival)
        if target is None:
            why = "it names a dead letter, and no mark proves that we sent it"
            return Judged(verdict=Verdict.UNPROVEN, arrival=arrival, standing=row.standing, why=why)
        why = self._why_no_return(arrival, row)
        if why:
            return Judged(verdict=Verdict.COPY, arrival=arrival, standing=row.standing, why=why)
        standing = row.standing
        self._back_already.add((standing.seq, standing.redrives))
        return Judged(
            verdict=Verdict.CAME_BACK,
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


async def find_recurrences(tx: WriteTransaction, arrivals: Sequence[Arrival]) -> Recurrences:
    """Looks up what these arrivals name."""
    named = sorted({arrival.redriven_id for arrival in arrivals if arrival.redriven_id is not None})
    seqs = [row[0] for row in await tx.rows(_SEQS, named)] if named else []
    if not seqs:
        return Recurrences({}, set(), {}, b"")
    standings = {standing.seq: standing for standing in await lock(tx, seqs)}
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
    return Recurrences(rows, back_already, marking, await read_group_key(tx))


async def audit_recurrences(tx: WriteTransaction, judged: Iterable[Judged], *, now_ms: int) -> None:
    """Tells of what took the place of a row, and of what names one and did not: an entry for each kind in a hand."""
    kinds: dict[tuple[Verdict, str, str], list[Judged]] = {}
    for one in judged:
        if one.verdict is not Verdict.NEW:
            kinds.setdefault((one.verdict, one.arrival.dlq, one.why), []).append(one)
    for (verdict, dlq, why), these in kinds.items():
        named = [one.standing.id for one in these if one.standing is not None]
        detail: dict[str, object] = {"ids": named[:NAMED_MAX]}
        if verdict is not Verdict.CAME_BACK:
            detail = {"named": named[:NAMED_MAX], "ids": [one.arrival.id for one in these[:NAMED_MAX]]}
        entry = AuditEntry(
            at_ms=now_ms, who=WHO, action=verdict.value, subject=dlq, count=len(these), why=why, detail=detail
        )
        await note(tx, entry)


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
