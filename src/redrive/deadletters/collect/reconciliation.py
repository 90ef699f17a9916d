"""Which messages in hand are stored already: the decision after a crash. Pure.

A round of collecting leaves a trace in the store, so that whoever comes after a crash can tell what had happened:

    step          open in the store            the process dies here, and then
    -             a lost hand (an empty one)   the hand comes back, `redelivered`, and is in no batch: insert
    tx 1          the batch, a lost hand       the batch comes back whole, `redelivered`: it is only acked
    ack, barrier  the batch, a lost hand       nothing of the batch comes back: it is forgotten
    tx 2          a lost hand

The lost hand stands for all that can be out and unstored, as long as anything is taken: the next hand is taken while
one is stored, so a batch and a hand that is in no batch may come back together.

The batch is all that was in hand, and one ack settles all of it or nothing. So a batch comes back whole or not at all;
what matches only a part of it are twins, messages with the same bytes, and they are inserted. Where a batch comes back
in several hands, its rest is written down after tx 1 and before the ack; `without_repeated` mends a crash between.

    given                                                      then
    not redelivered                                            insert: nobody has had it
    it has an id, and is in a batch                            only ack, in any case
    a batch is in hand whole, and one of it has an id          only ack, all of it: the batch was not acked
    it has no id, and is in a batch otherwise                  doubtful: insert, and say of which it may be a copy
    drained, or a hand that must have had it has not           old batches are forgotten, and with the last lost hands

Doubt. `redelivered` proves nothing: 4.x sets it on the first delivery of what was rejected elsewhere, and anybody who
looks into a queue sets it. So a message without an id that is in a batch can be the stored one, or a twin of it, which
has the same bytes and was never in our hands; the stored one was acked then. What was stored twice can be put right,
what was acked unstored is gone: such a message is inserted and named in `doubtful`. A message with an id and the same
bytes is one message.

A broker that dies after the barrier and before the ack is on its disk gives back what was acked; so on classic queues a
batch stays open until it is there (`rounds`).

`grace_ms`: a broker may notice the death of a connection late (heartbeats), and return a hand after the queue was seen
empty. A batch younger than that is not forgotten.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryIdentity:
    """One message in hand. `identified`: it carries an id of its own."""

    fingerprint: bytes
    redelivered: bool
    identified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """A batch nobody has owned yet: (fingerprint, letter id) of all that was in hand; empty if the hand was lost.

    `hand_max` is how many messages a lost hand can have held.
    """

    id: str
    entries: tuple[tuple[bytes, str], ...]
    at_ms: int
    hand_max: int = 0

    @property
    def is_lost_hand(self) -> bool:
        """Whether messages were taken and never stored."""
        return not self.entries and self.hand_max > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How a hand was taken. `is_complete`: it has all that open batches can have given back, or the queue had no more.
    `is_first`: of this session, so nothing was matched before it."""

    returns_to_front: bool
    is_complete: bool
    is_drained: bool
    is_first: bool
    now_ms: int
    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """`known` has a letter's id for each message that is stored already, None for one to insert. `doubtful` are places
    of messages that are inserted and may be stored already, with that letter's id. `settled` are batches that end with
    this hand; `left` are still open, those of them in `shrunk` without what this hand matched."""

    known: tuple[str | None, ...]
    settled: tuple[str, ...]
    left: tuple[OpenBatch, ...]
    shrunk: frozenset[str] = frozenset()
    doubtful: dict[int, str] = field(default_factory=dict)


def without_repeated(batches: Sequence[OpenBatch]) -> tuple[OpenBatch, ...]:
    """The batches, oldest first, each message only in the newest that has it: there it was in hand last.

    By its bytes and its letter: a letter that was redriven and came back is in two batches with two messages.
    """
    seen: set[tuple[bytes, str]] = set()
    found: list[OpenBatch] = []
    for batch in reversed(batches):
        entries = tuple(entry for entry in batch.entries if entry not in seen)
        seen.update(entries)
        found.append(batch if len(entries) == len(batch.entries) else replace(batch, entries=entries))
    return tuple(reversed(found))


def hand_needed(batches: Sequence[OpenBatch]) -> int:
    """How many messages a hand must be able to hold so that it has all that open batches can have given back.

    Hands that were lost are not added up: each began with what the one before had given back. But what was stored and
    what was lost can have been in hand at the same time.
    """
    stored = sum(len(batch.entries) for batch in batches)
    return stored + max((batch.hand_max for batch in batches), default=0)


def reconcile(hand: Sequence[DeliveryIdentity], batches: Sequence[OpenBatch], given: Circumstances) -> Reconciled:
    """What to do with each message in hand, and with each open batch."""
    if not batches:
        return Reconciled(known=(None,) * len(hand), settled=(), left=())
    decides_by_whole = given.is_complete and (given.returns_to_front or (given.is_drained and given.is_first))
    matching = _Matching(hand)
    # The newest first: an older one that is still open was seen not to come back.
    if decides_by_whole:
        left = [one for one in reversed(batches) if one.is_lost_hand or not matching.take_whole(one)][::-1]
    else:
        left = [matching.take_single(one) for one in reversed(batches)][::-1]
    fresh = any(not one.redelivered for one in hand)
    settled: list[str] = [batch.id for batch in batches if batch.id not in {one.id for one in left}]
    may_be_forgotten = decides_by_whole or given.is_drained

    def is_awaited(batch: OpenBatch) -> bool:
        return bool(batch.entries) and not (may_be_forgotten and batch.at_ms + given.grace_ms <= given.now_ms)

    # Where returned messages come first, one that is fresh says that none is behind it. But as long as a batch may come
    # back, a hand that was out beside it may too: a hand that is to hold the one must have room for the other.
    is_seen = given.is_drained or (given.returns_to_front and given.is_complete and fresh)
    keeps_lost = not is_seen or any(is_awaited(one) for one in left)
    still: list[OpenBatch] = []
    for batch in left:
        if keeps_lost if batch.is_lost_hand else is_awaited(batch):
            still.append(batch)
        else:
            settled.append(batch.id)
    sizes = {batch.id: len(batch.entries) for batch in batches}
    return Reconciled(
        known=tuple(matching.known),
        settled=tuple(settled),
        left=tuple(still),
        shrunk=frozenset(batch.id for batch in still if len(batch.entries) != sizes[batch.id]),
        doubtful=matching.doubtful,
    )


class _Matching:
    """Messages in hand against entries of batches; each is used once."""

    def __init__(self, hand: Sequence[DeliveryIdentity]) -> None:
        self._hand = hand
        self.known: list[str | None] = [None] * len(hand)
        self.doubtful: dict[int, str] = {}
        self._places: dict[bytes, deque[int]] = defaultdict(deque)
        for place, one in enumerate(hand):
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
        is_certain = is_whole and any(self._hand[place].identified for place, _ in found)
        for place, letter_id in found:
            if is_certain or self._hand[place].identified:
                self.known[place] = letter_id
            else:
                self.doubtful[place] = letter_id
            self._places[self._hand[place].fingerprint].remove(place)
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
            if self._hand[place].identified:
                self.known[place] = letter_id
            else:
                self.doubtful[place] = letter_id
        return batch if len(left) == len(batch.entries) else replace(batch, entries=tuple(left))
