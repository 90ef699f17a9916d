"""Coalesced acks and discards settle exactly what was asked for, in any order, and never name an unknown tag."""

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import wire
from redrive.client.coalesced_acks import CoalescedAcks
from tests.examples import examples
from tests.unit.wire.pairs import open_pair


class Ledger:
    """A broker's view of one channel: what is outstanding, and how each delivery was settled."""

    def __init__(self, count: int) -> None:
        self.client, self.server = open_pair()
        self.outstanding = set(range(1, count + 1))
        self.fate: dict[int, str] = {}
        self.frames = 0

    def read(self) -> None:
        for event in self.server.receive_data(self.client.data_to_send()):
            self.frames += 1
            match event:
                case wire.Ack(delivery_tag=tag, multiple=multiple):
                    self._settle(tag, multiple, "ack")
                case wire.Nack(delivery_tag=tag, multiple=multiple, requeue=requeue):
                    self._settle(tag, multiple, "nack True" if requeue else "discard")
                case wire.Reject(delivery_tag=tag, requeue=requeue):
                    self._settle(tag, False, f"reject {requeue}")

    def _settle(self, tag: int, multiple: bool, fate: str) -> None:
        assert tag in self.outstanding, f"unknown delivery tag {tag}"  # RabbitMQ closes the channel with 406
        for one in {one for one in self.outstanding if one <= tag} if multiple else {tag}:
            self.outstanding.discard(one)
            self.fate[one] = fate


def test_acks_in_a_row_are_one_frame() -> None:
    ledger = Ledger(100)
    acks = CoalescedAcks(ledger.client, 1)
    for tag in range(1, 101):
        acks.ack(tag)
    acks.write(stragglers=False)
    ledger.read()
    assert ledger.frames == 1
    assert ledger.fate == dict.fromkeys(range(1, 101), "ack")


def test_an_ack_above_a_gap_waits_until_the_gap_closes_or_its_time_is_up() -> None:
    ledger = Ledger(3)
    acks = CoalescedAcks(ledger.client, 1)
    acks.ack(3)
    acks.write(stragglers=False)
    ledger.read()
    assert ledger.fate == {}
    acks.ack(1)
    acks.write(stragglers=True)
    ledger.read()
    assert ledger.fate == {1: "ack", 3: "ack"}
    acks.ack(2)
    acks.write(stragglers=False)
    ledger.read()
    assert ledger.fate == {1: "ack", 2: "ack", 3: "ack"}


def test_a_multiple_nack_takes_only_what_was_not_acked_before() -> None:
    ledger = Ledger(5)
    acks = CoalescedAcks(ledger.client, 1)
    acks.ack(2)
    acks.nack_up_to(4, requeue=True)
    acks.ack(5)
    acks.write(stragglers=True)
    ledger.read()
    assert ledger.fate == {1: "nack True", 2: "ack", 3: "nack True", 4: "nack True", 5: "ack"}


def test_discards_in_a_row_are_one_frame_between_the_acks_around_them() -> None:
    ledger = Ledger(30)
    acks = CoalescedAcks(ledger.client, 1)
    for tag in range(1, 31):
        if 10 < tag <= 20:
            acks.discard(tag)
        else:
            acks.ack(tag)
    acks.write(stragglers=False)
    ledger.read()
    assert ledger.frames == 3
    assert ledger.fate == {tag: "discard" if 10 < tag <= 20 else "ack" for tag in range(1, 31)}


def test_an_ack_of_everything_up_to_a_delivery_leaves_what_was_discarded_before() -> None:
    ledger = Ledger(6)
    acks = CoalescedAcks(ledger.client, 1)
    acks.discard(1)
    acks.discard(3)
    acks.ack(4)
    acks.ack_up_to(5)
    acks.discard(6)
    acks.write(stragglers=True)
    ledger.read()
    assert ledger.fate == {1: "discard", 2: "ack", 3: "discard", 4: "ack", 5: "ack", 6: "discard"}


steps = st.permutations(range(1, 25)).flatmap(
    lambda order: st.tuples(
        st.just(order),
        st.lists(
            st.sampled_from(["ack", "ack", "ack", "discard", "discard", "nack True", "reject True"]),
            min_size=24,
            max_size=24,
        ),
        st.lists(st.sampled_from(["", "", "write", "write all"]), min_size=24, max_size=24),
    )
)


@settings(max_examples=examples(300), deadline=None)
@given(steps)
def test_every_delivery_is_settled_as_it_was_asked_for(plan: tuple[list[int], list[str], list[str]]) -> None:
    ledger = Ledger(24)
    acks = CoalescedAcks(ledger.client, 1)
    expected = {}
    for tag, fate, write in zip(*plan, strict=True):
        expected[tag] = fate
        assert not acks.is_settled(tag)
        if fate == "ack":
            acks.ack(tag)
        elif fate == "discard":
            acks.discard(tag)
        else:
            acks.requeue(tag, counted=fate == "reject True")
        assert acks.is_settled(tag)
        if write:
            acks.write(stragglers=write == "write all")
        ledger.read()
    acks.write(stragglers=True)
    ledger.read()
    assert ledger.fate == expected
    assert ledger.outstanding == set()
