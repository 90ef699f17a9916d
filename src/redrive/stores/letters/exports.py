"""Export and import: dead letters with everything that is known of them, out of one store and into another.

Lossless: an import stores what was exported, under the same ids. Operations and rules
are not exported: a letter that was being sent becomes in doubt, and one is due only by a rule of this store.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redrive.core import Attempt
from redrive.records import (
    AuditEntry,
    DeadLetter,
    Filter,
    LifecycleEntry,
    MessageContent,
    Status,
    owner_of,
    search_text,
    storable,
)
from redrive.stores.audit import write_audit
from redrive.stores.database import Database, ReadTransaction, WriteTransaction
from redrive.stores.letters.changes import KEEP_EDIT
from redrive.stores.letters.counts import CountChanges
from redrive.stores.letters.incoming import incoming_from_export, insert_letters, upsert_groups
from redrive.stores.letters.letter_columns import text_fields
from redrive.stores.letters.letter_rows import read_letters
from redrive.stores.message_contents import headers_of, unpack_history, unwrap_envelope
from redrive.stores.retry_rules import RuleBook, rules_to_decide_by
from redrive.stores.search.walk import Key, start_walk

PIECE = 200
_TEXTS = text_fields(DeadLetter)
BYTES_MAX = 16 << 20
_SIZES = "SELECT seq, size_bytes FROM letters WHERE seq = ANY($1::bigint[])"
_CONTENTS = "SELECT seq, history, properties, body FROM contents WHERE seq = ANY($1::bigint[])"
_PAST = """
SELECT letter_seq, at_ms, redrives, properties, body FROM past_contents
WHERE letter_seq = ANY($1::bigint[]) ORDER BY seq
"""
_EDITS = """
SELECT letter_seq, at_ms, who, why, diff, properties, body FROM edits WHERE letter_seq = ANY($1::bigint[]) ORDER BY seq
"""
_LIVES = """
SELECT letter_seq, version, at_ms, event, who, detail, operation_id FROM happenings
WHERE letter_seq = ANY($1::bigint[]) ORDER BY letter_seq, version
"""
_TITLES = """
SELECT l.seq, g.title FROM letters AS l JOIN groups AS g ON g.seq = l.group_seq WHERE l.seq = ANY($1::bigint[])
"""
_KEEP_EARLIER = "INSERT INTO past_contents (letter_seq, at_ms, redrives, properties, body) VALUES ($1, $2, $3, $4, $5)"
_KEEP_LIFECYCLE = """
INSERT INTO happenings (letter_seq, version, at_ms, event, who, detail, operation_id)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierContent:
    """What a dead letter was before it came back: after how many redrives, and until when."""

    at_ms: int
    redrives: int
    content: MessageContent


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEdit:
    """Another content somebody gave it."""

    at_ms: int
    who: str
    why: str
    diff: str
    content: MessageContent


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedLetter:
    """A dead letter and everything about it. `content` is the original; the last of `edits` counts."""

    letter: DeadLetter
    content: MessageContent
    history: tuple[Attempt, ...]
    earlier_contents: tuple[EarlierContent, ...]
    edits: tuple[ExportedEdit, ...]
    lifecycle: tuple[tuple[int, LifecycleEntry], ...]
    """What happened, each with the version it led to."""
    group_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """How many came in, and how many were there already and were left as they are."""

    inserted: int
    skipped: int


async def export(database: Database, filter: Filter, *, now_ms: int) -> AsyncIterator[ExportedLetter]:
    """Everything that answers the filter, in pieces that fit into memory, each from one state of the database.

    No transaction is open between two pieces, so a slow reader holds nobody up.
    """
    after: Key | None = None
    is_searched: bool | None = None
    while True:
        async with database.read() as tx:
            walk = await start_walk(tx, filter, now_ms=now_ms, newest_first=False, is_searched=is_searched)
            is_searched = walk.is_searched
            step = await walk.step(after, PIECE)
        seqs = [key[-1] for key in step.found]
        while seqs:
            async with database.read() as tx:
                count = await _fitting(tx, seqs)
                exported = await read_exported(tx, seqs[:count])
            for each in exported:
                yield each
            seqs = seqs[count:]
        if step.is_end:
            return
        after = step.last


