"""What queues do, each a fact about RabbitMQ: order, expiry, length, consumers."""

import pytest

from redrive.embedded.engine import Confirm, ConfirmNack
from redrive.embedded.engine.profiles import PROFILES
from tests.unit.embedded.rig import Rig

KINDS = ["classic", "quorum"]
every_profile = pytest.mark.parametrize("profile", PROFILES)
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_profile
@every_kind
def test_only_the_head_expires(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "slow", expiration="3000")
    rig.publish("q", "fast", expiration="200")
    rig.pass_time(2.9)
    assert rig.drain("dead") == []
    rig.pass_time(0.2)
    assert rig.drain("dead") == ["slow", "fast"]


@every_profile
@every_kind
def test_the_smaller_of_both_ttls_counts_and_a_message_in_hand_does_not_expire(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("q", kind, message_ttl=1000)
    rig.publish("q", "short", expiration="100")
    rig.pass_time(0.2)
    assert rig.get("q") is None
    rig.publish("q", "held", expiration="5000")
    got = rig.got("q")
    assert got is not None
    rig.pass_time(2)
    rig.channel.nack(got.delivery_tag)
    assert rig.get("q") is None  # back with its old deadline, so gone at once


def test_a_ttl_of_zero_delivers_now_or_never() -> None:
    rig = Rig()
    rig.queue("q", message_ttl=0)
    rig.publish("q", "nobody there")
    assert rig.get("q") is None
    rig.channel.consume("q", "tag", no_ack=True, exclusive=False, arguments={})
    rig.publish("q", "now")
    assert rig.delivered() == [("tag", "now")]


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
def test_a_full_classic_queue_refuses_the_one_too_many_and_a_quorum_queue_the_next(profile: str) -> None:
    for kind, taken in (("classic", 2), ("quorum", 3)):
        rig = Rig(profile)
        rig.queue("q", kind, max_length=2, overflow="reject-publish")
        rig.channel.select_confirms()
        for body in "abcde":
            rig.publish("q", body)
        outcomes = [type(effect) for effect in rig.effects()]
        assert outcomes == [Confirm] * taken + [ConfirmNack] * (5 - taken)
        assert rig.drain("q") == list("abcde")[:taken]


@every_profile
@every_kind
def test_drop_head_dead_letters_the_oldest(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, max_length=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in "abcd":
        rig.publish("q", body)
    assert rig.drain("q") == ["c", "d"]
    assert rig.drain("dead") == ["a", "b"]


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
def test_an_unused_queue_goes_after_its_expires_and_using_it_renews_that(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", expires=1000)
    rig.pass_time(0.9)
    rig.get("q")
    rig.pass_time(0.9)
    assert "q" in rig.engine.vhosts["/"].queues
    rig.pass_time(0.2)
    assert "q" not in rig.engine.vhosts["/"].queues


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


def test_4_3_delays_failed_messages_longer_each_time_up_to_the_maximum() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum", delayed_retry_type="failed", delayed_retry_min=300, delayed_retry_max=800)
    rig.publish("q", "m")
    for delay_s in (0.3, 0.6, 0.8, 0.8):
        got = rig.got("q")
        assert got is not None
        rig.channel.reject(got.delivery_tag, requeue=True)
        rig.pass_time(delay_s - 0.01)
        assert rig.got("q") is None
        rig.pass_time(0.01)
    assert rig.drain("q") == ["m"]


@pytest.mark.parametrize(("profile", "order"), [("3.10", "cba"), ("4.0", "cba"), ("4.3", "abc")])
def test_what_a_quorum_queue_drops_at_one_stroke_dies_the_latest_first_before_4_3(profile: str, order: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", "quorum", max_length=3, dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in "abc":
        rig.publish("q", body)
    for _ in "abc":
        rig.got("q")
    for body in "def":
        rig.publish("q", body)
    rig.channel.close()  # a, b and c come back at once, before d, e and f, and are dropped
    rig.channel = rig.open_channel()
    assert rig.drain("dead") == list(order)
    assert rig.drain("q") == ["d", "e", "f"]


@every_profile
def test_a_quorum_queue_drops_one_after_the_other_what_is_nacked_after_single_gets(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", "quorum", max_length=2, dead_letter_exchange="", dead_letter_routing_key="dead", delivery_limit=5)
    for body in "ab":
        rig.publish("q", body)
    for _ in "ab":
        rig.got("q")
    for body in "cd":
        rig.publish("q", body)
    rig.channel.nack(0, multiple=True)
    assert rig.drain("dead") == ["a", "b"]
    assert rig.drain("q") == ["c", "d"]


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
@pytest.mark.parametrize(("kind", "no_ack", "left"), [("classic", False, 1), ("quorum", False, 3), ("quorum", True, 1)])
def test_basic_get_counts_what_has_expired_behind_the_message_only_if_a_quorum_queue_keeps_that(
    profile: str, kind: str, no_ack: bool, left: int
) -> None:
    rig = Rig(profile)
    rig.queue("q", kind)
    rig.publish("q", "stays")
    for body in ("late 1", "late 2"):
        rig.publish("q", body, expiration="100")
    rig.publish("q", "stays too")
    rig.pass_time(0.2)
    got = rig.got("q", no_ack=no_ack)
    assert got is not None
    assert got.left == left
    assert rig.drain("q") == ["stays too"]


def test_purging_a_quorum_queue_takes_and_counts_delayed_messages_on_4_3() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum", delayed_retry_type="all", delayed_retry_min=500, delayed_retry_max=500)
    for body in "ab":
        rig.publish("q", body)
    got = rig.got("q")
    assert got is not None
    rig.channel.nack(got.delivery_tag)
    assert rig.channel.purge_queue("q") == 2
    rig.pass_time(1)
    assert rig.drain("q") == []


@pytest.mark.parametrize(("profile", "purged", "arrives"), [("3.10", 0, ["m"]), ("4.0", 0, ["m"]), ("4.3", 1, [])])
def test_purging_a_quorum_queue_takes_and_counts_held_dead_letters_on_4_3(
    profile: str, purged: int, arrives: list[str]
) -> None:
    rig = Rig(profile)
    at_least_once = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    rig.queue("q", "quorum", dead_letter_exchange="", dead_letter_routing_key="dead", **at_least_once)
    rig.publish("q", "m")
    got = rig.got("q")
    assert got is not None
    rig.channel.reject(got.delivery_tag, requeue=False)
    assert rig.channel.purge_queue("q") == purged
    rig.queue("dead")
    rig.pass_time(180)
    assert rig.drain("dead") == arrives


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


def test_delayed_messages_fill_a_queue_that_refuses() -> None:
    rig = Rig("4.3")
    delayed = {"delayed_retry_type": "all", "delayed_retry_min": 500, "delayed_retry_max": 500}
    rig.queue("q", "quorum", max_length=1, overflow="reject-publish", **delayed)
    rig.channel.select_confirms()
    for body in "ab":
        rig.publish("q", body)
    tags = [got.delivery_tag for got in (rig.got("q"), rig.got("q")) if got is not None]
    for tag in tags:
        rig.channel.nack(tag)
    rig.effects()
    rig.publish("q", "c")
    assert [type(effect) for effect in rig.effects()] == [ConfirmNack]
    rig.pass_time(1)
    assert rig.drain("q") == ["a", "b"]


def test_of_messages_due_at_one_moment_the_first_put_off_comes_first_then_the_oldest() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum", delayed_retry_type="all", delayed_retry_min=500, delayed_retry_max=500)
    for body in "abcd":
        rig.publish("q", body)
    tags = [got.delivery_tag for got in (rig.got("q") for _ in "abcd") if got is not None]
    for tag in (tags[2], tags[3], tags[1], tags[0]):
        rig.channel.nack(tag)
    rig.pass_time(0.5)
    assert rig.drain("q") == ["c", "a", "b", "d"]


@every_profile
@every_kind
def test_messages_fetched_one_by_one_come_back_one_by_one_so_that_the_late_expire_before_they_overflow(
    profile: str, kind: str
) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    dead_letters = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    limit = {"delivery_limit": 5} if kind == "quorum" else {}
    rig.queue("q", kind, max_length=2, **dead_letters, **limit)
    for body in ("late 1", "late 2"):
        rig.publish("q", body, expiration="100")
    for _ in range(2):
        rig.got("q")
    rig.publish("q", "stays")
    rig.pass_time(0.2)
    rig.channel.nack(0, multiple=True)
    assert [rig.deaths("dead") for _ in range(2)] == [[("q", "expired", 1)]] * 2
    assert rig.drain("q") == ["stays"]


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


@every_profile
@every_kind
@pytest.mark.parametrize("how", ["nack", "reject", "close"])
def test_what_went_straight_to_a_consumer_and_comes_back_expires(profile: str, kind: str, how: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, dead_letter_exchange="", dead_letter_routing_key="dead")
    consumer = rig.open_channel()
    consumer.qos(1)
    consumer.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    rig.publish("q", "m", expiration="300")
    assert rig.delivered() == [("tag", "m")]
    consumer.cancel("tag")
    rig.pass_time(0.1)
    match how:
        case "nack":
            consumer.nack(1)
        case "reject":
            consumer.reject(1)
        case _:
            consumer.close()
    rig.pass_time(0.1)
    assert rig.drain("dead") == []
    rig.pass_time(0.2)
    assert rig.deaths("dead") == [("q", "expired", 1)]


@every_profile
@every_kind
def test_what_comes_back_too_late_dies_before_the_next_consumer_sees_it(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, message_ttl=300, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    rig.publish("q", "m")
    assert rig.delivered() == [("tag", "m")]
    rig.pass_time(1)
    rig.channel.nack(1)
    assert rig.delivered() == []
    assert rig.drain("dead") == ["m"]


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
