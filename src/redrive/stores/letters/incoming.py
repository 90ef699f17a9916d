"""Dead letters becoming rows: the letter, its content, group, words and counts. For collecting and imports."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from redrive.core import Attempt
from redrive.records import (
    BODY_BYTES_MAX,
    Arrival,
    DeadLetter,
    Explanation,
    MessageContent,
    Status,
    fold,
    owner_of,
    storable,
)
from redrive.stores.database import WriteTransaction
from redrive.stores.letters.counts import CountChanges, CountKey, bucket_ms_of
from redrive.stores.message_contents import pack_history
from redrive.stores.search.full_text import index_words

_WHERE = ("vhost", "dlq", "dlq_exchange", "dlq_routing_key")
_TOLD = (
    "queue",
    "exchange",
    "routing_key",
    "reason",
    "told_by",
    "error_type",
    "error_message",
    "status_code",
    "attempts",
    "message_id",
    "correlation_id",
    "type",
    "service",
)
_STANDING = (
    "collected_at_ms",
    "updated_at_ms",
    "redrives",
    "returns",
    "is_poison",
    "due_at_ms",
    "silent_at_ms",
    "status_reason",
    "resolved_by",
    "copy_of",
    "operation_id",
    "is_edited",
    "forgiven",
)
_COLUMNS = (
    *("seq", "id", "version", "status", *_WHERE, *_TOLD),
    *("error_folded", "group_seq", "size_bytes", "dead_at_ms", *_STANDING),
)
_CONTENT_COLUMNS = ("seq", "stack", "history", "properties", "body")
_where, _told, _standing = attrgetter(*_WHERE), attrgetter(*_TOLD), attrgetter(*_STANDING)
SCHEDULE_SILENCE_CHECK = "INSERT INTO silences (silent_at_ms, letter_seq) VALUES ($1, $2) ON CONFLICT DO NOTHING"
"""When to look whether a dead letter has not come back."""
_SEE_GROUP = """
INSERT INTO groups (id, title, queue, error_type, state, first_seen_ms, last_seen_ms, letters, redriven, returned,
    owner)
VALUES ($1, $2, $3, $4, 'open', $5, $6, 0, 0, 0, $7)
ON CONFLICT (id) DO UPDATE SET
    state = CASE WHEN groups.state = 'resolved' THEN 'regressed' ELSE groups.state END,
    first_seen_ms = CASE WHEN excluded.first_seen_ms < groups.first_seen_ms
        THEN excluded.first_seen_ms ELSE groups.first_seen_ms END,
    last_seen_ms = CASE WHEN excluded.last_seen_ms > groups.last_seen_ms
        THEN excluded.last_seen_ms ELSE groups.last_seen_ms END
"""
_LOCK_GROUPS = """
SELECT seq FROM groups WHERE id = ANY($1::text[]) OR seq = ANY($2::bigint[]) ORDER BY seq FOR UPDATE
"""
_GROUP_SEQS = "SELECT id, seq FROM groups WHERE id = ANY($1::text[])"


class IncomingLetter(NamedTuple):
    """A dead letter on its way into the store, with all that is kept of it. A tuple, for thousands are made a second.

    `where` and `told` are what it was made of: an arrival and its explanation, or one letter that is both.
    """

    id: str
    version: int
    status: Status
    where: Arrival | DeadLetter
    told: Explanation | DeadLetter
    dead_at_ms: int
    size_bytes: int
    due_at_ms: int | None
    silent_at_ms: int | None
    standing: tuple[object, ...]
    """The columns from `collected_at_ms` on."""
    content: MessageContent
    history: tuple[Attempt, ...]
    search_text: str
    group_title: str


def incoming_letter(arrival: Arrival, *, due_at_ms: int | None, copy_of: str | None) -> IncomingLetter:
    """A new dead letter from what was collected; texts without what a database can't hold."""
    arrival = _storable(arrival)
    told, at_ms = arrival.explanation, arrival.collected_at_ms
    return IncomingLetter(
        arrival.id,
        1,
        Status.PENDING,
        arrival,
        told,
        died_at_ms(arrival),
        len(arrival.content.body),
        due_at_ms,
        None,
        (at_ms, at_ms, 0, 0, 0, due_at_ms, None, None, None, copy_of, None, 0, 0),
        arrival.content,
        told.history,
        arrival.search_text,
        told.group_title,
    )