async def read_exported(tx: ReadTransaction, seqs: Sequence[int]) -> list[ExportedLetter]:
    """Everything about these letters, in their order."""
    numbers = list(seqs)
    contents = {row[0]: (row[1], row[2], row[3]) for row in await tx.rows(_CONTENTS, numbers)}
    titles = {row[0]: row[1] for row in await tx.rows(_TITLES, numbers)}
    earlier: defaultdict[int, list[EarlierContent]] = defaultdict(list)
    for seq, at_ms, redrives, properties, body in await tx.rows(_PAST, numbers):
        content = MessageContent(properties=bytes(properties), body=bytes(body))
        earlier[seq].append(EarlierContent(at_ms=at_ms, redrives=redrives, content=content))
    edits: defaultdict[int, list[ExportedEdit]] = defaultdict(list)
    for seq, at_ms, who, why, diff, properties, body in await tx.rows(_EDITS, numbers):
        content = MessageContent(properties=bytes(properties), body=bytes(body))
        edits[seq].append(ExportedEdit(at_ms=at_ms, who=who, why=why, diff=diff, content=content))
    lifecycles: defaultdict[int, list[tuple[int, LifecycleEntry]]] = defaultdict(list)
    for seq, version, at_ms, event, who, detail, operation_id in await tx.rows(_LIVES, numbers):
        happening = LifecycleEntry(at_ms=at_ms, event=event, who=who, detail=detail, operation_id=operation_id)
        lifecycles[seq].append((version, happening))
    exported = []
    for seq, letter in await read_letters(tx, numbers):
        history, properties, body = contents[seq]
        exported.append(
            ExportedLetter(
                letter=letter,
                content=MessageContent(properties=bytes(properties), body=bytes(body)),
                history=unpack_history(history, bytes(properties)),
                earlier_contents=tuple(earlier[seq]),
                edits=tuple(edits[seq]),
                lifecycle=tuple(lifecycles[seq]),
                group_title=titles[seq],
            )
        )
    return exported


async def insert_exported(
    database: Database, batch: Sequence[ExportedLetter], *, who: str, now_ms: int
) -> ImportResult:
    """Puts dead letters into this store, all of the batch or nothing. One whose id is there already is skipped."""
    unique: dict[str, ExportedLetter] = {}
    for each in batch:
        # The first of several with one id is there already when the others come.
        unique.setdefault(each.letter.id, each)
    async with database.write() as tx:
        rows = await tx.rows("SELECT id FROM letters WHERE id = ANY($1::text[])", list(unique))
        for (id,) in rows:
            del unique[id]
        if unique:
            await _insert(tx, list(unique.values()))
            ids = list(unique)
            subject = ids[0] if len(ids) == 1 else f"{len(ids)} dead letters"
            entry = AuditEntry(
                at_ms=now_ms,
                who=who,
                action="letters.imported",
                subject=subject,
                count=len(ids),
                why="",
                detail={"ids": ids},
            )
            await write_audit(tx, entry)
    return ImportResult(inserted=len(unique), skipped=len(batch) - len(unique))


async def _insert(tx: WriteTransaction, batch: Sequence[ExportedLetter]) -> None:
    count_changes = CountChanges()
    book = await rules_to_decide_by(tx)
    entries = []
    for each in batch:
        letter = _storable(_as_it_stands_here(each.letter, book))
        message = unwrap_envelope(each.content)
        entry = incoming_from_export(
            letter,
            each.content,
            history=each.history,
            search_text=search_text(letter, headers=headers_of(message.properties), body=message.body),
            group_title=storable(each.group_title),
        )
        entries.append(entry)
    seqs = await insert_letters(tx, count_changes, entries, await upsert_groups(tx, entries))
    earlier, edits, lifecycles = [], [], []
    for each in batch:
        seq = seqs[each.letter.id]
        earlier += [(seq, p.at_ms, p.redrives, p.content.properties, p.content.body) for p in each.earlier_contents]
        edits += [(seq, e.at_ms, e.who, e.why, e.diff, e.content.properties, e.content.body) for e in each.edits]
        lifecycles += [(seq, v, h.at_ms, h.event, h.who, h.detail, h.operation_id) for v, h in each.lifecycle]
    if earlier:
        await tx.many(_KEEP_EARLIER, earlier)
    if edits:
        await tx.many(KEEP_EDIT, edits)
    if lifecycles:
        await tx.many(_KEEP_LIFECYCLE, lifecycles)
    await count_changes.write(tx)


def _as_it_stands_here(letter: DeadLetter, book: RuleBook) -> DeadLetter:
    """The letter without what only the other store's operations and rules could go on with."""
    if letter.status is Status.RETRYING and letter.silent_at_ms is None:
        return replace(letter, status=Status.IN_DOUBT, status_reason="it was being sent when it was exported")
    if letter.status is not Status.PENDING:
        return letter
    owner = owner_of(letter.dlq, queue=letter.queue)
    rule = book.rule_for(letter.queue, letter.group_id, dlq=letter.dlq, owner=owner)
    if rule is None or rule.due_at_ms(died_at_ms=letter.dead_at_ms, recurrences=letter.counted_recurrences) is None:
        return replace(letter, due_at_ms=None)
    return letter


def _storable(letter: DeadLetter) -> DeadLetter:
    """The letter, with texts that both databases take: a file may hold anything."""
    texts = {name: getattr(letter, name) for name in _TEXTS}
    changed: dict[str, Any] = {
        name: storable(text) for name, text in texts.items() if isinstance(text, str) and storable(text) != text
    }
    return replace(letter, **changed) if changed else letter


async def _fitting(tx: ReadTransaction, seqs: list[int]) -> int:
    """How many of them, from the first on, fit into memory together; at least one."""
    sizes = {row[0]: row[1] for row in await tx.rows(_SIZES, seqs)}
    total = 0
    for count, seq in enumerate(seqs):
        total += sizes.get(seq, 0)
        if total > BYTES_MAX:
            return max(count, 1)
    return len(seqs)
