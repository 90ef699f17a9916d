"""Collecting through any sequence of crashes, on a model of a broker: nothing lost, nothing twice outside the doubt."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redrive.deadletters.collect.reconciliation import (
    BatchContext,
    DeliveryIdentity,
    OpenBatch,
    Reconciled,
    reconcile,
    size_needed,
    without_repeats,
)
from tests.examples import examples

HOUR_MS = 3_600_000


GRACE_MS = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """Lower case has no id and may have twins; upper case has one, and is published once."""

    name: str
    redelivered: bool = False

    @property
    def held(self) -> DeliveryIdentity:
        return DeliveryIdentity(
            fingerprint=self.name.encode(), redelivered=self.redelivered, has_id=self.name.isupper()
        )


@dataclass(slots=True)
class World:
    """A broker with one queue, a store, and a collector that dies where the test says."""

    requeues_to_front: bool
    flags_all: bool = False
    """Like 4.x with what was rejected: `redelivered` on the first delivery."""
    queue: list[Message] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    batches: list[OpenBatch] = field(default_factory=list)
    published: Counter[str] = field(default_factory=Counter)
    doubted: Counter[str] = field(default_factory=Counter)
    now_ms: int = 0
    made: int = 0

    def publish(self, names: str) -> None:
        for name in names:
            if name.isupper() and self.published[name]:
                continue
            self.published[name] += 1
            self.queue.append(Message(name, redelivered=self.flags_all))

    def requeue(self, taken: list[Message]) -> None:
        again = [replace(one, redelivered=True) for one in taken]
        self.queue = again + self.queue if self.requeues_to_front else self.queue + again

    def new_id(self) -> str:
        self.made += 1
        return f"{self.made}"

    def session(self, prefetch: int, batches: int, crash: str | None) -> None:
        """Collects some batches; the last one ends at `crash`, if that is given."""
        left = without_repeats(self.batches)
        for number in range(batches):
            dies_at = crash if number == batches - 1 else None
            self.now_ms += 1
            room = max(prefetch, size_needed(left) + 1 if left else 0)
            marker = OpenBatch(id=self.new_id(), entries=(), at_ms=self.now_ms, size_max=room)
            self.batches.append(marker)
            taken, self.queue = self.queue[:room], self.queue[room:]
            if dies_at == "taken":
                self.requeue(taken)
                return
            decided = reconcile(
                [one.held for one in taken],
                left,
                BatchContext(
                    requeues_to_front=self.requeues_to_front,
                    is_complete=True,
                    is_drained=not self.queue,
                    is_first=number == 0,
                    now_ms=self.now_ms,
                    grace_ms=GRACE_MS,
                ),
            )
            left = decided.left
            batch = self.store(taken, decided, marker)
            if dies_at == "unshrunk":
                self.requeue(taken)
                return
            rest = {one.id: one for one in left if one.id in decided.shrunk}
            self.batches = [rest.get(one.id, one) for one in self.batches]
            if dies_at == "stored":
                self.requeue(taken)
                return
            if dies_at == "acked":
                return
            self.batches = [one for one in self.batches if one.id != batch.id]

    def store(self, taken: list[Message], decided: Reconciled, marker: OpenBatch) -> OpenBatch:
        """tx 1."""
        entries = []
        for place, one in enumerate(taken):
            letter = decided.known[place]
            if letter is None:
                letter = self.new_id()
                self.rows[one.name] += 1
                if place in decided.doubtful:
                    self.doubted[one.name] += 1
            entries.append((one.name.encode(), letter))
        gone = {*decided.closed, marker.id}
        batch = OpenBatch(id=self.new_id(), entries=tuple(entries), at_ms=self.now_ms)
        self.batches = [one for one in self.batches if one.id not in gone] + [batch]
        return batch

    def finish(self) -> None:
        """Collects without crashes until nothing is left, and until every batch is old."""
        for _ in range(100):
            if not self.queue and not self.batches:
                return
            self.now_ms += GRACE_MS
            self.session(prefetch=50, batches=1, crash=None)
        raise AssertionError(f"it never ends: {self.queue} {self.batches}")


NAMES = st.text(alphabet="aabcABCDEFGH", max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), NAMES),
        st.tuples(
            st.just("session"),
            st.tuples(
                st.integers(1, 4), st.integers(1, 3), st.sampled_from(["taken", "unshrunk", "stored", "acked", None])
            ),
        ),
        st.tuples(st.just("wait"), st.sampled_from([1, GRACE_MS])),
    ),
    max_size=14,
)


def play(requeues_to_front: bool, steps: list[tuple[str, object]], *, flags_all: bool = False) -> World:
    world = World(requeues_to_front, flags_all)
    for kind, what in steps:
        match kind, what:
            case "publish", str(names):
                world.publish(names)
            case "session", (int(prefetch), int(batches), crash):
                world.session(prefetch, batches, crash if isinstance(crash, str) else None)
            case "wait", int(pause_ms):
                world.now_ms += pause_ms
    world.finish()
    return world


@settings(max_examples=examples(600), deadline=None)
@given(st.booleans(), STEPS, st.booleans())
@example(True, [("publish", "aa"), ("session", (1, 1, "acked")), ("session", (1, 1, "taken"))], False)
@example(True, [("publish", "aa"), ("session", (1, 1, "acked"))], True)
@example(False, [("publish", "aab"), ("session", (2, 1, "taken")), ("session", (1, 1, "acked"))], False)
@example(True, [("publish", "abab"), ("session", (2, 1, "acked")), ("session", (2, 1, "taken"))], False)
@example(
    False,
    [
        ("publish", "FABacDE"),
        ("session", (2, 1, "taken")),
        ("session", (1, 1, "unshrunk")),
        ("session", (1, 1, "unshrunk")),
    ],
    False,
)
@example(True, [("publish", "a" * 30), ("session", (25, 1, "taken")), ("session", (5, 1, "acked"))], False)
def test_through_any_crashes_no_message_is_lost_and_twice_is_only_what_was_doubtful(
    requeues_to_front: bool, steps: list[tuple[str, object]], flags_all: bool
) -> None:
    world = play(requeues_to_front, steps, flags_all=flags_all)
    assert world.queue == []
    assert world.batches == []
    for name, count in world.published.items():
        assert world.rows[name] >= count, f"{name} is lost: {world.rows[name]} rows for {count} messages"
        # What is there twice was said to be doubtful, and never has an id.
        assert world.rows[name] <= count + world.doubted[name]
    assert not any(name.isupper() for name in world.doubted)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_messages_with_an_id_are_never_twice_whatever_crashes(steps: list[tuple[str, object]], seed: int) -> None:
    capitals = [one for one in map(chr, range(0x41, 0x600)) if one.isupper() and len(one.upper()) == 1]
    names = iter(random.Random(seed).sample(capitals, 100))
    steps = [
        (kind, "".join(next(names) for _ in what)) if kind == "publish" and isinstance(what, str) else (kind, what)
        for kind, what in steps
    ]
    for requeues_to_front in (True, False):
        world = play(requeues_to_front, steps, flags_all=seed % 2 == 0)
        assert world.rows == world.published


def front(**changes: bool | int) -> BatchContext:
    plain = BatchContext(
        requeues_to_front=True, is_complete=True, is_drained=False, is_first=True, now_ms=5000, grace_ms=GRACE_MS
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def held(*names: str) -> list[DeliveryIdentity]:
    return [Message(name, redelivered=True).held for name in names]


BATCH = OpenBatch(id="b", entries=((b"A", "1"), (b"b", "2")), at_ms=0)
LOST = OpenBatch(id="lost", entries=(), at_ms=0, size_max=20)


def test_a_batch_that_is_redelivered_whole_is_only_acked() -> None:
    decided = reconcile(held("A", "b", "c"), [BATCH], front())
    assert decided == Reconciled(known=("1", "2", None), closed=("b",), left=())


def test_a_part_of_a_batch_are_twins_and_the_batch_was_acked() -> None:
    decided = reconcile(held("b", "c"), [BATCH], front())
    assert decided == Reconciled(known=(None, None), closed=("b",), left=(), doubtful={0: "2"})


def test_a_young_batch_is_kept_for_a_broker_that_has_not_noticed_the_death_yet() -> None:
    decided = reconcile(held("c"), [BATCH], front(now_ms=GRACE_MS - 1))
    assert decided == Reconciled(known=(None,), closed=(), left=(BATCH,))
    later = reconcile(held("A", "b"), decided.left, front(now_ms=GRACE_MS - 1, is_first=False))
    assert later.known == ("1", "2")


def test_where_messages_are_requeued_to_the_back_each_is_matched_as_it_comes() -> None:
    given_back = front(requeues_to_front=False)
    first = reconcile([Message("c").held, *held("A")], [BATCH], given_back)
    assert first.known == (None, "1")
    second = reconcile(held("b"), first.left, replace(given_back, is_first=False))
    assert (second.known, second.doubtful, second.closed, second.left) == ((None,), {0: "2"}, ("b",), ())


def test_a_fresh_message_is_inserted_whatever_it_looks_like() -> None:
    decided = reconcile([Message("A").held, Message("b").held], [BATCH], front())
    assert decided.known == (None, None)


def test_a_batch_without_any_id_is_stored_again_rather_than_lost() -> None:
    batch = replace(BATCH, entries=((b"a", "1"), (b"b", "2")))
    decided = reconcile(held("a", "b"), [batch], front())
    assert decided.known == (None, None)
    assert decided.doubtful == {0: "1", 1: "2"}


def test_one_message_with_an_id_makes_the_whole_batch_certain() -> None:
    batch = replace(BATCH, entries=((b"a", "1"), (b"B", "2")))
    decided = reconcile(held("a", "B"), [batch, LOST], front())
    assert (decided.known, decided.doubtful) == (("1", "2"), {})


@pytest.mark.parametrize(("fresh", "settled"), [(True, ("lost",)), (False, ())])
def test_a_lost_batch_is_removed_when_a_fresh_message_came_behind_it(fresh: bool, settled: tuple[str, ...]) -> None:
    taken = [*held("x"), *([Message("y").held] if fresh else [])]
    assert reconcile(taken, [LOST], front()).closed == settled


def test_a_twin_that_another_client_held_before_is_not_taken_for_a_stored_one() -> None:
    world = World(requeues_to_front=True)
    world.publish("aa")
    world.queue = [replace(one, redelivered=True) for one in world.queue]  # somebody peeked
    world.session(prefetch=1, batches=1, crash="acked")
    world.finish()
    assert (world.rows["a"], world.doubted["a"]) == (2, 1)


def test_a_letter_that_came_back_twice_keeps_both_messages_in_their_batches() -> None:
    older = OpenBatch(id="older", entries=((b"first copy", "letter"), (b"met again", "other")), at_ms=1)
    newer = OpenBatch(id="newer", entries=((b"second copy", "letter"), (b"met again", "other")), at_ms=2)
    left = without_repeats([older, newer])
    assert [one.entries for one in left] == [((b"first copy", "letter"),), newer.entries]


def met_again(*, has_id: bool) -> Reconciled:
    """A batch of one was stored; now a message like it comes, redelivered, and the queue is empty."""
    batch = OpenBatch(id="batch", entries=((b"print", "letter"),), at_ms=0)
    given = BatchContext(
        requeues_to_front=True,
        is_complete=True,
        is_drained=True,
        is_first=True,
        now_ms=HOUR_MS,
        grace_ms=75_000,
    )
    return reconcile([DeliveryIdentity(fingerprint=b"print", redelivered=True, has_id=has_id)], [batch], given)


def test_a_redelivered_message_without_id_may_be_a_twin_and_is_stored_as_a_copy() -> None:
    decided = met_again(has_id=False)
    assert (decided.known, decided.doubtful, decided.closed) == ((None,), {0: "letter"}, ("batch",))


def test_a_redelivered_message_with_an_id_is_the_one_that_is_stored() -> None:
    decided = met_again(has_id=True)
    assert (decided.known, decided.doubtful, decided.closed) == (("letter",), {}, ("batch",))


def test_a_stored_batch_and_a_lost_one_may_be_redelivered_together() -> None:
    stored = OpenBatch(id="a", entries=((b"1", "x"), (b"2", "y")), at_ms=0)
    lost = OpenBatch(id="b-hand-40", entries=(), at_ms=0, size_max=40)
    lost_again = OpenBatch(id="c-hand-30", entries=(), at_ms=0, size_max=30)
    assert size_needed([]) == 0
    assert size_needed([stored]) == 2
    assert size_needed([stored, lost, lost_again]) == 42


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_lost_batch_is_kept_for_as_long_as_the_stored_one_beside_it_may_be_redelivered(is_drained: bool) -> None:
    stored = OpenBatch(id="a", entries=tuple((b"a%d" % n, f"letter {n}") for n in range(20)), at_ms=0)
    lost = OpenBatch(id="b-hand-60", entries=(), at_ms=0, size_max=60)
    fresh = [DeliveryIdentity(fingerprint=b"fresh", redelivered=False, has_id=True)]

    def circumstances(now_ms: int) -> BatchContext:
        return BatchContext(
            requeues_to_front=True,
            is_complete=True,
            is_drained=is_drained,
            is_first=False,
            now_ms=now_ms,
            grace_ms=75_000,
        )

    soon = reconcile(fresh, [stored, lost], circumstances(60_000))
    assert (soon.closed, soon.left) == ((), (stored, lost))
    # The broker noticed the death late, and the lost batch comes first.
    back = [b"b%d" % n for n in range(40)] + [b"a%d" % n for n in range(20)]
    held = [DeliveryIdentity(fingerprint=one, redelivered=True, has_id=True) for one in back]
    late = reconcile(held, soon.left, circumstances(80_000))
    assert [one for one in late.known if one is not None] == [id for _, id in stored.entries]
    later = reconcile(fresh, [lost], circumstances(80_000))
    assert (later.closed, later.left) == (("b-hand-60",), ())
