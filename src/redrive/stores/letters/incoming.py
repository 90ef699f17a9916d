"""Dead letters becoming rows: the letter, its content, group, words and counts. For collecting and imports."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

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
from redrive.stores.letters.letter_columns import (
    CONTENT_INSERTED,
    INSERTED,
    ORIGIN,
    STATE,
    explained_of,
    new_state,
    origin_of,
    state_of,
    text_fields,
)
from redrive.stores.message_contents import pack_history
from redrive.stores.search.full_text import index_words

SCHEDULE_SILENCE_CHECK = "INSERT INTO silences (silent_at_ms, letter_seq) VALUES ($1, $2) ON CONFLICT DO NOTHING"
"""When to look whether a dead letter has not come back."""
_UPSERT_GROUP = """
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

_NEW_STATE = new_state()
_COLLECTED_AT, _UPDATED_AT = STATE.index("collected_at_ms"), STATE.index("updated_at_ms")
_DUE_AT, _COPY_OF = STATE.index("due_at_ms"), STATE.index("copy_of")
_EXPLANATION_TEXTS = text_fields(Explanation)
_texts_of = attrgetter(*ORIGIN, *(f"explanation.{name}" for name in _EXPLANATION_TEXTS))


class IncomingLetter(NamedTuple):
    """A dead letter on its way into the store, with all that is kept of it. A tuple, for thousands are made a second.

    `origin` and `explanation` are what it was made of: an arrival and its explanation, or one letter that is both.
    """

    id: str
    version: int
    status: Status
    origin: Arrival | DeadLetter
    explanation: Explanation | DeadLetter
    dead_at_ms: int
    size_bytes: int
    due_at_ms: int | None
    silent_at_ms: int | None
    state: Sequence[object]
    """The columns of `STATE`."""
    content: MessageContent
    history: tuple[Attempt, ...]
    search_text: str
    group_title: str


def incoming_letter(arrival: Arrival, *, due_at_ms: int | None, copy_of: str | None) -> IncomingLetter:
    """A new dead letter from what was collected; texts without characters that a database can't hold."""
    arrival = _storable(arrival)
    explanation = arrival.explanation
    state = _NEW_STATE.copy()
    state[_COLLECTED_AT] = state[_UPDATED_AT] = arrival.collected_at_ms
    state[_DUE_AT], state[_COPY_OF] = due_at_ms, copy_of
    return IncomingLetter(
        arrival.id,
        1,
        Status.PENDING,
        arrival,
        explanation,
        died_at_ms(arrival),
        len(arrival.content.body),
        due_at_ms,
        None,
        state,
        arrival.content,
        explanation.history,
        arrival.search_text,
        explanation.group_title,
    )


def incoming_from_export(
    letter: DeadLetter, content: MessageContent, *, history: tuple[Attempt, ...], search_text: str, group_title: str
) -> IncomingLetter:
    """A dead letter as it was in another store."""
    return IncomingLetter(
        id=letter.id,
        version=letter.version,
        status=letter.status,
        origin=letter,
        explanation=letter,
        dead_at_ms=letter.dead_at_ms,
        size_bytes=letter.size_bytes,
        due_at_ms=letter.due_at_ms,
        silent_at_ms=letter.silent_at_ms,
        state=[int(value) if isinstance(value, bool) else value for value in state_of(letter)],
        content=content,
        history=history,
        search_text=search_text,
        group_title=group_title,
    )


def died_at_ms(arrival: Arrival) -> int:
    """When it died, as far as its headers say; else when it was collected."""
    reported_ms = arrival.explanation.died_at_ms
    return arrival.collected_at_ms if reported_ms is None else reported_ms


async def upsert_groups(
    tx: WriteTransaction, letters: Iterable[IncomingLetter], left: Iterable[int] = ()
) -> dict[str, int]:
    """Makes the groups that are missing, moves `last seen` of the others, and makes resolved ones regressed. Their
    numbers by id. `left`: numbers of groups that letters of this transaction may leave."""
    seen: dict[str, tuple[str, str, str, str | None, int, int, str]] = {}
    for letter in letters:
        explanation = letter.explanation
        first = last = letter.dead_at_ms
        before = seen.get(explanation.group_id)
        if before is not None:
            if before[4] <= first <= before[5]:
                continue
            first, last = min(first, before[4]), max(last, before[5])
        seen[explanation.group_id] = (
            explanation.group_id,
            letter.group_title,
            explanation.queue,
            explanation.error_type,
            first,
            last,
            _owner(letter),
        )
    if not seen:
        return {}
    # By number, as counts of groups are written: two transactions then wait for each other instead of deadlocking.
    await tx.rows(_LOCK_GROUPS, sorted(seen), sorted(left))
    await tx.many(_UPSERT_GROUP, [seen[id] for id in sorted(seen)])
    return dict(await tx.rows(_GROUP_SEQS, sorted(seen)))


