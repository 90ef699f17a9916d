"""What people do to dead letters: resolve, reopen, delete, edit. Never to one whose copy may be on its way.

A selection is frozen first, then changed in pieces, each in a transaction of its own with its entries in the letters'
lives and in the audit: an interrupted change is done for some letters and not for others, and the audit says for which.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from redrive.records import AS_TOLD_BY, AuditEntry, Content, DeadLetter, Event, Named, Selection, Status, sources
from redrive.stores.arriving import clean
from redrive.stores.audit import note
from redrive.stores.database import Database, Reading, Writing
from redrive.stores.errors import StoreError, VersionConflict
from redrive.stores.evaluating import SELECTING, within
from redrive.stores.letter_rows import read_letter
from redrive.stores.questions import statuses_left, take_apart
from redrive.stores.searching import matching
from redrive.stores.tallies import Ledger
from redrive.stores.transitions import Standing, lock, move, note_life, remove

PIECE = 500
_SETS = {
    Event.RESOLVED: ", resolved_by = $6, due_at_ms = NULL, silent_at_ms = NULL",
    Event.REOPENED: ", resolved_by = NULL, due_at_ms = NULL, silent_at_ms = NULL",
}
_ACTIONS = {
    Event.RESOLVED: "letters.resolved",
    Event.REOPENED: "letters.reopened",
    Event.DELETED: "letters.deleted",
}
KEEP_EDIT = """
INSERT INTO edits (letter_seq, at_ms, who, why, diff, properties, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_MARK_EDITED = "UPDATE letters SET is_edited = 1, version = version + 1, updated_at_ms = $2 WHERE seq = $1"
_REFUSALS = {
    Status.RETRYING: "it is retrying: a copy may be on its way; wait until it has come back or settled",
    Status.PENDING: "it is pending already",
}
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
class Changed:
    """How many were changed, and which of the ids asked for were not, with the reason."""

    done: int
    refused: dict[str, str] = field(default_factory=dict)


async def change(
    database: Database,
    selection: Selection,
    event: Event,
    *,
    who: str,
    why: str,
    now_ms: int,
    if_version: int | None = None,
    told_by: str | None = None,
) -> Changed:
    """What the event makes of the selection. `if_version` is for one id: raises VersionConflict when it has another.
    Raises FilterTooDear before anything is changed.

    `told_by`: whom `who` says to have done it, kept beside `who` and never in its place.
    """
    done = 0
    refused: dict[str, str] = {}
    if selection.ids:
        ids = list(dict.fromkeys(selection.ids))[: selection.limit]
        for start in range(0, len(ids), PIECE):
            async with database.write() as tx:
                named = await _find(tx, ids[start : start + PIECE])
                refused |= {id: _GONE for id in ids[start : start + PIECE] if id not in named}
                standings = await lock(tx, list(named.values()))
                if if_version is not None:
                    _check_version(standings, if_version)
                able = sources(event)
                for each in standings:
                    if each.status not in able:
                        refused[each.id] = _REFUSALS.get(each.status, f"it is {each.status.value}")
                standings = [each for each in standings if each.status in able]
                done += await _apply(tx, standings, event, who=who, why=why, now_ms=now_ms, subject="", told_by=told_by)
        return Changed(done=done, refused=refused)
    statuses = _statuses(selection, event)
    async with within(SELECTING, database, selection.filter), database.read() as reading:
        seqs = await _matching(reading, selection, statuses, now_ms)
    for start in range(0, len(seqs), PIECE):
        async with database.write() as tx:
            # Whoever changed one meanwhile has decided about it.
            locked = await lock(tx, seqs[start : start + PIECE])
            standings = [each for each in locked if each.status in statuses]
            subject = selection.filter_text or "everything"
            done += await _apply(
                tx, standings, event, who=who, why=why, now_ms=now_ms, subject=subject, told_by=told_by
            )
    return Changed(done=done)


async def edit(
    database: Database,
    id: str,
    content: Content,
    *,
    who: str,
    why: str,
    diff: str,
    if_version: int | None,
    now_ms: int,
) -> DeadLetter:
    """Another content for the copies to come; the original is kept.

    Raises UnknownLetter, LetterBusy, VersionConflict.
    """
    async with database.write() as tx:
        standings = await lock(tx, list((await _find(tx, [id])).values()))
        if not standings:
            raise UnknownLetter(id)
        if if_version is not None:
            _check_version(standings, if_version)
        seq, status = standings[0].seq, standings[0].status
        if status is Status.RETRYING:
            raise LetterBusy(id, _REFUSALS[status])
        texts = [clean(text) for text in (who, why, diff)]
        await tx.run(KEEP_EDIT, seq, now_ms, *texts, content.properties, content.body)
        await tx.run(_MARK_EDITED, seq, now_ms)
        await note_life(tx, [seq], "edited", now_ms=now_ms, who=clean(who), detail=clean(why))
        detail = {"ids": [id], "diff": diff}
        await note(
            tx, AuditEntry(at_ms=now_ms, who=who, action="letter.edited", subject=id, count=1, why=why, detail=detail)
        )
        found = await read_letter(tx, id)
    if found is None:
        raise UnknownLetter(id)
    return found[1]


def _statuses(selection: Selection, event: Event) -> tuple[Status, ...]:
    """The statuses in which the event may happen and that the selection asks for.

    Doubtful ones only when it says so, or its filter names them: they are the ones somebody should look at first.
    """
    terms = take_apart(selection.filter).conditions if selection.filter is not None else ()
    left = statuses_left(terms)
    names_doubt = any(
        isinstance(term, Named) and term.field == "status" and not term.negated and Status.IN_DOUBT in term.values
        for term in terms
    )
    takes_doubt = selection.includes_in_doubt or names_doubt
    return tuple(
        status for status in sources(event) if status.value in left and (takes_doubt or status is not Status.IN_DOUBT)
    )


async def _matching(tx: Reading, selection: Selection, statuses: Sequence[Status], now_ms: int) -> list[int]:
    if selection.filter is None or not statuses:
        return []
    return await matching(tx, selection.filter, statuses=statuses, limit=selection.limit, now_ms=now_ms)


async def _find(tx: Reading, ids: list[str]) -> dict[str, int]:
    rows = await tx.rows("SELECT id, seq FROM letters WHERE id = ANY($1::text[])", [clean(id) for id in ids])
    return {row[0]: row[1] for row in rows}


def _check_version(standings: Sequence[Standing], expected: int) -> None:
    for each in standings:
        if each.version != expected:
            raise VersionConflict(each.id, expected, each.version)


async def _apply(
    tx: Writing,
    standings: list[Standing],
    event: Event,
    *,
    who: str,
    why: str,
    now_ms: int,
    subject: str,
    told_by: str | None = None,
) -> int:
    """Changes locked letters that may be changed, with everything that is kept of it."""
    if not standings:
        return 0
    who, why = clean(who), clean(why)
    ledger = Ledger()
    if event is Event.DELETED:
        await remove(tx, ledger, standings)
    else:
        by = who if told_by is None else f"{clean(told_by)}{AS_TOLD_BY}{who}"
        arguments = (by,) if event is Event.RESOLVED else ()
        await move(
            tx, ledger, standings, event, now_ms=now_ms, reason=why or None, sets=_SETS[event], arguments=arguments
        )
        await note_life(tx, [each.seq for each in standings], event.value, now_ms=now_ms, who=who, detail=why)
        for each in standings:
            if event is Event.RESOLVED and each.status is not Status.RESOLVED:
                ledger.happened("resolved", each.place, now_ms)
    ids = [each.id for each in standings]
    entry = AuditEntry(
        at_ms=now_ms,
        who=who,
        action=_ACTIONS[event],
        subject=subject or (ids[0] if len(ids) == 1 else f"{len(ids)} dead letters"),
        count=len(ids),
        why=why,
        detail={"ids": ids} if told_by is None else {"ids": ids, "told_by": told_by},
    )
    await note(tx, entry)
    await ledger.write(tx)
    return len(ids)
