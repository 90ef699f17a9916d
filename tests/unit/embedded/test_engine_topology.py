"""Exchanges, bindings, refusals, policies, transactions, and what a message's routing key reaches."""

from typing import Any

import pytest

from redrive import wire
from redrive.embedded.engine import AmqpError, BasicReturn, Confirm, ConsumerCancelled
from redrive.embedded.engine.profiles import PROFILES
from redrive.topology import Arguments, Policy
from tests.unit.embedded.rig import START_MS, Rig

every_profile = pytest.mark.parametrize("profile", PROFILES)


def refused(rig: Rig, act: Any) -> str:
    with pytest.raises(AmqpError) as refusal:
        act()
    return f"{refusal.value.code} {refusal.value.text}"


def test_a_topic_takes_each_pattern_that_matches_and_a_queue_one_copy() -> None:
    rig = Rig()
    rig.channel.declare_exchange("x", "topic")
    for name, patterns in {"all": ["#"], "stars": ["*.b", "a.*"], "deep": ["a.#.c"], "none": ["b"]}.items():
        rig.queue(name)
        for pattern in patterns:
            rig.channel.bind_queue(name, "x", pattern, {})
    rig.publish("a.b", "m", exchange="x")
    rig.publish("a.x.y.c", "deep", exchange="x")
    assert {name: rig.drain(name) for name in ("all", "stars", "deep", "none")} == {
        "all": ["m", "deep"],
        "stars": ["m"],
        "deep": ["deep"],
        "none": [],
    }


def test_many_hashes_in_a_pattern_don_t_make_matching_explode() -> None:
    rig = Rig()
    rig.channel.declare_exchange("x", "topic")
    rig.queue("q")
    rig.channel.bind_queue("q", "x", ".".join(["#"] * 40 + ["end"]), {})
    rig.publish(".".join(["w"] * 100), "m", exchange="x")
    assert rig.drain("q") == []


def test_an_unbound_pattern_matches_no_more() -> None:
    rig = Rig()
    rig.channel.declare_exchange("x", "topic")
    rig.queue("q")
    rig.channel.bind_queue("q", "x", "a.#", {})
    rig.channel.unbind_queue("q", "x", "a.#", {})
    rig.publish("a.b", "m", exchange="x")
    assert rig.drain("q") == []


@every_profile
def test_a_mandatory_message_without_a_route_is_returned_before_it_is_confirmed(profile: str) -> None:
    rig = Rig(profile)
    rig.channel.select_confirms()
    rig.channel.publish("", "nowhere", b"\0\0", b"m", True)
    assert [type(effect) for effect in rig.effects()] == [BasicReturn, Confirm]


def test_the_life_of_a_returned_message_says_when_it_was_returned() -> None:
    rig = Rig()
    header = wire.Properties.of(message_id="m").raw
    rig.pass_time(5)
    rig.channel.publish("", "nowhere", header, b"m", True)
    life = rig.engine.life("m")
    assert [(hop.rule, hop.at_ms) for hop in life][-1] == ("returned", START_MS + 5_000)
    assert str(life[-1]).startswith("returned")


@every_profile
def test_a_dead_letter_key_without_an_exchange_is_refused(profile: str) -> None:
    rig = Rig(profile)
    text = refused(rig, lambda: rig.queue("q", dead_letter_routing_key="parked"))
    assert text.startswith("406 PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue 'q'")
    assert "routing_key_but_no_dlx_defined" in text
    rig.queue("q", dead_letter_routing_key="parked", dead_letter_exchange="")


def test_cc_and_bcc_route_too_and_bcc_is_not_shown() -> None:
    rig = Rig()
    for name in "abc":
        rig.queue(name)
    rig.publish("a", "m", headers={"CC": ["b"], "BCC": ["c"]})
    headers = []
    for name in "abc":
        got = rig.got(name)
        assert got is not None
        headers.append(b"BCC" in got.header)
    assert headers == [False, False, False]


def test_what_no_binding_takes_goes_to_the_alternate_by_argument_or_policy() -> None:
    rig = Rig()
    rig.channel.declare_exchange("lost", "fanout")
    rig.channel.declare_exchange("by argument", "direct", arguments={"alternate-exchange": "lost"})
    rig.channel.declare_exchange("by policy", "direct")
    rig.queue("q")
    rig.channel.bind_queue("q", "lost", "", {})
    policy = Policy(name="p", pattern="^by policy$", definition=Arguments({"alternate-exchange": "lost"}))
    rig.engine.vhosts["/"].set_policy(policy)
    rig.publish("k", "one", exchange="by argument")
    rig.publish("k", "two", exchange="by policy")
    assert rig.drain("q") == ["one", "two"]


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


