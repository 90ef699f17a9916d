"""Dead letters becoming rows: the letter, its content, group, words and counts. For collecting and imports."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from redrive.core import Attempt
from redrive.records import Arrival, Content, DeadLetter, Status
from redrive.stores.database import Writing
from redrive.stores.indexing import index_words
from redrive.stores.tallies import Ledger, Place, bucket_ms_of

_INSERT_LETTER = """
INSERT INTO letters (seq, id, version, status, vhost, dlq, dlq_exchange, dlq_routing_key, queue, exchange, routing_key,
    reason, told_by, error_type, error_message, status_code, attempts, message_id, correlation_id, type, service,
    group_seq, size_bytes, dead_at_ms, collected_at_ms, updated_at_ms, redrives, returns, is_poison, due_at_ms,
    silent_at_ms, status_reason, resolved_by, copy_of, operation_id, is_edited)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36)
"""
_INSERT_CONTENT = "INSERT INTO contents (seq, stack, history, properties, body) VALUES ($1, $2, $3, $4, $5)"
LISTEN = "INSERT INTO silences (silent_at_ms, letter_seq) VALUES ($1, $2) ON CONFLICT DO NOTHING"
"""When to look whether a dead letter has not come back."""
_SEE_GROUP = """
INSERT INTO groups (id, title, queue, error_type, state, first_seen_ms, last_seen_ms, letters, redriven, returned)
VALUES ($1, $2, $3, $4, 'open', $5, $6, 0, 0, 0)
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

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Attempt]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A dead letter on its way into the store, with all that is kept of it."""

    letter: DeadLetter
    content: Content
    history: tuple[Attempt, ...]
    search_text: str
    group_title: str


def entry_of(arrival: Arrival, *, due_at_ms: int | None, copy_of: str | None) -> Entry:
    """A new dead letter from what was collected; texts without what a database can't hold."""
    arrival = _storable(arrival)
    told = arrival.explanation
    letter = DeadLetter(
        id=arrival.id,
        version=1,
        status=Status.PENDING,
        vhost=arrival.vhost,
        dlq=arrival.dlq,
        dlq_exchange=arrival.dlq_exchange,
        dlq_routing_key=arrival.dlq_routing_key,
        queue=told.queue,
        exchange=told.exchange,
        routing_key=told.routing_key,
        reason=told.reason,
        told_by=told.told_by,
        error_type=told.error_type,
        error_message=told.error_message,
        status_code=told.status_code,
        stack=told.stack,
        attempts=told.attempts,
        message_id=told.message_id,
        correlation_id=told.correlation_id,
        type=told.type,
        service=told.service,
        group_id=told.group_id,
        size_bytes=len(arrival.content.body),
        dead_at_ms=died_at_ms(arrival),
        collected_at_ms=arrival.collected_at_ms,
        updated_at_ms=arrival.collected_at_ms,
        redrives=0,
        returns=0,
        is_poison=False,
        due_at_ms=due_at_ms,
        silent_at_ms=None,
        status_reason=None,
        resolved_by=None,
        copy_of=copy_of,
        operation_id=None,
        is_edited=False,
    )
    return Entry(
        letter=letter,
        content=arrival.content,
        history=told.history,
        search_text=arrival.search_text,
        group_title=told.group_title,
    )


def died_at_ms(arrival: Arrival) -> int:
    """When it died, as far as anybody said; else when it was found."""
    told_ms = arrival.explanation.died_at_ms
    return arrival.collected_at_ms if told_ms is None else told_ms


async def see_groups(tx: Writing, entries: Iterable[Entry], left: Iterable[int] = ()) -> dict[str, int]:
    """Makes the groups there are not yet, moves `last seen` of the others, and makes resolved ones regressed. Their
    numbers by id. `left`: numbers of groups that letters of this transaction may leave."""
    seen: dict[str, tuple[str, str, str, str | None, int, int]] = {}
    for entry in entries:
        letter = entry.letter
        first = last = letter.dead_at_ms
        if letter.group_id in seen:
            *_, first_before, last_before = seen[letter.group_id]
            first, last = min(first, first_before), max(last, last_before)
        seen[letter.group_id] = (letter.group_id, entry.group_title, letter.queue, letter.error_type, first, last)
    if not seen:
        return {}
    # By number, as the ledger counts in them: two transactions then wait for each other, and don't lock each other out.
    await tx.rows(_LOCK_GROUPS, sorted(seen), sorted(left))
    await tx.many(_SEE_GROUP, [seen[id] for id in sorted(seen)])
    return dict(await tx.rows(_GROUP_SEQS, sorted(seen)))


