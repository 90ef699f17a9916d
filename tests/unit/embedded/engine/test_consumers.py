"""Which consumer gets the next message: turns, priorities, prefetch, single active and exclusive consumers."""

import pytest

from redrive.embedded.engine import AmqpError
from tests.unit.embedded.engine_rig import Rig, every_kind, every_profile


@every_profile
def test_consumers_take_turns_and_the_higher_priority_goes_first(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q")
    for tag, priority in (("low", 0), ("other", 0), ("high", 5)):
        channel = rig.open_channel()
        channel.qos(1)
        channel.consume("q", tag, no_ack=False, exclusive=False, arguments={"x-priority": priority})
    for body in "abcd":
        rig.publish("q", body)
    assert rig.delivered() == [("high", "a"), ("low", "b"), ("other", "c")]


@every_profile
def test_an_ack_makes_room_for_the_next_message(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q")
    rig.channel.qos(2)
    rig.channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    for body in "abcd":
        rig.publish("q", body)
    assert [body for _, body in rig.delivered()] == ["a", "b"]
    rig.channel.ack(1)
    assert [body for _, body in rig.delivered()] == ["c"]
    rig.channel.ack(3, multiple=True)
    assert [body for _, body in rig.delivered()] == ["d"]


@every_profile
def test_each_consumer_of_a_channel_has_the_prefetch_for_itself_and_one_without_acks_has_none(profile: str) -> None:
    rig = Rig(profile)
    for queue in ("q", "free"):
        rig.queue(queue)
    rig.channel.qos(2)
    for tag in "xy":
        rig.channel.consume("q", tag, no_ack=False, exclusive=False, arguments={})
    rig.channel.consume("free", "z", no_ack=True, exclusive=False, arguments={})
    for body in "abcdef":
        rig.publish("q", body)
        rig.publish("free", body)
    delivered = rig.delivered()
    assert [one for one in delivered if one[0] != "z"] == [("x", "a"), ("y", "b"), ("x", "c"), ("y", "d")]
    assert [body for tag, body in delivered if tag == "z"] == list("abcdef")
    assert rig.drain("q") == ["e", "f"]


@every_profile
def test_a_prefetch_of_zero_is_2000_in_a_quorum_queue(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum")
    rig.channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    rig.engine.vhosts["/"].queues["q"].dispatch()
    for _ in range(2100):
        rig.publish("q", "m")
        rig.effects()
    assert rig.engine.unacked_count == 2000
    rig.channel.ack(1)
    assert len(rig.delivered()) == 1


@every_profile
def test_only_one_consumer_is_active_until_it_leaves(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", single_active_consumer=True)
    for tag in ("first", "second"):
        rig.channel.consume("q", tag, no_ack=True, exclusive=False, arguments={})
    rig.publish("q", "a")
    rig.channel.cancel("first")
    rig.publish("q", "b")
    assert rig.delivered() == [("first", "a"), ("second", "b")]


@every_profile
@every_kind
def test_a_single_active_consumer_gets_everything_and_the_next_begins_when_it_leaves(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("q", kind, single_active_consumer=True)
    for tag in ("first", "second", "third"):
        rig.channel.consume("q", tag, no_ack=True, exclusive=False, arguments={})
    for body in "abc":
        rig.publish("q", body)
    rig.channel.cancel("first")
    for body in "de":
        rig.publish("q", body)
    assert rig.delivered() == [(tag, body) for tag, bodies in (("first", "abc"), ("second", "de")) for body in bodies]


@every_profile
@pytest.mark.parametrize("first_is_exclusive", [True, False])
def test_an_exclusive_consumer_is_alone_whoever_comes_first(profile: str, first_is_exclusive: bool) -> None:
    rig = Rig(profile)
    rig.queue("q")
    rig.channel.consume("q", "first", no_ack=True, exclusive=first_is_exclusive, arguments={})
    with pytest.raises(AmqpError) as refused:
        rig.channel.consume("q", "second", no_ack=True, exclusive=not first_is_exclusive, arguments={})
    assert (refused.value.code, "in exclusive use" in refused.value.text) == (403, True)


def test_a_shared_prefetch_bounds_all_consumers_of_a_channel_but_on_4_3_each() -> None:
    for profile, expected in (("3.10", 2), ("4.0", 2), ("4.3", 4)):
        rig = Rig(profile)
        rig.queue("q")
        rig.channel.qos(2, per_channel=True)
        for tag in "xy":
            rig.channel.consume("q", tag, no_ack=False, exclusive=False, arguments={})
        for number in range(10):
            rig.publish("q", str(number))
        assert len(rig.delivered()) == expected


def _share(rig: Rig, count: int, consumers: dict[str, str], *, messages: int) -> None:
    """Consumers by tag with their queues, on one channel with a shared prefetch; each queue has so many messages."""
    for queue in dict.fromkeys(consumers.values()):
        rig.queue(queue)
        for number in range(messages):
            rig.publish(queue, str(number))
    rig.channel.qos(count, per_channel=True)
    for tag, queue in consumers.items():
        consumer = rig.channel.consume(queue, tag, no_ack=False, exclusive=False, arguments={})
        assert consumer is not None
        consumer.queue.dispatch()


def _order_of_turns(rig: Rig, acks: int) -> str:
    order, tag = "".join(one for one, _ in rig.delivered()), 0
    while tag < min(acks, len(order)):
        tag += 1
        rig.channel.ack(tag)
        order += "".join(one for one, _ in rig.delivered())
    return order


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
@pytest.mark.parametrize(("shared", "order"), [(1, "aabcabcab"), (3, "aaaabcabcab")])
def test_consumers_of_one_queue_take_turns_under_a_shared_prefetch(profile: str, shared: int, order: str) -> None:
    rig = Rig(profile)
    _share(rig, shared, {"a": "q", "b": "q", "c": "q"}, messages=30)
    assert _order_of_turns(rig, 8) == order


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_queues_take_turns_under_a_shared_prefetch_and_none_starves(profile: str) -> None:
    rig = Rig(profile)
    _share(rig, 2, {"a": "q1", "b": "q2", "c": "q3"}, messages=20)
    order = _order_of_turns(rig, 40)
    assert {tag: order.count(tag) for tag in "abc"} == {"a": 16, "b": 13, "c": 13}


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_a_consumer_without_acks_waits_while_the_shared_prefetch_is_used_up(profile: str) -> None:
    rig = Rig(profile)
    _share(rig, 2, {"acks": "q"}, messages=3)
    rig.queue("other")
    rig.channel.consume("other", "free", no_ack=True, exclusive=False, arguments={})
    rig.publish("other", "m")
    assert rig.delivered() == [("acks", "0"), ("acks", "1")]
    rig.channel.ack(2, multiple=True)
    assert sorted(rig.delivered()) == [("acks", "2"), ("free", "m")]
    for body in "nop":  # it takes no place itself
        rig.publish("other", body)
    assert rig.delivered() == [("free", "n"), ("free", "o"), ("free", "p")]


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_a_prefetch_for_each_consumer_ends_the_one_for_all(profile: str) -> None:
    rig = Rig(profile)
    _share(rig, 2, {"a": "q"}, messages=5)
    assert len(rig.delivered()) == 2
    rig.channel.qos(1)
    assert len(rig.delivered()) == 3


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_a_shared_prefetch_counts_what_basic_get_holds_when_it_is_set_and_for_good(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q")
    for number in range(9):
        rig.publish("q", str(number))
    assert rig.got("q") is not None
    rig.channel.qos(2, per_channel=True)
    consumer = rig.channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    assert consumer is not None
    consumer.queue.dispatch()
    assert len(rig.delivered()) == 1
    rig.channel.ack(1)
    assert rig.delivered() == []


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_a_consumer_at_its_own_limit_keeps_its_turn_under_a_shared_one(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q")
    rig.channel.qos(1)
    rig.channel.consume("q", "a", no_ack=False, exclusive=False, arguments={})
    rig.channel.qos(0)
    rig.channel.consume("q", "b", no_ack=False, exclusive=False, arguments={})
    rig.channel.qos(2, per_channel=True)
    for number in range(5):
        rig.publish("q", str(number))
    assert [tag for tag, _ in rig.delivered()] == ["a", "b"]
    rig.channel.ack(1)
    assert [tag for tag, _ in rig.delivered()] == ["a"]
