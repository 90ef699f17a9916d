"""What the outcome of a sending means for its dead letters: confirmed, pending again, or in doubt.

And the end of the waiting: the broker gives no sign of success, so a dead letter whose copy has not come back for long
enough counts as resolved, with that reason.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from redrive.core import format_duration_ms
from redrive.records import AuditEntry, ItemState, LetterEvent, Operation, OperationKind, RetryRule, Status
from redrive.stores.audit import acting_as, write_audit
from redrive.stores.database import ReadTransaction, WriteTransaction
from redrive.stores.letters.counts import CountChanges
from redrive.stores.letters.incoming import SCHEDULE_SILENCE_CHECK
from redrive.stores.letters.letter_columns import BEING_SENT
from redrive.stores.letters.transitions import (
    LOCKED_COLUMNS,
    Assignments,
    LockedLetter,
    change_status,
    read_locked,
    record_lifecycle,
)
from redrive.stores.operations.operation_rows import RunTransaction
from redrive.stores.retry_rules import RuleBook, read_rules, rules_to_decide_by

_SILENT = " ".join(
    (
        "SELECT l.silent_at_ms - l.updated_at_ms,",
        LOCKED_COLUMNS,
        "FROM letters AS l WHERE l.seq = ANY($1::bigint[]) AND l.silent_at_ms <= $2 AND NOT",
        BEING_SENT,
        "ORDER BY l.seq FOR UPDATE OF l",
    )
)
# A process that is connected to another vhost can't see what lies there. Any process may look at deleted letters.
_OVER = """
SELECT s.silent_at_ms, s.letter_seq FROM silences AS s LEFT JOIN letters AS l ON l.seq = s.letter_seq
WHERE s.silent_at_ms <= $1 AND ($3 = '' OR l.seq IS NULL OR l.vhost = $3)
ORDER BY s.silent_at_ms, s.letter_seq LIMIT $2
"""
_NOT_COLLECTED = """
SELECT l.seq FROM letters AS l JOIN stopped_queues AS s ON s.vhost = l.vhost AND s.dlq = l.dlq
WHERE l.seq = ANY($1::bigint[]) AND l.silent_at_ms <= $2 ORDER BY l.seq
"""
_EXTEND = "UPDATE letters SET silent_at_ms = $2 WHERE seq = ANY($1::bigint[])"
_CHECK_AGAIN_MS = 60_000
_EXTEND_ONE = "UPDATE letters SET silent_at_ms = $1 WHERE seq = $2"
# Of a letter that was imported the operation is not here; it was sent where it had failed, for all we know.
_SENT_TO = " ".join(
    (
        "SELECT",
        LOCKED_COLUMNS,
        """, l.status_reason, l.queue, o.kind, o.settle_s
FROM letters AS l LEFT JOIN operations AS o ON o.id = l.operation_id
WHERE l.seq = ANY($1::bigint[]) AND l.silent_at_ms <= $2 AND l.status IN ('retrying', 'waiting')
    AND o.target_exchange IS NULL AND o.target_routing_key IS NULL AND NOT""",
        BEING_SENT,
        "ORDER BY l.seq",
    )
)
_SENT_TO_LOCKED = " ".join((_SENT_TO, "FOR UPDATE OF l"))
_WAIT_ON_MS = 300_000
_SILENCE_MS = 600_000
"""Of a letter whose operation is not known here."""
# From when it was confirmed, for as long as it was claimed with. The letter itself does not change: of all a redrive
# writes that would cost the most, since PostgreSQL has no room for it beside the row and writes every index again.
_SCHEDULE_CHECKS = """
INSERT INTO silences (silent_at_ms, letter_seq)
SELECT $2 + l.silent_at_ms - l.updated_at_ms, l.seq FROM letters AS l
WHERE l.seq = ANY($1::bigint[]) AND l.silent_at_ms IS NOT NULL
ON CONFLICT DO NOTHING
"""
_LOOKED_AT = "DELETE FROM silences WHERE silent_at_ms = $1 AND letter_seq = $2"
# The clock was set back between taking and confirming: the letter's own time is later than the one it was listed with.
_LOOK_AGAIN = """
INSERT INTO silences (silent_at_ms, letter_seq)
SELECT l.silent_at_ms, l.seq FROM letters AS l
WHERE l.seq = ANY($1::bigint[]) AND l.status IN ('retrying', 'waiting') AND l.silent_at_ms > $2
ON CONFLICT DO NOTHING
"""
_RECURRENCES = """
SELECT seq, CASE WHEN returns > forgiven THEN returns - forgiven ELSE 0 END FROM letters WHERE seq = ANY($1::bigint[])
"""
_GROUP_IDS = "SELECT seq, id, owner FROM groups WHERE seq = ANY($1::bigint[])"

_WHO = "auto-retry"
_NAMED_MAX = 100
_FORGET_SILENCE = Assignments(sql=", silent_at_ms = NULL")
_TAKEN = "its copy no longer lies in its target unconsumed"
_LIFECYCLE_EVENTS = {LetterEvent.CONFIRMED: "sent", LetterEvent.REFUSED: "refused", LetterEvent.LOST: "in doubt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentItem:
    """An item that was given out to be sent."""

    place: int
    seq: int
    redrives: int
    """Its dead letter's, when it was taken: if that has others now, this result is about an earlier copy."""


