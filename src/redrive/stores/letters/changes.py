"""What people do to dead letters: resolve, reopen, delete, edit.

One whose copy was sent is changed only if they ask for that. A selection is frozen first, then changed in pieces, each
in a transaction of its own with its entries in the letters' lives and in the audit: an interrupted change is done for
some letters and not for others, and the audit says for which.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from redrive.records import (
    AS_TOLD_BY,
    IN_FLIGHT,
    AuditEntry,
    DeadLetter,
    LetterEvent,
    MessageContent,
    NameTerm,
    Selection,
    Status,
    statuses_allowing,
    storable,
)
from redrive.stores.audit import write_audit
from redrive.stores.database import Database, ReadTransaction, WriteTransaction
from redrive.stores.errors import StoreError, VersionConflict
from redrive.stores.letters.counts import CountChanges
from redrive.stores.letters.letter_columns import BEING_SENT
from redrive.stores.letters.letter_rows import read_letter
from redrive.stores.letters.transitions import (
    Assignments,
    LockedLetter,
    change_status,
    delete_letters,
    lock_letters,
    record_lifecycle,
)
from redrive.stores.search.budgets import SELECT_BUDGET, within_budget
from redrive.stores.search.filter_sql import split_filter, statuses_left
from redrive.stores.search.walk import find_matching

PIECE = 500
_SETS = {
    LetterEvent.RESOLVED: ", resolved_by = $6, due_at_ms = NULL, silent_at_ms = NULL",
    LetterEvent.REOPENED: ", resolved_by = NULL, due_at_ms = NULL, silent_at_ms = NULL",
}
_ACTIONS = {
    LetterEvent.RESOLVED: "letters.resolved",
    LetterEvent.REOPENED: "letters.reopened",
    LetterEvent.DELETED: "letters.deleted",
}
KEEP_EDIT = """
INSERT INTO edits (letter_seq, at_ms, who, why, diff, properties, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_MARK_EDITED = "UPDATE letters SET is_edited = 1, version = version + 1, updated_at_ms = $2 WHERE seq = $1"
_RETRYING = "it is retrying: a copy may be on its way; end the waiting (--end-waiting) to change it all the same"
_WAITING = "it is waiting: its copy lies in its target; end the waiting (--end-waiting) to change it all the same"
_BEING_SENT = "its copy is being sent at this moment; try again when its operation has gone on"
_REFUSALS = {
    Status.RETRYING: _RETRYING,
    Status.WAITING: _WAITING,
    Status.PENDING: "it is pending already",
    Status.IN_DOUBT: "it is in doubt whether its copy arrived; ask for status:in_doubt to change it",
}
_MEANWHILE = "somebody changed it meanwhile"
_SENDING = " ".join(("SELECT l.seq FROM letters AS l WHERE l.seq = ANY($1::bigint[]) AND", BEING_SENT))
_GONE = "there is no such dead letter"


class UnknownLetter(StoreError):
    """No dead letter has this id."""

    def __init__(self, letter_id: str) -> None:
        self.letter_id = letter_id
        super().__init__(f"there is no dead letter {letter_id}; list them to see which there are")


class LetterBusy(StoreError):
    """The dead letter can't be changed in its status."""

    def __init__(self, letter_id: str, reason: str) -> None:
        self.letter_id = letter_id
        self.reason = reason
        super().__init__(f"dead letter {letter_id} can't be changed: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Who changed something, why and when. `on_behalf_of`: the person whom `who` names; recorded beside `who`, never
    in its place."""

    who: str
    why: str
    now_ms: int
    on_behalf_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """How many were changed; which of the named ids were not, with the reason; and how many of the whole selection
    were not, by reason."""

    done: int
    refused: dict[str, str] = field(default_factory=dict)
    not_done: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePreview:
    """How many a change would change now, and how many of the selection it would leave as they are, by reason."""

    able: int
    not_able: dict[str, int]


async def change(
    database: Database,
    selection: Selection,
    event: LetterEvent,
    by: Attribution,
    *,
    if_version: int | None = None,
) -> ChangeResult:
    """Applies the event to the selection. `if_version` is for one id: raises VersionConflict when it has another.
    Raises FilterTooExpensive before anything is changed."""
    done = 0
    refused: dict[str, str] = {}
    if selection.ids:
        named_ids = list(dict.fromkeys(selection.ids))
        ids = named_ids[: selection.limit]
        refused |= dict.fromkeys(named_ids[len(ids) :], f"it is beyond the limit of {selection.limit}")
        for start in range(0, len(ids), PIECE):
            async with database.write() as tx:
                named = await _find(tx, ids[start : start + PIECE])
                refused |= {id: _GONE for id in ids[start : start + PIECE] if id not in named}
                letters = await lock_letters(tx, list(named.values()))
                if if_version is not None:
                    _check_version(letters, if_version)
                letters = await _sort_out(tx, letters, event, selection, refused)
                done += await _apply(tx, letters, event, by, subject="")
        return ChangeResult(done=done, refused=refused, not_done=dict(Counter(refused.values())))
    statuses = _statuses(selection, event)
    async with within_budget(SELECT_BUDGET, database, selection.filter), database.read() as reading:
        seqs = await _matching(reading, selection, statuses, by.now_ms)
        not_done = Counter(await _left_out(reading, selection, statuses, len(seqs), by.now_ms))
    for start in range(0, len(seqs), PIECE):
        async with database.write() as tx:
            piece = seqs[start : start + PIECE]
            # Somebody who changed one meanwhile has decided about it.
            locked = [each for each in await lock_letters(tx, piece) if each.status in statuses]
            sending: dict[str, str] = {}
            letters = await _sort_out(tx, locked, event, selection, sending)
            not_done.update(sending.values())
            not_done[_MEANWHILE] += len(piece) - len(locked)
            done += await _apply(tx, letters, event, by, subject=selection.filter_text or "everything")
    return ChangeResult(done=done, not_done={reason: n for reason, n in not_done.items() if n})


async def preview_change(database: Database, selection: Selection, event: LetterEvent, *, now_ms: int) -> ChangePreview:
    """What `change` would find now. Raises FilterTooExpensive."""
    async with within_budget(SELECT_BUDGET, database, selection.filter), database.read() as tx:
        if selection.ids:
            named = await _find(tx, list(dict.fromkeys(selection.ids))[: selection.limit])
            return ChangePreview(able=len(named), not_able={})
        statuses = _statuses(selection, event)
        able = len(await _matching(tx, selection, statuses, now_ms))
        return ChangePreview(able=able, not_able=await _left_out(tx, selection, statuses, able, now_ms))


async def edit(
    database: Database, id: str, content: MessageContent, by: Attribution, *, diff: str, if_version: int | None
) -> DeadLetter:
    """Another content for the copies to come; the original is kept.

    Raises UnknownLetter, LetterBusy, VersionConflict.
    """
    who, why, now_ms = by.who, by.why, by.now_ms
    async with database.write() as tx:
        letters = await lock_letters(tx, list((await _find(tx, [id])).values()))
        if not letters:
            raise UnknownLetter(id)
        if if_version is not None:
            _check_version(letters, if_version)
        seq, status = letters[0].seq, letters[0].status
        if status in IN_FLIGHT:
            raise LetterBusy(id, _REFUSALS[status])
        texts = [storable(text) for text in (who, why, diff)]
        await tx.run(KEEP_EDIT, seq, now_ms, *texts, content.properties, content.body)
        await tx.run(_MARK_EDITED, seq, now_ms)
        await record_lifecycle(tx, [seq], "edited", now_ms=now_ms, who=storable(who), detail=storable(why))
        detail = {"ids": [id], "diff": diff}
        await write_audit(
            tx, AuditEntry(at_ms=now_ms, who=who, action="letter.edited", subject=id, count=1, why=why, detail=detail)
        )
        found = await read_letter(tx, id)
    if found is None:
        raise UnknownLetter(id)
    return found[1]


def _statuses(selection: Selection, event: LetterEvent) -> tuple[Status, ...]:
    """The statuses in which the event may happen and that the selection asks for.

    Doubtful ones only when it says so, or its filter names them: they are the ones somebody should look at first.
    """
    terms = split_filter(selection.filter).conditions if selection.filter is not None else ()
    left = statuses_left(terms)
    names_doubt = any(
        isinstance(term, NameTerm) and term.field == "status" and not term.negated and Status.IN_DOUBT in term.values
        for term in terms
    )
    refused = set()
    if not selection.includes_in_doubt and not names_doubt:
        refused.add(Status.IN_DOUBT)
    if not selection.ends_waiting:
        refused.update(IN_FLIGHT)
    return tuple(status for status in statuses_allowing(event) if status.value in left and status not in refused)


async def _sort_out(
    tx: WriteTransaction,
    letters: list[LockedLetter],
    event: LetterEvent,
    selection: Selection,
    refused: dict[str, str],
) -> list[LockedLetter]:
    """The locked ones that may be changed; why not each other one is put into `refused`."""
    able = [status for status in statuses_allowing(event) if selection.ends_waiting or status not in IN_FLIGHT]
    retrying = [each.seq for each in letters if each.status is Status.RETRYING and Status.RETRYING in able]
    # Nobody can begin to send one that is locked here.
    sending = {row[0] for row in await tx.rows(_SENDING, retrying)} if retrying else set()
    changeable = []
    for each in letters:
        if each.status not in able:
            refused[each.id] = _REFUSALS.get(each.status, f"it is {each.status.value}")
        elif each.seq in sending:
            refused[each.id] = _BEING_SENT
        else:
            changeable.append(each)
    return changeable


async def _left_out(
    tx: ReadTransaction, selection: Selection, statuses: Sequence[Status], able: int, now_ms: int
) -> dict[str, int]:
    """How many a selection asks for that are in no status to be changed, by reason; no more than its limit leaves."""
    if selection.filter is None:
        return {}
    room = None if selection.limit is None else max(0, selection.limit - able)
    found: dict[str, int] = {}
    for status in Status:
        if status in statuses or room == 0:
            continue
        count = len(await find_matching(tx, selection.filter, statuses=(status,), limit=room, now_ms=now_ms))
        if count:
            found[_REFUSALS.get(status, f"it is {status.value}")] = count
            room = None if room is None else room - count
    return found


async def _matching(tx: ReadTransaction, selection: Selection, statuses: Sequence[Status], now_ms: int) -> list[int]:
    if selection.filter is None or not statuses:
        return []
    return await find_matching(tx, selection.filter, statuses=statuses, limit=selection.limit, now_ms=now_ms)


async def _find(tx: ReadTransaction, ids: list[str]) -> dict[str, int]:
    rows = await tx.rows("SELECT id, seq FROM letters WHERE id = ANY($1::text[])", [storable(id) for id in ids])
    return {row[0]: row[1] for row in rows}


def _check_version(letters: Sequence[LockedLetter], expected: int) -> None:
    for each in letters:
        if each.version != expected:
            raise VersionConflict(each.id, expected, each.version)


async def _apply(
    tx: WriteTransaction, letters: list[LockedLetter], event: LetterEvent, by: Attribution, *, subject: str
) -> int:
    """Changes locked letters that may be changed, with their lives, the counts and the audit."""
    if not letters:
        return 0
    who, why, now_ms = storable(by.who), storable(by.why), by.now_ms
    count_changes = CountChanges()
    if event is LetterEvent.DELETED:
        await delete_letters(tx, count_changes, letters)
    else:
        resolved_by = who if by.on_behalf_of is None else f"{storable(by.on_behalf_of)}{AS_TOLD_BY}{who}"
        arguments = (resolved_by,) if event is LetterEvent.RESOLVED else ()
        sets = Assignments(sql=_SETS[event], arguments=arguments)
        await change_status(tx, count_changes, letters, event, now_ms=now_ms, reason=why or None, sets=sets)
        await record_lifecycle(tx, [each.seq for each in letters], event.value, now_ms=now_ms, who=who, detail=why)
        for each in letters:
            if event is LetterEvent.RESOLVED and each.status is not Status.RESOLVED:
                count_changes.add_activity("resolved", each.key, now_ms)
    ids = [each.id for each in letters]
    entry = AuditEntry(
        at_ms=now_ms,
        who=who,
        action=_ACTIONS[event],
        subject=subject or (ids[0] if len(ids) == 1 else f"{len(ids)} dead letters"),
        count=len(ids),
        why=why,
        detail={"ids": ids} if by.on_behalf_of is None else {"ids": ids, "told_by": by.on_behalf_of},
    )
    await write_audit(tx, entry)
    await count_changes.write(tx)
    return len(ids)