async def insert_entries(
    tx: Writing, ledger: Ledger, entries: Sequence[Entry], group_seqs: dict[str, int]
) -> dict[str, int]:
    """Stores dead letters that are not there yet; their numbers by id."""
    if not entries:
        return {}
    seqs = [row[0] for row in await tx.rows(tx.dialect.next_letter_seqs, len(entries))]
    letters, contents, texts = [], [], []
    counts: Counter[tuple[tuple[str, str, str, str | None, str | None, int], Status, int]] = Counter()
    for seq, entry in zip(seqs, entries, strict=True):
        letter = entry.letter
        group_seq = group_seqs[letter.group_id]
        letters.append(_letter_row(seq, letter, group_seq))
        contents.append((seq, letter.stack, pack_history(entry.history), entry.content.properties, entry.content.body))
        texts.append((seq, entry.search_text))
        # Most letters of a hand are counted alike, and a place is dear to make: counted first, by what is at hand.
        counted_as = (letter.queue, letter.dlq, letter.routing_key, letter.service, letter.type, group_seq)
        counts[counted_as, letter.status, bucket_ms_of(letter.dead_at_ms)] += 1
    for ((queue, dlq, topic, service, type, group_seq), status, died_ms), n in counts.items():
        place = Place(queue=queue, dlq=dlq, topic=topic, service=service, type=type, group_seq=group_seq)
        ledger.moved(place, None, status, n=n)
        ledger.happened("dead", place, died_ms, n=n)
    await tx.many(_INSERT_LETTER, letters)
    await tx.many(_INSERT_CONTENT, contents)
    await index_words(tx, texts)
    waiting = [(entry.letter.silent_at_ms, seq) for seq, entry in zip(seqs, entries, strict=True)]
    await tx.many(LISTEN, [one for one in waiting if one[0] is not None])
    return {entry.letter.id: seq for seq, entry in zip(seqs, entries, strict=True)}


def place_of(letter: DeadLetter, group_seq: int) -> Place:
    """Where a dead letter is counted."""
    return Place(
        queue=letter.queue,
        dlq=letter.dlq,
        topic=letter.routing_key,
        service=letter.service,
        type=letter.type,
        group_seq=group_seq,
    )


def pack_history(history: Sequence[Attempt]) -> bytes | None:
    """Attempts as they are stored; None for none."""
    return _encode(history) if history else None


def unpack_history(packed: bytes | None) -> tuple[Attempt, ...]:
    """Attempts from how they are stored."""
    return () if packed is None else tuple(_decode(packed))


def clean(text: str) -> str:
    """A text both databases take: PostgreSQL has no NUL, and half a surrogate pair is no UTF-8."""
    if text.isascii():
        return text.replace("\x00", "\ufffd") if "\x00" in text else text
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def clean_or_none(text: str | None) -> str | None:
    """The same, where there may be none."""
    return None if text is None else clean(text)


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
        vhost=clean(arrival.vhost),
        dlq=clean(arrival.dlq),
        dlq_exchange=clean(arrival.dlq_exchange),
        dlq_routing_key=clean(arrival.dlq_routing_key),
        explanation=replace(
            told,
            queue=clean(told.queue),
            exchange=clean(told.exchange),
            routing_key=clean(told.routing_key),
            reason=clean(told.reason),
            group_title=clean(told.group_title),
            error_type=clean_or_none(told.error_type),
            error_message=clean_or_none(told.error_message),
            stack=clean_or_none(told.stack),
            message_id=clean_or_none(told.message_id),
            correlation_id=clean_or_none(told.correlation_id),
            type=clean_or_none(told.type),
            service=clean_or_none(told.service),
        ),
    )


def told_values(letter: DeadLetter, group_seq: int) -> tuple[object, ...]:
    """What a message told about itself, in the order of the table's columns from `vhost` to `dead_at_ms`."""
    return (
        letter.vhost,
        letter.dlq,
        letter.dlq_exchange,
        letter.dlq_routing_key,
        letter.queue,
        letter.exchange,
        letter.routing_key,
        letter.reason,
        letter.told_by,
        letter.error_type,
        letter.error_message,
        letter.status_code,
        letter.attempts,
        letter.message_id,
        letter.correlation_id,
        letter.type,
        letter.service,
        group_seq,
        letter.size_bytes,
        letter.dead_at_ms,
    )


def _letter_row(seq: int, letter: DeadLetter, group_seq: int) -> tuple[object, ...]:
    return (
        seq,
        letter.id,
        letter.version,
        letter.status.value,
        *told_values(letter, group_seq),
        letter.collected_at_ms,
        letter.updated_at_ms,
        letter.redrives,
        letter.returns,
        int(letter.is_poison),
        letter.due_at_ms,
        letter.silent_at_ms,
        letter.status_reason,
        letter.resolved_by,
        letter.copy_of,
        letter.operation_id,
        int(letter.is_edited),
    )