class SendOutcome(NamedTuple):
    """How a sending ended: the item's state, the event that this is for its dead letter, and why."""

    state: ItemState
    event: LetterEvent
    reason: str


async def end_letters(
    run: RunTransaction, items: list[SentItem], locked: Mapping[int, LockedLetter], outcome: SendOutcome
) -> None:
    """Applies the outcome of a sending to its dead letters, which the caller has `locked`. One that came back
    meanwhile, or was even sent again, stays as it is: it only counts as sent."""
    tx, operation, now_ms = run.tx, run.row.operation, run.now_ms
    event, reason = outcome.event, outcome.reason
    redrives = {item.seq: item.redrives for item in items}
    letters = [locked[seq] for seq in redrives if seq in locked]
    current = [one for one in letters if one.redrives == redrives[one.seq] and one.status is Status.RETRYING]
    seqs = [one.seq for one in current]
    match event:
        case LetterEvent.CONFIRMED if operation.kind is OperationKind.RESTORE:
            await _resolve_restored(tx, run.count_changes, current, operation.who, now_ms=now_ms)
        case LetterEvent.CONFIRMED:
            if seqs:
                await tx.run(_SCHEDULE_CHECKS, seqs, now_ms)
            for key, n in Counter([one.key for one in letters]).items():
                run.count_changes.add_activity("redriven", key, now_ms, n=n)
        case LetterEvent.REFUSED:
            for due_at_ms, these in (await _by_due(tx, current, now_ms=now_ms)).items():
                sets = Assignments(sql=", due_at_ms = $6, silent_at_ms = NULL", arguments=(due_at_ms,))
                await change_status(tx, run.count_changes, these, event, now_ms=now_ms, reason=reason, sets=sets)
        case _:
            await change_status(
                tx, run.count_changes, current, event, now_ms=now_ms, reason=reason, sets=_FORGET_SILENCE
            )
    name = (
        "given back"
        if operation.kind is OperationKind.RESTORE and event is LetterEvent.CONFIRMED
        else _LIFECYCLE_EVENTS[event]
    )
    await record_lifecycle(tx, seqs, name, now_ms=now_ms, who=operation.who, detail=reason, operation_id=operation.id)


async def by_silence_time(
    tx: WriteTransaction, operation: Operation, letters: list[LockedLetter]
) -> dict[int | None, list[LockedLetter]]:
    """Dead letters by how long they must stay away to count as resolved: auto-retry's by their rules. None: nobody
    waits for what is restored to its dead-letter queue."""
    if operation.kind is OperationKind.RESTORE:
        return {None: letters}
    default_ms = round(operation.settle_s * 1000)
    if operation.kind is not OperationKind.AUTO_RETRY:
        return {default_ms: letters}
    book = await read_rules(tx)
    groups = await _group_ids(tx, letters)
    sorted_out: defaultdict[int | None, list[LockedLetter]] = defaultdict(list)
    for one in letters:
        rule = _rule_for(book, one, groups)
        sorted_out[default_ms if rule is None else rule.settle_ms].append(one)
    return sorted_out


