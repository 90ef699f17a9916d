"""Declaring and deleting queues and exchanges, with RabbitMQ's errors; exclusive and auto-delete queues."""

from typing import Any

import pytest

from redrive.embedded import PROFILES
from redrive.embedded.engine import (
    AmqpError,
    ConsumerCancelled,
)
from tests.unit.embedded.engine_rig import Rig, every_profile


def refused(rig: Rig, act: Any) -> str:
    with pytest.raises(AmqpError) as refusal:
        act()
    return f"{refusal.value.code} {refusal.value.text}"


@every_profile
def test_refusals_are_in_rabbitmqs_words(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", message_ttl=1000)
    hard = "503 COMMAND_INVALID" if profile == "3.10" else "406 PRECONDITION_FAILED"
    where = "queue 'n' in vhost '/'"
    channel = rig.channel
    cases: list[tuple[Any, str]] = [
        (
            lambda: rig.queue("q", message_ttl=5),
            "406 PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' "
            "in vhost '/': received '5' but current is '1000'",
        ),
        (
            lambda: rig.queue("q"),
            "406 PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "received none but current is the value '1000' of type 'signedint'",
        ),
        (lambda: channel.declare_queue("nope", passive=True), "404 NOT_FOUND - no queue 'nope' in vhost '/'"),
        (lambda: channel.publish("nope", "", b"\0\0", b""), "404 NOT_FOUND - no exchange 'nope' in vhost '/'"),
        (lambda: channel.declare_exchange("x", "nope"), f"{hard} - unknown exchange type 'nope'"),
        (lambda: channel.ack(99), "406 PRECONDITION_FAILED - unknown delivery tag 99"),
        (lambda: channel.recover(False), "540 NOT_IMPLEMENTED - requeue=false"),
        (lambda: channel.commit(), "406 PRECONDITION_FAILED - channel is not transactional"),
        (
            lambda: rig.queue("n", expires=0),
            f"406 PRECONDITION_FAILED - invalid arg 'x-expires' for {where}: {{value_zero,0}}",
        ),
        (
            lambda: rig.publish("q", "m", expiration="abc"),
            "406 PRECONDITION_FAILED - invalid expiration 'abc': no_integer",
        ),
        (
            lambda: rig.publish("q", "m", user_id="other"),
            "406 PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was 'guest'",
        ),
    ]
    for act, text in cases:
        assert refused(rig, act) == text


@every_profile
def test_a_dead_letter_key_without_an_exchange_is_refused(profile: str) -> None:
    rig = Rig(profile)
    text = refused(rig, lambda: rig.queue("q", dead_letter_routing_key="parked"))
    assert text.startswith("406 PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue 'q'")
    assert "routing_key_but_no_dlx_defined" in text
    rig.queue("q", dead_letter_routing_key="parked", dead_letter_exchange="")


COMPARED: list[tuple[str, object, object]] = [
    ("message-ttl", 1, 2),
    ("expires", 10_000, 20_000),
    ("max-length", 1, 2),
    ("max-length-bytes", 1, 2),
    ("overflow", "drop-head", "reject-publish"),
    ("dead-letter-exchange", "a", "b"),
    ("dead-letter-routing-key", "a", "b"),
    ("single-active-consumer", True, False),
]
COMPARED_ON_QUORUM: list[tuple[str, object, object]] = [
    ("delivery-limit", 1, 2),
    ("dead-letter-strategy", "at-most-once", "at-least-once"),
]


@every_profile
@pytest.mark.parametrize(
    ("kind", "argument", "value", "other"),
    [
        *(("classic", *case) for case in COMPARED),
        *(("quorum", *case) for case in [*COMPARED, *COMPARED_ON_QUORUM]),
    ],
)
def test_a_queue_declared_again_with_another_argument_or_without_it_is_refused(
    profile: str, kind: str, argument: str, value: object, other: object
) -> None:
    rig = Rig(profile)
    same = {"x-queue-type": kind, "x-dead-letter-exchange": "x", f"x-{argument}": value}
    rig.channel.declare_queue("q", durable=True, arguments=same)
    assert rig.channel.declare_queue("q", durable=True, arguments=same) == ("q", 0, 0)
    without = {key: kept for key, kept in same.items() if key != f"x-{argument}"}
    for changed in ({**same, f"x-{argument}": other}, without):
        with pytest.raises(AmqpError) as refused:
            rig.channel.declare_queue("q", durable=True, arguments=changed)
        assert refused.value.text.startswith(f"PRECONDITION_FAILED - inequivalent arg 'x-{argument}' for queue 'q'")


@pytest.mark.parametrize(("profile", "kind"), [("3.10", "classic"), ("4.0", "quorum"), ("4.3", "quorum")])
def test_a_vhosts_default_queue_type_fills_in_what_is_left_out_since_4_0(profile: str, kind: str) -> None:
    rig = Rig(profile)
    vhost = rig.engine.vhosts["/"]
    vhost.default_queue_type = "quorum"
    rig.channel.declare_queue("plain", durable=True)
    rig.channel.declare_queue("said", durable=True, arguments={"x-queue-type": "classic"})
    rig.channel.declare_queue("temporary", durable=True, auto_delete=True)
    rig.channel.declare_queue("mine", exclusive=True)
    kinds = {name: queue.kind for name, queue in vhost.queues.items()}
    assert kinds == {"plain": kind, "said": "classic", "temporary": "classic", "mine": "classic"}
    rig.channel.declare_queue("plain", durable=True, arguments={"x-queue-type": kind})
    rig.channel.declare_queue("plain", durable=True)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("passive", [True, False])
def test_only_the_pseudo_queue_and_a_reply_address_in_use_can_be_declared(profile: str, passive: bool) -> None:
    rig = Rig(profile)
    rig.channel.consume("amq.rabbitmq.reply-to", "tag", no_ack=True, exclusive=False, arguments={})
    own = rig.channel.reply_address
    for name in ("amq.rabbitmq.reply-to", own):
        assert rig.channel.declare_queue(name, passive=passive) == (name, 0, 1)
    for name, code in ((f"{own}x", 404), ("amq.rabbitmq.reply-to.forged", 541 if profile == "4.3" else 404)):
        with pytest.raises(AmqpError) as caught:
            rig.open_channel().declare_queue(name, passive=passive)
        assert caught.value.code == code
    rig.channel.close()
    with pytest.raises(AmqpError):
        rig.open_channel().declare_queue(own, passive=passive)


def test_exclusive_queues_go_with_their_connection_and_are_locked_to_others() -> None:
    rig = Rig()
    rig.channel.declare_queue("mine", exclusive=True)
    other = rig.engine.connect("/", "guest").open_channel(1)
    text = refused(rig, lambda: other.consume("mine", "t", no_ack=True, exclusive=False, arguments={}))
    assert text.startswith("405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'.")
    rig.engine.disconnect(rig.connection)
    assert rig.engine.queues() == []


@every_profile
def test_an_auto_delete_queue_goes_with_its_last_consumer(profile: str) -> None:
    rig = Rig(profile)
    rig.channel.declare_queue("q", auto_delete=True)
    for tag in "xy":
        rig.channel.consume("q", tag, no_ack=True, exclusive=False, arguments={})
    rig.channel.cancel("x")
    assert [queue.name for queue in rig.engine.queues()] == ["q"]
    rig.channel.cancel("y")
    assert rig.engine.queues() == []


def test_a_deleted_queue_cancels_its_consumers_and_deletes_an_auto_delete_exchange() -> None:
    rig = Rig()
    rig.channel.declare_exchange("x", "direct", auto_delete=True)
    rig.queue("q")
    rig.channel.bind_queue("q", "x", "k", {})
    rig.channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    rig.publish("q", "in hand")
    rig.effects()
    rig.channel.delete_queue("q")
    assert [effect.consumer_tag for effect in rig.effects() if isinstance(effect, ConsumerCancelled)] == ["tag"]
    assert "x" not in rig.engine.vhosts["/"].exchanges
    rig.channel.ack(1)  # of a queue that is gone: fine
    assert rig.engine.unacked_count == 0
