"""The order in which a queue delivers: requeued messages, priorities, acks and requeues of several messages."""

import pytest

from redrive.embedded import PROFILES
from tests.unit.embedded.engine_rig import Rig, every_kind, every_profile, taken


@pytest.mark.parametrize(
    ("profile", "kind", "limit", "order"),
    [
        *((profile, "classic", None, ["1", "2", "3", "4", "5"]) for profile in PROFILES),
        ("3.10", "quorum", None, ["4", "5", "3", "1", "2"]),
        ("3.10", "quorum", 5, ["3", "1", "2", "4", "5"]),
        ("4.0", "quorum", None, ["3", "1", "2", "4", "5"]),
        ("4.3", "quorum", None, ["3", "1", "2", "4", "5"]),
    ],
)
def test_what_is_nacked_comes_back_where_this_kind_of_queue_puts_it(
    profile: str, kind: str, limit: int | None, order: list[str]
) -> None:
    rig = Rig(profile)
    rig.queue("q", kind, **({} if limit is None else {"delivery_limit": limit}))
    for body in "12345":
        rig.publish("q", body)
    tags = {}
    for body in "123":
        got = rig.got("q")
        assert got is not None
        tags[body] = got.delivery_tag
    for body in "312":
        rig.channel.nack(tags[body])
    assert rig.drain("q") == order


@every_profile
@every_kind
def test_what_a_lost_consumer_had_in_hand_is_back_in_its_queue_and_redelivered(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in "ab":
        rig.publish("q", body)
    other = rig.open_channel()
    other.get("q", no_ack=False)
    other.close()
    assert [(got.message.body, got.redelivered) for got in (taken(rig, "q"), taken(rig, "q"))] == [
        (b"a", True),
        (b"b", False),
    ]
    assert rig.drain("dead") == []


@every_profile
@every_kind
def test_an_ack_of_several_settles_the_named_one_too_and_only_ready_messages_are_counted(
    profile: str, kind: str
) -> None:
    rig = Rig(profile)
    rig.queue("q", kind)
    for body in "abcd":
        rig.publish("q", body)
    tags = [taken(rig, "q").delivery_tag for _ in range(3)]
    assert rig.channel.declare_queue("q", passive=True)[1] == 1
    rig.channel.ack(tags[1], multiple=True)
    assert rig.engine.unacked_count == 1
    rig.channel.nack(tags[2])
    assert rig.drain("q") == (["d", "c"] if (profile, kind) == ("3.10", "quorum") else ["c", "d"])


@every_profile
@every_kind
def test_what_is_said_of_several_queues_messages_they_hear_in_the_order_of_their_names(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    for name in ("b", "c", "a"):
        rig.queue(name, kind, dead_letter_exchange="", dead_letter_routing_key="dead")
        rig.publish(name, f"from {name}")
        rig.got(name)
    rig.channel.nack(0, multiple=True, requeue=False)
    assert rig.drain("dead") == ["from a", "from b", "from c"]


@pytest.mark.parametrize(("profile", "order"), [("3.10", "acdbef"), ("4.0", "bcdaef"), ("4.3", "bcdaef")])
def test_a_quorum_queue_takes_back_from_a_channel_by_consumers_on_4_x_and_by_tags_on_3_10(
    profile: str, order: str
) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum")
    for body in "abcdef":
        rig.publish("q", body)
    rig.got("q")
    for tag, prefetch in (("z", 1), ("y", 2)):
        rig.channel.qos(prefetch)
        rig.channel.consume("q", tag, no_ack=False, exclusive=False, arguments={})
        rig.engine.vhosts["/"].queues["q"].dispatch()
    rig.channel.close()
    rig.channel = rig.open_channel()
    assert rig.drain("q") == list(order)


@every_profile
def test_a_classic_queue_gives_the_highest_priority_out_first_and_knows_none_above_its_maximum(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", max_priority=5)
    for body, priority in (("none", None), ("five", 5), ("nine", 9), ("one", 1)):
        rig.publish("q", body, priority=priority)
    assert rig.drain("q") == ["five", "nine", "one", "none"]


@pytest.mark.parametrize(("profile", "order"), [("3.10", "abcd"), ("4.0", "bdac"), ("4.3", "dbac")])
def test_priorities_in_quorum_queues_are_ignored_then_shared_then_strict(profile: str, order: str) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum")
    for body, priority in (("a", None), ("b", 5), ("c", 1), ("d", 9)):
        rig.publish("q", body, priority=priority)
    assert rig.drain("q") == list(order)


def test_4_0_lets_every_third_read_prefer_the_low_priority_that_waited_longer() -> None:
    rig = Rig("4.0")
    rig.queue("q", "quorum")
    for body in ("L0", "L1", "L2", "L3"):
        rig.publish("q", body, priority=0)
    for body in ("H0", "H1", "H2", "H3", "H4"):
        rig.publish("q", body, priority=9)
    assert rig.drain("q") == ["H0", "H1", "L0", "H2", "H3", "L1", "H4", "L2", "L3"]


def test_4_0_counts_a_message_that_expires_as_a_read() -> None:
    rig = Rig("4.0")
    rig.queue("q", "quorum")
    rig.publish("q", "low", priority=0)
    rig.publish("q", "late", priority=9, expiration="100")
    for body in ("H0", "H1"):
        rig.publish("q", body, priority=9)
    rig.pass_time(0.2)
    assert rig.drain("q") == ["H0", "low", "H1"]  # late, H0, then the third read prefers the one that waited longer


def test_4_0_counts_a_message_that_meets_a_waiting_consumer_as_a_read() -> None:
    rig = Rig("4.0")
    rig.queue("q", "quorum")
    rig.channel.qos(2)
    rig.channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    for body in ("1st read", "2nd read"):
        rig.publish("q", body)
    rig.publish("q", "low", priority=0)
    rig.publish("q", "high", priority=9)
    assert rig.drain("q") == ["low", "high"]


def test_4_0_begins_to_count_reads_again_when_a_queue_is_purged() -> None:
    rig = Rig("4.0")
    rig.queue("q", "quorum")
    for body in ("1st read", "2nd read", "purged"):
        rig.publish("q", body)
    assert [rig.get("q"), rig.get("q")] == ["1st read", "2nd read"]
    rig.channel.purge_queue("q")
    rig.publish("q", "low", priority=0)
    rig.publish("q", "high", priority=9)
    assert rig.drain("q") == ["high", "low"]