async def silent_queues(tx: ReadTransaction, *, now_ms: int, limit: int, vhost: str) -> tuple[int, frozenset[str]]:
    """How many `resolve_silent` would look at, and the queues of this vhost that their copies went to directly: what
    went through another exchange nobody can follow."""
    over = [seq for _, seq in await tx.rows(_OVER, now_ms, limit, vhost)]
    rows = await tx.rows(_SENT_TO, over, now_ms) if over else []
    return len(over), frozenset(queue for *_, queue, _, _ in rows)


async def resolve_silent(
    tx: WriteTransaction, *, now_ms: int, limit: int, vhost: str = "", waiting: Mapping[str, str] | None = None
) -> int:
    """Resolves redriven dead letters that have not come back in their time, of the `limit` that are looked at; how
    many. Those that came back, or were sent again, are not silent any more.

    `vhost`: only its dead letters. `waiting`: queues of it in which copies lie that nobody takes, with that in a
    sentence. What was sent there is not silent, it waits.
    """
    over = [tuple(row) for row in await tx.rows(_OVER, now_ms, limit, vhost)]
    if not over:
        return 0
    seqs = sorted({seq for _, seq in over})
    # Where nothing is collected nothing can come back, and silence says nothing.
    not_collected = [seq for (seq,) in await tx.rows(_NOT_COLLECTED, seqs, now_ms)]
    if not_collected:
        await tx.run(_EXTEND, not_collected, now_ms + _CHECK_AGAIN_MS)
        await tx.many(SCHEDULE_SILENCE_CHECK, [(now_ms + _CHECK_AGAIN_MS, seq) for seq in not_collected])
    count_changes = CountChanges()
    await _wait_on(tx, count_changes, seqs, waiting or {}, now_ms=now_ms)
    by_silence: defaultdict[int, list[LockedLetter]] = defaultdict(list)
    for silence_ms, *columns in await tx.rows(_SILENT, seqs, now_ms):
        by_silence[silence_ms].append(read_locked(tuple(columns)))
    resolved: list[LockedLetter] = []
    for silence_ms, letters in by_silence.items():
        reason = f"has not come back for {format_duration_ms(silence_ms)}"
        moved = await change_status(
            tx,
            count_changes,
            letters,
            LetterEvent.SILENCE,
            now_ms=now_ms,
            reason=reason,
            sets=_FORGET_SILENCE,
        )
        await record_lifecycle(tx, [one.seq for one in moved], "silence", now_ms=now_ms, who="", detail=reason)
        for one in moved:
            count_changes.add_activity("resolved", one.key, now_ms)
        resolved += moved
    await _audit(tx, "letters.settled", resolved, "they have not come back in their time", now_ms=now_ms)
    await tx.many(_LOOKED_AT, over)
    await tx.run(_LOOK_AGAIN, seqs, now_ms)
    await count_changes.write(tx)
    return len(resolved)