def incoming_from_export(
    letter: DeadLetter, content: MessageContent, *, history: tuple[Attempt, ...], search_text: str, group_title: str
) -> IncomingLetter:
    """A dead letter as it was in another store."""
    return IncomingLetter(
        id=letter.id,
        version=letter.version,
        status=letter.status,
        where=letter,
        told=letter,
        dead_at_ms=letter.dead_at_ms,
        size_bytes=letter.size_bytes,
        due_at_ms=letter.due_at_ms,
        silent_at_ms=letter.silent_at_ms,
        standing=tuple([int(one) if isinstance(one, bool) else one for one in _standing(letter)]),
        content=content,
        history=history,
        search_text=search_text,
        group_title=group_title,
    )


def died_at_ms(arrival: Arrival) -> int:
    """When it died, as far as anybody said; else when it was found."""
    told_ms = arrival.explanation.died_at_ms
    return arrival.collected_at_ms if told_ms is None else told_ms


async def upsert_groups(
    tx: WriteTransaction, entries: Iterable[IncomingLetter], left: Iterable[int] = ()
) -> dict[str, int]:
    """Makes the groups there are not yet, moves `last seen` of the others, and makes resolved ones regressed. Their
    numbers by id. `left`: numbers of groups that letters of this transaction may leave."""
    seen: dict[str, tuple[str, str, str, str | None, int, int, str]] = {}
    for entry in entries:
        told = entry.told
        first = last = entry.dead_at_ms
        before = seen.get(told.group_id)
        if before is not None:
            if before[4] <= first <= before[5]:
                continue
            first, last = min(first, before[4]), max(last, before[5])
        seen[told.group_id] = (
            told.group_id,
            entry.group_title,
            told.queue,
            told.error_type,
            first,
            last,
            _owner(entry),
        )
    if not seen:
        return {}
    # By number, as the ledger counts in them: two transactions then wait for each other, and don't lock each other out.
    await tx.rows(_LOCK_GROUPS, sorted(seen), sorted(left))
    await tx.many(_SEE_GROUP, [seen[id] for id in sorted(seen)])
    return dict(await tx.rows(_GROUP_SEQS, sorted(seen)))


def _owner(entry: IncomingLetter) -> str:
    told = entry.told
    known = told.owner if isinstance(told, Explanation) else None
    return owner_of(entry.where.dlq, queue=told.queue) if known is None else storable(known)


async def insert_letters(
    tx: WriteTransaction, count_changes: CountChanges, entries: Sequence[IncomingLetter], group_seqs: dict[str, int]
) -> dict[str, int]:
    """Stores dead letters that are not there yet; their numbers by id."""
    if not entries:
        return {}
    seqs = [row[0] for row in await tx.rows(tx.dialect.next_letter_seqs, len(entries))]
    letters, contents, texts = [], [], []
    for seq, entry in zip(seqs, entries, strict=True):
        told, content = entry.told, entry.content
        group_seq = group_seqs[told.group_id]
        about = explained_values(entry, group_seq)
        letters.append((seq, entry.id, entry.version, entry.status.value, *about, *entry.standing))
        contents.append((seq, told.stack, pack_history(entry.history), content.properties, content.body))
        texts.append(text_to_index(seq, entry))
    _count(count_changes, entries, group_seqs)
    await tx.insert("letters", _COLUMNS, letters)
    await tx.insert("contents", _CONTENT_COLUMNS, contents)
    await index_words(tx, texts)
    waiting = [(entry.silent_at_ms, seq) for seq, entry in zip(seqs, entries, strict=True)]
    await tx.many(SCHEDULE_SILENCE_CHECK, [one for one in waiting if one[0] is not None])
    return {entry.id: seq for seq, entry in zip(seqs, entries, strict=True)}