def test_the_smaller_ttl_of_argument_and_policy_counts_and_an_operator_bounds_both() -> None:
    rig = Rig()
    rig.queue("q", message_ttl=5000)
    rig.publish("q", "before")
    vhost = rig.engine.vhosts["/"]
    vhost.set_policy(Policy(name="p", pattern="q", definition=Arguments({"message-ttl": 9000, "max-length": 5})))
    vhost.set_policy(Policy(name="o", pattern="q", definition=Arguments({"message-ttl": 1000}), operator=True))
    assert vhost.queues["q"].settings.message_ttl_ms == 1000
    assert vhost.queues["q"].settings.length_max == 5
    rig.pass_time(2)
    assert rig.drain("q") == ["before"]  # what was queued before the policy keeps its deadline


def test_of_two_policies_only_the_one_of_higher_priority_applies() -> None:
    rig = Rig()
    rig.queue("q")
    vhost = rig.engine.vhosts["/"]
    vhost.set_policy(Policy(name="a", pattern="q", definition=Arguments({"max-length": 5}), priority=1))
    vhost.set_policy(Policy(name="b", pattern="q", definition=Arguments({"message-ttl": 7}), priority=2))
    assert (vhost.queues["q"].settings.length_max, vhost.queues["q"].settings.message_ttl_ms) == (None, 7)
    vhost.remove_policy("b")
    assert (vhost.queues["q"].settings.length_max, vhost.queues["q"].settings.message_ttl_ms) == (5, None)


@every_profile
def test_a_transaction_says_everything_at_its_commit_or_nothing(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q")
    rig.publish("q", "first")
    channel = rig.channel
    channel.select_transactions()
    got = rig.got("q")
    assert got is not None
    rig.publish("q", "second")
    channel.ack(got.delivery_tag)
    assert rig.get("q") is None
    channel.rollback()
    assert rig.engine.unacked_count == 1
    rig.publish("q", "third")
    channel.ack(got.delivery_tag)
    channel.commit()
    assert rig.engine.unacked_count == 0
    assert rig.drain("q") == ["third"]


def test_exclusive_queues_go_with_their_connection_and_are_locked_to_others() -> None:
    rig = Rig()
    rig.channel.declare_queue("mine", exclusive=True)
    other = rig.engine.connect("/", "guest").open_channel(1)
    text = refused(rig, lambda: other.consume("mine", "t", no_ack=True, exclusive=False, arguments={}))
    assert text.startswith("405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'.")
    rig.engine.disconnect(rig.connection)
    assert rig.engine.queues() == []


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


@pytest.mark.parametrize(("profile", "order"), [("3.10", "zaBa"), ("4.0", "Baz"), ("4.3", "Baz")])
def test_4_x_sorts_headers_and_keeps_the_first_of_a_key(profile: str, order: str) -> None:
    rig = Rig(profile)
    rig.queue("q")
    entries = b"".join(b"\x01" + key.encode() + b"b" + bytes((number,)) for number, key in enumerate("zaBa"))
    rig.channel.publish("", "q", b"\x20\x00" + len(entries).to_bytes(4, "big") + entries, b"m")
    got = rig.got("q")
    assert got is not None
    kept = [(key.decode(), entry[-1]) for key, entry in wire.raw_entries(got.header[6:])]
    assert "".join(key for key, _ in kept) == order
    assert dict(reversed(kept))["a"] == 1


@pytest.mark.parametrize("profile", PROFILES)
def test_only_an_impersonator_publishes_in_anothers_name(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q")
    header = wire.Properties.of(user_id="somebody").raw
    for may in (True, False):
        channel = rig.engine.connect("/", "guest", may_impersonate=may).open_channel(1)
        if may:
            channel.publish("", "q", header, b"m")
            continue
        with pytest.raises(AmqpError, match="user_id property set to 'somebody' but authenticated user was 'guest'"):
            channel.publish("", "q", header, b"m")
    assert rig.drain("q") == ["m"]
