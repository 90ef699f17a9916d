"""Message TTL, expiration and x-expires: only the head of a queue expires."""

import pytest

from tests.unit.embedded.engine_rig import Rig, every_kind, every_profile


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


@every_profile
@every_kind
def test_a_message_does_not_outlive_its_queues_ttl(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m", expiration="60000")
    rig.pass_time(0.9)
    assert rig.drain("dead") == []
    rig.pass_time(0.2)
    assert rig.drain("dead") == ["m"]


def test_a_ttl_of_zero_delivers_now_or_never() -> None:
    rig = Rig()
    rig.queue("q", message_ttl=0)
    rig.publish("q", "nobody there")
    assert rig.get("q") is None
    rig.channel.consume("q", "tag", no_ack=True, exclusive=False, arguments={})
    rig.publish("q", "now")
    assert rig.delivered() == [("tag", "now")]


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


@every_profile
def test_waits_that_follow_one_another_follow_also_when_their_whole_time_passes_at_once(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("end")
    rig.queue("second", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="end")
    rig.queue("first", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="second")
    rig.publish("first", "m")
    rig.pass_time(2)
    assert rig.drain("end") == ["m"]


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


@every_profile
def test_a_queue_with_a_consumer_does_not_expire(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", expires=1000)
    rig.channel.consume("q", "tag", no_ack=True, exclusive=False, arguments={})
    rig.pass_time(10)
    assert [queue.name for queue in rig.engine.queues()] == ["q"]
    rig.channel.cancel("tag")
    rig.pass_time(2)
    assert rig.engine.queues() == []