def count_key(entry: IncomingLetter, group_seq: int) -> CountKey:
    """Where a dead letter is counted."""
    told = entry.told
    return CountKey(
        queue=told.queue,
        dlq=entry.where.dlq,
        topic=told.routing_key,
        service=told.service,
        type=told.type,
        group_seq=group_seq,
    )


def _storable_or_none(text: str | None) -> str | None:
    """The text as both databases take it; None where there is none."""
    return None if text is None else storable(text)


def _storable(arrival: Arrival) -> Arrival:
    """The arrival, with texts that both databases take. Nearly all are as they come: one look tells."""
    told = arrival.explanation
    texts = (
        arrival.vhost,
        arrival.dlq,
        arrival.dlq_exchange,
        arrival.dlq_routing_key,
        told.queue,
        told.exchange,
        told.routing_key,
        told.reason,
        told.group_title,
        told.error_type or "",
        told.error_message or "",
        told.stack or "",
        told.message_id or "",
        told.correlation_id or "",
        told.type or "",
        told.service or "",
    )
    together = "".join(texts)
    if together.isascii() and "\x00" not in together:
        return arrival
    return replace(
        arrival,
        vhost=storable(arrival.vhost),
        dlq=storable(arrival.dlq),
        dlq_exchange=storable(arrival.dlq_exchange),
        dlq_routing_key=storable(arrival.dlq_routing_key),
        explanation=replace(
            told,
            queue=storable(told.queue),
            exchange=storable(told.exchange),
            routing_key=storable(told.routing_key),
            reason=storable(told.reason),
            group_title=storable(told.group_title),
            error_type=_storable_or_none(told.error_type),
            error_message=_storable_or_none(told.error_message),
            stack=_storable_or_none(told.stack),
            message_id=_storable_or_none(told.message_id),
            correlation_id=_storable_or_none(told.correlation_id),
            type=_storable_or_none(told.type),
            service=_storable_or_none(told.service),
        ),
    )


def explained_values(entry: IncomingLetter, group_seq: int) -> tuple[object, ...]:
    """What a message told about itself, in the order of the table's columns from `vhost` to `dead_at_ms`."""
    folded = folded_error(entry.told.error_type, entry.told.error_message)
    return (*_where(entry.where), *_told(entry.told), folded, group_seq, entry.size_bytes, entry.dead_at_ms)


def folded_error(error_type: str | None, error_message: str | None) -> str | None:
    """What `error:` searches, in which case does not count: type and message, U+FFFF between them. None where both are
    ASCII: those the databases can fold themselves."""
    if (error_type or "").isascii() and (error_message or "").isascii():
        return None
    return f"{fold(error_type or '')}\uffff{fold(error_message or '')}"


def text_to_index(seq: int, entry: IncomingLetter) -> tuple[int, str, bool]:
    """A dead letter's number, the text it is found by, and whether that is all of it."""
    return seq, entry.search_text, len(entry.content.body) <= BODY_BYTES_MAX


def _count(count_changes: CountChanges, entries: Sequence[IncomingLetter], group_seqs: dict[str, int]) -> None:
    """Most letters of a hand are counted alike, and a place is dear to make: counted first, by what is at hand."""
    alike = Counter(
        [
            (
                told.queue,
                where.dlq,
                told.routing_key,
                told.service,
                told.type,
                told.group_id,
                status,
                bucket_ms_of(at_ms),
            )
            for _, _, status, where, told, at_ms, *_ in entries
        ]
    )
    for (queue, dlq, topic, service, type, group_id, status, died_ms), n in alike.items():
        group_seq = group_seqs[group_id]
        place = CountKey(queue=queue, dlq=dlq, topic=topic, service=service, type=type, group_seq=group_seq)
        count_changes.moved(place, None, status, n=n)
        count_changes.happened("dead", place, died_ms, n=n)