def _owner(letter: IncomingLetter) -> str:
    explanation = letter.explanation
    known = explanation.owner if isinstance(explanation, Explanation) else None
    return owner_of(letter.origin.dlq, queue=explanation.queue) if known is None else known


async def insert_letters(
    tx: WriteTransaction, count_changes: CountChanges, letters: Sequence[IncomingLetter], group_seqs: dict[str, int]
) -> dict[str, int]:
    """Stores dead letters that are not there yet; their numbers by id."""
    if not letters:
        return {}
    seqs = [row[0] for row in await tx.rows(tx.dialect.next_letter_seqs, len(letters))]
    rows, contents, texts = [], [], []
    for seq, letter in zip(seqs, letters, strict=True):
        explanation, content = letter.explanation, letter.content
        overwritten = overwritten_values(letter, group_seqs[explanation.group_id])
        rows.append((seq, letter.id, letter.version, letter.status.value, *overwritten, *letter.state))
        contents.append((seq, explanation.stack, pack_history(letter.history), content.properties, content.body))
        texts.append(text_to_index(seq, letter))
    _count(count_changes, letters, group_seqs)
    await tx.insert("letters", INSERTED, rows)
    await tx.insert("contents", CONTENT_INSERTED, contents)
    await index_words(tx, texts)
    waiting = [(letter.silent_at_ms, seq) for seq, letter in zip(seqs, letters, strict=True)]
    await tx.many(SCHEDULE_SILENCE_CHECK, [one for one in waiting if one[0] is not None])
    return {letter.id: seq for seq, letter in zip(seqs, letters, strict=True)}


def count_key(letter: IncomingLetter, group_seq: int) -> CountKey:
    """What a dead letter is counted by."""
    explanation = letter.explanation
    return CountKey(
        queue=explanation.queue,
        dlq=letter.origin.dlq,
        topic=explanation.routing_key,
        service=explanation.service,
        type=explanation.type,
        group_seq=group_seq,
    )


def _storable(arrival: Arrival) -> Arrival:
    """The arrival, with texts that both databases take. Nearly all are as they come: one look tells."""
    together = "".join(filter(None, _texts_of(arrival)))
    if together.isascii() and "\x00" not in together:
        return arrival
    explanation = arrival.explanation
    texts = ((name, getattr(explanation, name)) for name in _EXPLANATION_TEXTS)
    explained: dict[str, Any] = {name: storable(text) for name, text in texts if text is not None}
    origin: dict[str, Any] = {name: storable(getattr(arrival, name)) for name in ORIGIN}
    return replace(arrival, explanation=replace(explanation, **explained), **origin)


def overwritten_values(letter: IncomingLetter, group_seq: int) -> tuple[object, ...]:
    """The values of the columns `OVERWRITTEN`."""
    explanation = letter.explanation
    folded = folded_error(explanation.error_type, explanation.error_message)
    return (
        *origin_of(letter.origin),
        *explained_of(explanation),
        folded,
        group_seq,
        letter.size_bytes,
        letter.dead_at_ms,
    )


def folded_error(error_type: str | None, error_message: str | None) -> str | None:
    """What `error:` searches, in which case does not count: type and message, U+FFFF between them. None where both are
    ASCII: those the databases can fold themselves."""
    if (error_type or "").isascii() and (error_message or "").isascii():
        return None
    return f"{fold(error_type or '')}\uffff{fold(error_message or '')}"


def text_to_index(seq: int, letter: IncomingLetter) -> tuple[int, str, bool]:
    """A dead letter's number, the text it is found by, and whether that is all of it."""
    return seq, letter.search_text, len(letter.content.body) <= BODY_BYTES_MAX


def _count(count_changes: CountChanges, letters: Sequence[IncomingLetter], group_seqs: dict[str, int]) -> None:
    """Most letters of a batch are counted alike, and a key costs much to make: equal ones are summed up first."""
    alike = Counter(
        [
            (
                explanation.queue,
                origin.dlq,
                explanation.routing_key,
                explanation.service,
                explanation.type,
                explanation.group_id,
                status,
                bucket_ms_of(at_ms),
            )
            for _, _, status, origin, explanation, at_ms, *_ in letters
        ]
    )
    for (queue, dlq, topic, service, type, group_id, status, died_ms), n in alike.items():
        group_seq = group_seqs[group_id]
        key = CountKey(queue=queue, dlq=dlq, topic=topic, service=service, type=type, group_seq=group_seq)
        count_changes.move(key, None, status, n=n)
        count_changes.add_activity("dead", key, died_ms, n=n)
