"""The consumer timeout: what happens to a message that a client does not ack in time."""

from typing import Any

import pytest

from redrive import wire
from redrive.embedded.engine import (
    AmqpError,
    ConsumerCancelled,
    ConsumerTimedOut,
    Deliver,
)
from redrive.topology import Arguments, Policy
from tests.unit.embedded.engine_rig import Rig, every_kind, every_profile

closing = pytest.mark.parametrize("profile", ["3.10", "4.0"])
HALF_AN_HOUR_S = 1800


def consume(rig: Rig, tag: str = "tag", **arguments: Any) -> None:
    table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    rig.channel.consume("q", tag, no_ack=False, exclusive=False, arguments=table)
    rig.engine.vhosts["/"].queues["q"].dispatch()


def seen(rig: Rig) -> list[str]:
    """What the client hears: deliveries by body, cancels by tag, the end of its channel by its text."""
    heard = []
    for effect in rig.effects():
        match effect:
            case Deliver():
                heard.append(effect.message.body.decode())
            case ConsumerCancelled():
                heard.append(f"cancel {effect.consumer_tag}")
            case ConsumerTimedOut():
                heard.append(effect.error.text.partition(". This timeout")[0])
    return heard


@closing
@every_kind
def test_before_4_3_a_message_held_for_half_an_hour_closes_the_channel(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("q", kind)
    consume(rig)
    rig.publish("q", "m")
    rig.pass_time(HALF_AN_HOUR_S - 1)
    assert seen(rig) == ["m"]
    rig.pass_time(1)
    text = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000 ms"
    assert seen(rig) == [text]
    rig.pass_time(HALF_AN_HOUR_S)
    assert seen(rig) == []  # once is enough


@every_profile
@every_kind
def test_a_message_settled_in_time_is_no_message_held(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("q", kind)
    consume(rig)
    rig.publish("q", "a")
    rig.pass_time(HALF_AN_HOUR_S - 1)
    rig.channel.ack(1)
    rig.publish("q", "b")
    rig.pass_time(HALF_AN_HOUR_S - 1)
    assert seen(rig) == ["a", "b"]
    rig.channel.ack(2)
    assert rig.engine.next_deadline_ms is None


@closing
def test_what_is_due_after_a_timeout_happens_in_the_same_stretch_of_time(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q")
    rig.queue("late", dead_letter_exchange="", dead_letter_routing_key="parked")
    rig.queue("parked")
    consume(rig)
    rig.publish("q", "held")
    rig.publish("late", "m", expiration=str((HALF_AN_HOUR_S + 60) * 1000))
    rig.pass_time(2 * HALF_AN_HOUR_S)
    assert len(rig.engine.vhosts["/"].queues["parked"].ready) == 1
    assert seen(rig)[1].startswith("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out")


@closing
@every_kind
def test_messages_of_a_deleted_queue_that_are_rejected_are_held_no_more(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("q", kind)
    consume(rig)
    for body in "abc":
        rig.publish("q", body)
    assert seen(rig) == ["a", "b", "c"]
    rig.channel.delete_queue("q")
    rig.channel.nack(3, multiple=True, requeue=False)
    assert rig.engine.next_deadline_ms is None


def test_on_4_3_a_classic_queue_waits_for_ever() -> None:
    rig = Rig("4.3")
    rig.queue("q")
    consume(rig)
    rig.publish("q", "m")
    rig.pass_time(10 * HALF_AN_HOUR_S)
    assert seen(rig) == ["m"]


def test_on_4_3_a_quorum_queue_takes_the_message_back_and_cancels_the_consumer() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum")
    consume(rig)
    rig.publish("q", "m")
    rig.pass_time(HALF_AN_HOUR_S)
    assert seen(rig) == ["m", "cancel tag"]
    got = rig.got("q")
    assert got is not None
    headers = wire.Properties(got.header).headers
    assert (got.redelivered, headers) == (True, {"x-acquired-count": 1})


def test_on_4_3_another_consumer_gets_what_was_taken_back() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum")
    consume(rig, "slow", consumer_timeout=1000)
    rig.publish("q", "m")
    consume(rig, "other")
    assert rig.delivered() == [("slow", "m")]
    rig.pass_time(1)
    assert rig.delivered() == [("other", "m")]
    rig.channel.ack(2)
    assert rig.engine.whereabouts("m") == []


def test_on_4_3_a_late_ack_is_fine_and_the_cancelled_consumer_gets_messages_again() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum", consumer_timeout=1000)
    consume(rig)
    rig.publish("q", "m")
    rig.pass_time(1)
    assert seen(rig) == ["m", "cancel tag"]
    rig.publish("q", "n")
    assert seen(rig) == []
    rig.channel.ack(1)
    assert seen(rig) == ["m", "n"]
    with pytest.raises(AmqpError, match="unknown delivery tag 1"):
        rig.channel.ack(1)


def test_on_4_3_late_settlements_of_several_cover_what_was_taken_back_and_what_is_in_hand() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum", consumer_timeout=1000)
    consume(rig)
    rig.publish("q", "early")
    rig.pass_time(0.5)
    rig.publish("q", "late")
    rig.pass_time(0.5)
    assert seen(rig) == ["early", "late", "cancel tag"]
    rig.channel.ack(2, multiple=True)
    assert seen(rig) == ["early"]
    rig.channel.ack(3)
    assert rig.engine.unacked_count == 0
    assert rig.drain("q") == []


def test_on_4_3_a_fetched_message_held_for_too_long_closes_the_channel() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum", consumer_timeout=1000)
    rig.publish("q", "m")
    rig.got("q")
    rig.pass_time(1)
    text = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: -1 ms"
    assert seen(rig) == [text]
    rig.channel.close()
    rig.channel = rig.open_channel()
    assert rig.drain("q") == ["m"]


@pytest.mark.parametrize(("profile", "heard"), [("3.10", False), ("4.0", True), ("4.3", True)])
def test_a_queue_may_have_a_timeout_of_its_own_but_on_3_10(profile: str, heard: bool) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum", consumer_timeout=1000)
    consume(rig)
    rig.publish("q", "m")
    rig.effects()
    rig.pass_time(1)
    assert bool(rig.effects()) is heard


def test_a_policy_that_shortens_the_timeout_counts_from_the_delivery() -> None:
    rig = Rig("4.0")
    rig.queue("q")
    consume(rig)
    rig.publish("q", "m")
    rig.pass_time(60)
    rig.effects()
    timeout = Arguments({"consumer-timeout": 30_000})
    rig.engine.vhosts["/"].set_policy(Policy(name="p", pattern="^q$", definition=timeout))
    rig.pass_time(0)
    assert [type(effect) for effect in rig.effects()] == [ConsumerTimedOut]
