"""Dead letters whose redriven copies died again: the same rows, with what the copy says in the place of what they said.

What a row said before stays in its past contents and in its life.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redrive.records import LetterEvent
from redrive.stores.arriving import Entry, place_of, text_to_index, told_values
from redrive.stores.database import WriteTransaction
from redrive.stores.histories import pack_history
from redrive.stores.indexing import forget_words, index_words
from redrive.stores.tallies import Ledger
from redrive.stores.transitions import Standing, move, note_life

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A row whose copy died again, and what its row says from now on."""

    standing: Standing
    event: LetterEvent
    entry: Entry
    returns: int


async def take_back(
    tx: WriteTransaction,
    ledger: Ledger,
    returned: Sequence[Returned],
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
        moved = await move(tx, ledger, [one.standing for one in these], event, now_ms=now_ms, reason=reason)
        for one, standing in zip(sorted(these, key=_by_seq), sorted(moved, key=lambda each: each.seq), strict=True):
            place = place_of(one.entry, group_seqs[one.entry.told.group_id])
            ledger.moved(standing.place, standing.status, None)
            ledger.moved(place, None, standing.status)
            ledger.happened("returned", place, now_ms)
        for text, some in _by_error(these).items():
            await note_life(tx, some, event.value, now_ms=now_ms, who="", detail=text)
    await tx.many(_TELL_ANEW, [_row_anew(one, group_seqs) for one in returned])
    await tx.many(_NEW_CONTENT, [_content_anew(one) for one in returned])
    await forget_words(tx, seqs)
    await index_words(tx, [text_to_index(one.standing.seq, one.entry) for one in returned])


def _by_seq(one: Returned) -> int:
    return one.standing.seq


def _by_error(returned: Iterable[Returned]) -> dict[str, list[int]]:
    """Numbers of the rows by what they died of this time."""
    texts: dict[str, list[int]] = {}
    for one in returned:
        told = one.entry.told
        texts.setdefault(told.error_message or told.error_type or told.reason, []).append(one.standing.seq)
    return texts


def _row_anew(one: Returned, group_seqs: dict[str, int]) -> tuple[object, ...]:
    entry = one.entry
    return (
        one.standing.seq,
        *told_values(entry, group_seqs[entry.told.group_id]),
        one.returns,
        int(one.returns >= RETURNS_OF_POISON),
        entry.due_at_ms,
    )


def _content_anew(one: Returned) -> tuple[object, ...]:
    content = one.entry.content
    packed = pack_history(one.entry.history)
    return (one.standing.seq, one.entry.told.stack, packed, content.properties, content.body)
