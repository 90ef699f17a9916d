"""Which messages of a batch are stored already: the decision after a crash. Pure.

The collect loop records in the store what it does, so that the next collector can tell what had happened:

    open batch   the record of a batch that was stored, and whose ack may not have arrived
    lost batch   the record of messages that may be held and are not stored: no entries, only a largest size
    twin         another message with the same bytes
    remainder    what is left of an open batch when only a part of it has come again

    step          records in the store         if the process dies here
    -             a lost batch                 its messages come again, `redelivered`, and are in no batch: insert
    tx 1          the batch, a lost batch      all of the batch comes again, `redelivered`: it is only acked
    ack, barrier  the batch, a lost batch      nothing of the batch comes again: its record is removed
    tx 2          a lost batch

The lost batch stands for everything that is held and not stored, for as long as the collector takes messages. The next
batch is prefetched while one is stored, so a stored batch and an unstored one may come again together.

One ack settles all of a batch or nothing, so either all of it comes again or nothing. Messages that match only a part
of it are twins, and are inserted. If a batch comes again in several batches, its remainder is recorded after tx 1 and
before the ack. After a crash between the two, `without_repeats` keeps each message in the
newest record only.

    given                                                      then
    not redelivered                                            insert: no collector has had it
    it has an id, and is in an open batch                      only ack, in any case
    all of an open batch is here, and one of it has an id      only ack, all of it: the batch was not acked
    it has no id, and is in an open batch otherwise            doubtful: insert, and note of which it may be a copy
    the queue is drained, or a batch that must have held it    old open batches are removed; with the last of them,
        has not                                                lost batches too

Doubt. `redelivered` proves nothing: 4.x sets it on the first delivery of a message that was rejected in another queue,
and anybody who looks into a queue sets it. So a message without an id that is in an open batch can be the stored one,
or a twin of it that no collector has held; in the latter case the stored one was acked. What was stored twice can be
put right; what was acked without being stored is gone. So such a message is inserted, and named in `doubtful`. A
message with an id and the same bytes is the same message.

A broker that dies after the barrier and before the ack is on its disk redelivers what was acked. So on classic queues a
batch stays open until the ack is on disk (`collect_loop`).

`grace_ms`: a broker may notice the death of a connection late (heartbeats), and requeue a batch after the queue was
seen empty. The record of a batch younger than that is kept.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryIdentity:
    """What distinguishes a delivery from another. `has_id`: the message carries an id of its own."""

    fingerprint: bytes
    redelivered: bool
    has_id: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """The record of a batch whose ack may not have arrived: (fingerprint, letter id) of all its messages.

    A lost batch, which was never stored, has no entries; `size_max` is how many messages it can have held.
    """

    id: str
    entries: tuple[tuple[bytes, str], ...]
    at_ms: int
    size_max: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether messages were taken and never stored."""
        return not self.entries and self.size_max > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """How a batch was taken.

    `requeues_to_front`: the queue puts requeued messages first. `is_complete`: the batch has all that can be
    redelivered of open batches, or the queue had no more. `is_first`: nothing was matched before it in this session.
    """

    requeues_to_front: bool
    is_complete: bool
    is_drained: bool
    is_first: bool
    now_ms: int
    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What to do with a batch and with the open batches.

    `known` has a letter's id for each message that is stored already, None for one to insert. `doubtful` has the places
    of messages that are inserted and may be stored already, with that letter's id. `closed` are open batches that end
    with this batch; `left` stay open, those of them in `shrunk` without what this batch matched.
    """

    known: tuple[str | None, ...]
    closed: tuple[str, ...]
    left: tuple[OpenBatch, ...]
    shrunk: frozenset[str] = frozenset()
    doubtful: dict[int, str] = field(default_factory=dict)


def without_repeats(batches: Sequence[OpenBatch]) -> tuple[OpenBatch, ...]:
    """The open batches, oldest first, each message only in the newest that has it: that one held it last.

    A message is one by its bytes and its letter: a letter that was redriven and came back is in two batches with two
    messages.
    """
    seen: set[tuple[bytes, str]] = set()
    found: list[OpenBatch] = []
    for batch in reversed(batches):
        entries = tuple(entry for entry in batch.entries if entry not in seen)
        seen.update(entries)
        found.append(batch if len(entries) == len(batch.entries) else replace(batch, entries=entries))
    return tuple(reversed(found))


def size_needed(batches: Sequence[OpenBatch]) -> int:
    """How many messages a batch must be able to hold to have everything that can be redelivered of open batches.

    Lost batches are not added up: each began with what was requeued of the one before. But a stored batch and a lost
    one can have been held at the same time.
    """
    stored = sum(len(batch.entries) for batch in batches)
    return stored + max((batch.size_max for batch in batches), default=0)


def reconcile(
    deliveries: Sequence[DeliveryIdentity], batches: Sequence[OpenBatch], context: BatchContext
) -> Reconciled:
    """What to do with each message of a batch, and with each open batch."""
    if not batches:
        return Reconciled(known=(None,) * len(deliveries), closed=(), left=())
    decides_by_whole = context.is_complete and (context.requeues_to_front or (context.is_drained and context.is_first))
    matching = _Matching(deliveries)
    # The newest first: an older one that is still open was seen not to come again.
    if decides_by_whole:
        left = [one for one in reversed(batches) if one.is_lost or not matching.take_whole(one)][::-1]
    else:
        left = [matching.take_single(one) for one in reversed(batches)][::-1]
    has_fresh = any(not one.redelivered for one in deliveries)
    closed: list[str] = [batch.id for batch in batches if batch.id not in {one.id for one in left}]
    may_be_removed = decides_by_whole or context.is_drained

    def is_awaited(batch: OpenBatch) -> bool:
        return bool(batch.entries) and not (may_be_removed and batch.at_ms + context.grace_ms <= context.now_ms)

    # Where requeued messages come first, a fresh one says that no requeued one is behind it. But as long as a stored
    # batch may come again, a lost one that was held beside it may too: a batch must have room for both.
    is_seen = context.is_drained or (context.requeues_to_front and context.is_complete and has_fresh)
    keeps_lost = not is_seen or any(is_awaited(one) for one in left)
    still: list[OpenBatch] = []
    for batch in left:
        if keeps_lost if batch.is_lost else is_awaited(batch):
            still.append(batch)
        else:
            closed.append(batch.id)
    sizes = {batch.id: len(batch.entries) for batch in batches}
    return Reconciled(
        known=tuple(matching.known),
        closed=tuple(closed),
        left=tuple(still),
        shrunk=frozenset(batch.id for batch in still if len(batch.entries) != sizes[batch.id]),
        doubtful=matching.doubtful,
    )


class _Matching:
    """Matches deliveries with entries of open batches; each is used once."""

    def __init__(self, deliveries: Sequence[DeliveryIdentity]) -> None:
        self._deliveries = deliveries
        self.known: list[str | None] = [None] * len(deliveries)
        self.doubtful: dict[int, str] = {}
        self._places: dict[bytes, deque[int]] = defaultdict(deque)
        for place, one in enumerate(deliveries):
            if one.redelivered:
                self._places[one.fingerprint].append(place)

    def take_whole(self, batch: OpenBatch) -> bool:
        """Matches all of a batch, or of a part of it only what has an id; whether it was all."""
        found: list[tuple[int, str]] = []
        used: dict[bytes, int] = defaultdict(int)
        for fingerprint, letter_id in batch.entries:
            places = self._places.get(fingerprint, ())
            if used[fingerprint] < len(places):
                found.append((places[used[fingerprint]], letter_id))
                used[fingerprint] += 1
        is_whole = len(found) == len(batch.entries)
        # One that is certain makes all certain: they were acked together or not at all.
        is_certain = is_whole and any(self._deliveries[place].has_id for place, _ in found)
        for place, letter_id in found:
            if is_certain or self._deliveries[place].has_id:
                self.known[place] = letter_id
            else:
                self.doubtful[place] = letter_id
            self._places[self._deliveries[place].fingerprint].remove(place)
        return is_whole

    def take_single(self, batch: OpenBatch) -> OpenBatch:
        """Matches what it can; returns the batch without what was matched."""
        left: list[tuple[bytes, str]] = []
        for fingerprint, letter_id in batch.entries:
            places = self._places.get(fingerprint)
            if not places:
                left.append((fingerprint, letter_id))
                continue
            place = places.popleft()
            if self._deliveries[place].has_id:
                self.known[place] = letter_id
            else:
                self.doubtful[place] = letter_id
        return batch if len(left) == len(batch.entries) else replace(batch, entries=tuple(left))