async def _wait_on(
    tx: WriteTransaction, count_changes: CountChanges, seqs: list[int], waiting: Mapping[str, str], *, now_ms: int
) -> None:
    """Those whose copy lies in its target wait, and are looked at again after a while; those whose copy did lie there
    and does no more are retrying again, for as long as if they had been sent now.
    """
    untaken: defaultdict[str, list[LockedLetter]] = defaultdict(list)
    taken: list[tuple[LockedLetter, str | None, float | None]] = []
    again: list[tuple[int, int]] = []
    for *columns, reason, queue, kind, settle_s in await tx.rows(_SENT_TO_LOCKED, seqs, now_ms):
        one = read_locked(tuple(columns))
        if queue in waiting:
            if one.status is not Status.WAITING or reason != waiting[queue]:
                untaken[waiting[queue]].append(one)
            again.append((now_ms + _WAIT_ON_MS, one.seq))
        elif one.status is Status.WAITING:
            taken.append((one, kind, settle_s))
    for reason, letters in untaken.items():
        # One that waits already for another reason still waits.
        new = [one for one in letters if one.status is not Status.WAITING]
        await _audit(tx, "letters.waiting", new, reason, now_ms=now_ms)
        await change_status(tx, count_changes, letters, LetterEvent.UNCONSUMED, now_ms=now_ms, reason=reason)
        await record_lifecycle(tx, [one.seq for one in letters], "waiting", now_ms=now_ms, who="", detail=reason)
    if taken:
        letters = [one for one, _, _ in taken]
        await change_status(tx, count_changes, letters, LetterEvent.CONSUMED, now_ms=now_ms, reason=_TAKEN)
        await record_lifecycle(tx, [one.seq for one in letters], "taken", now_ms=now_ms, who="", detail=_TAKEN)
        await _audit(tx, "letters.taken", letters, _TAKEN, now_ms=now_ms)
        book, groups = await read_rules(tx), await _group_ids(tx, letters)
        for one, kind, settle_s in taken:
            rule = _rule_for(book, one, groups) if kind == OperationKind.AUTO_RETRY else None
            default_ms = _SILENCE_MS if settle_s is None else round(settle_s * 1000)
            again.append((now_ms + (default_ms if rule is None else rule.settle_ms), one.seq))
    if again:
        await tx.many(_EXTEND_ONE, again)
        await tx.many(SCHEDULE_SILENCE_CHECK, again)


async def _audit(tx: WriteTransaction, action: str, letters: list[LockedLetter], why: str, *, now_ms: int) -> None:
    """One entry for all that a look did to dead letters, none if it did nothing."""
    if not letters:
        return
    queues = sorted({one.key.queue for one in letters})
    entry = AuditEntry(
        at_ms=now_ms,
        who=_WHO,
        action=action,
        subject=queues[0] if len(queues) == 1 else f"{len(queues)} queues",
        count=len(letters),
        why=why,
        detail={"ids": [one.id for one in letters[:_NAMED_MAX]], "queues": queues[:_NAMED_MAX]},
    )
    with acting_as(""):
        await write_audit(tx, entry)


async def _resolve_restored(
    tx: WriteTransaction, count_changes: CountChanges, letters: list[LockedLetter], who: str, *, now_ms: int
) -> None:
    """The messages lie in their dead-letter queues again and are nothing of ours: nobody waits for them."""
    reason = "given back to its dead-letter queue"
    sets = Assignments(sql=", silent_at_ms = NULL, resolved_by = $6", arguments=(who,))
    await change_status(tx, count_changes, letters, LetterEvent.SILENCE, now_ms=now_ms, reason=reason, sets=sets)
    for one in letters:
        count_changes.add_activity("resolved", one.key, now_ms)


async def _by_due(
    tx: WriteTransaction, letters: list[LockedLetter], *, now_ms: int
) -> dict[int | None, list[LockedLetter]]:
    """Dead letters that were not sent, by when auto-retry may try again: as if they had died now."""
    book = await rules_to_decide_by(tx)
    groups = await _group_ids(tx, letters)
    recurrences: dict[int, int] = dict(await tx.rows(_RECURRENCES, [one.seq for one in letters]))
    sorted_out: defaultdict[int | None, list[LockedLetter]] = defaultdict(list)
    for one in letters:
        rule = _rule_for(book, one, groups)
        due_at_ms = None if rule is None else rule.due_at_ms(died_at_ms=now_ms, recurrences=recurrences[one.seq])
        sorted_out[due_at_ms].append(one)
    return sorted_out


async def _group_ids(tx: WriteTransaction, letters: list[LockedLetter]) -> dict[int, tuple[str, str]]:
    """The ids of their groups, and whose those are."""
    seqs = sorted({one.key.group_seq for one in letters})
    return {seq: (id, owner) for seq, id, owner in await tx.rows(_GROUP_IDS, seqs)}


def _rule_for(book: RuleBook, one: LockedLetter, groups: dict[int, tuple[str, str]]) -> RetryRule | None:
    group_id, owner = groups[one.key.group_seq]
    return book.rule_for(one.key.queue, group_id, dlq=one.key.dlq, owner=owner)
