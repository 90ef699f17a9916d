"""When a message is dead-lettered, and what at-least-once holds."""

import pytest

from redrive.topology import Arguments, Policy
from tests.unit.embedded.engine_rig import Rig, bind, every_profile, reject


@every_profile
def test_at_most_once_loses_what_has_no_target(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", dead_letter_exchange="missing")
    rig.publish("q", "m", message_id="m")
    reject(rig, "q")
    assert rig.engine.whereabouts("m") == []
    assert str(rig.engine.life("m")[-1]).startswith("dropped: rejected in q")


@every_profile
def test_purge_delete_and_expiry_of_a_queue_dead_letter_nothing(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    for end in ("purge", "delete", "expire"):
        rig.queue(end, dead_letter_exchange="", dead_letter_routing_key="dead", expires=1000)
        rig.publish(end, "m")
    rig.channel.purge_queue("purge")
    rig.channel.delete_queue("delete")
    rig.pass_time(2)
    assert rig.drain("dead") == []


@every_profile
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_ack_that_uncovers_an_expired_message_buries_it_at_once(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.channel.qos(1)
    rig.channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    rig.publish("q", "in hand")
    rig.publish("q", "next")
    rig.publish("q", "late", expiration="100")
    rig.pass_time(0.2)
    rig.channel.ack(1)
    assert [body for _, body in rig.delivered()] == ["in hand", "next"]
    assert [entry.message.body for entry in rig.engine.vhosts["/"].queues["dead"].ready] == [b"late"]


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_a_wider_shared_prefetch_that_uncovers_an_expired_message_buries_it_at_once(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.channel.qos(1, per_channel=True)
    rig.channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    rig.publish("q", "in hand")
    rig.publish("q", "next")
    rig.publish("q", "late", expiration="100")
    rig.pass_time(0.2)
    rig.channel.qos(2, per_channel=True)
    assert [body for _, body in rig.delivered()] == ["in hand", "next"]
    assert [entry.message.body for entry in rig.engine.vhosts["/"].queues["dead"].ready] == [b"late"]


@every_profile
def test_a_policy_that_makes_a_queue_too_long_buries_its_oldest_at_once(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in "ab":
        rig.publish("q", body)
    rig.engine.vhosts["/"].set_policy(Policy(name="p", pattern="^q$", definition=Arguments({"max-length": 1})))
    queues = rig.engine.vhosts["/"].queues
    assert [entry.message.body for entry in queues["dead"].ready] == [b"a"]
    assert rig.drain("q") == ["b"]


@every_profile
def test_at_least_once_holds_the_dead_until_their_target_is_there(profile: str) -> None:
    rig = Rig(profile)
    rig.queue(
        "q",
        "quorum",
        message_ttl=1000,
        dead_letter_exchange="",
        dead_letter_routing_key="late",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    rig.publish("q", "m", message_id="m")
    rig.pass_time(60)
    assert [place.state for place in rig.engine.whereabouts("m")] == ["held"]
    assert rig.channel.declare_queue("q", passive=True)[1] == 0
    rig.queue("late")
    rig.pass_time(119)
    assert rig.drain("late") == []
    rig.pass_time(3)
    assert rig.drain("late") == ["m"]


def at_least_once(rig: Rig, exchange: str, key: str) -> None:
    rig.queue(
        "q",
        "quorum",
        message_ttl=1000,
        dead_letter_exchange=exchange,
        dead_letter_routing_key=key,
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )


@every_profile
def test_at_least_once_tries_every_180_seconds_for_as_long_as_it_takes(profile: str) -> None:
    rig = Rig(profile)
    at_least_once(rig, "", "late")
    rig.publish("q", "m", message_id="m")
    rig.pass_time(1 + 3 * 180 + 60)
    rig.queue("late")
    rig.pass_time(119)
    assert [(place.queue, place.state) for place in rig.engine.whereabouts("m")] == [("q", "held")]
    rig.pass_time(2)
    assert [(place.queue, place.state) for place in rig.engine.whereabouts("m")] == [("late", "ready")]


@every_profile
def test_at_least_once_sends_nothing_twice_to_the_target_that_has_it_while_another_is_full(profile: str) -> None:
    rig = Rig(profile)
    bind(rig, "x", "fanout", open="")
    rig.queue("full", max_length=1, overflow="reject-publish")
    rig.channel.bind_queue("full", "x", "", {})
    rig.publish("full", "in the way")
    at_least_once(rig, "x", "k")
    rig.publish("q", "m", message_id="m")
    rig.pass_time(1000)
    assert sorted((place.queue, place.state) for place in rig.engine.whereabouts("m")) == [
        ("open", "ready"),
        ("q", "held"),
    ]
    assert rig.drain("full") == ["in the way"]
    rig.pass_time(200)
    assert (rig.drain("open"), rig.drain("full")) == (["m"], ["m"])
    assert rig.engine.whereabouts("m") == []


@every_profile
def test_at_least_once_with_drop_head_is_at_most_once(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum", dead_letter_exchange="missing", dead_letter_strategy="at-least-once", overflow="drop-head")
    rig.publish("q", "m", message_id="m")
    reject(rig, "q")
    assert rig.engine.whereabouts("m") == []
    assert rig.engine.life("m")[-1].rule == "dropped"
