"""Facts about RabbitMQ that a seeded bug could break unnoticed before these tests (tests/mutations)."""

from typing import Any

import pytest

from redrive import wire
from redrive.embedded.engine import AmqpError, Confirm, ConfirmNack, GetOk
from redrive.embedded.engine.profiles import PROFILES
from redrive.topology import Arguments, Policy
from redrive.wire import methods
from tests.unit.embedded.rig import START_MS, Rig
from tests.unit.embedded.test_conformance_findings import Conversation

every_profile = pytest.mark.parametrize("profile", PROFILES)
every_kind = pytest.mark.parametrize("kind", ["classic", "quorum"])


def taken(rig: Rig, queue: str) -> GetOk:
    """The next message, in hand."""
    got = rig.got(queue)
    assert got is not None, f"nothing in {queue}"
    return got


def headers_of(got: GetOk) -> dict[str, Any]:
    return wire.Properties(got.header).headers


def reject(rig: Rig, queue: str, *, requeue: bool = False) -> None:
    rig.channel.reject(taken(rig, queue).delivery_tag, requeue=requeue)


def bind(rig: Rig, exchange: str, kind: str, **keys: str) -> None:
    """An exchange, and for each key a classic queue bound with it."""
    rig.channel.declare_exchange(exchange, kind)
    for queue, key in keys.items():
        rig.queue(queue)
        rig.channel.bind_queue(queue, exchange, key, {})


# Exchanges


@pytest.mark.parametrize(
    ("pattern", "takes"),
    [
        ("orders.#", ["orders", "orders.eu", "orders.eu.new"]),
        ("orders.*", ["orders.eu"]),
        ("#.eu", ["eu", "orders.eu"]),
        ("*", ["eu", "orders"]),
        ("#", ["", "eu", "orders", "orders.eu", "orders.eu.new"]),
        ("orders.#.new", ["orders.eu.new"]),
    ],
)
def test_a_hash_is_any_number_of_words_and_a_star_is_one(pattern: str, takes: list[str]) -> None:
    rig = Rig()
    bind(rig, "x", "topic", q=pattern)
    for key in ("", "eu", "orders", "orders.eu", "orders.eu.new"):
        rig.publish(key, key, exchange="x")
    assert rig.drain("q") == takes


@pytest.mark.parametrize(
    ("arguments", "takes"),
    [
        ({"x-match": "all", "size": "big", "colour": "red"}, ["both"]),
        ({"x-match": "any", "size": "big", "colour": "red"}, ["both", "big", "red"]),
        ({"size": "big", "colour": "red"}, ["both"]),
        ({"x-match": "all", "size": "big", "x-tenant": "a"}, ["both", "big"]),
        ({"x-match": "any", "size": "big", "x-tenant": "b"}, ["both", "big"]),
        ({"x-match": "all-with-x", "size": "big", "x-tenant": "a"}, ["both"]),
        ({"x-match": "any-with-x", "size": "big", "x-tenant": "b"}, ["both", "big", "red"]),
    ],
)
def test_a_headers_binding_asks_for_all_or_any_and_for_x_headers_only_if_told(
    arguments: dict[str, str], takes: list[str]
) -> None:
    rig = Rig()
    rig.channel.declare_exchange("x", "headers")
    rig.queue("q")
    rig.channel.bind_queue("q", "x", "", arguments)
    sent = {
        "both": {"size": "big", "colour": "red", "x-tenant": "a"},
        "big": {"size": "big"},
        "red": {"colour": "red", "x-tenant": "b"},
        "neither": {"size": "small", "colour": "blue"},
    }
    for body, headers in sent.items():
        rig.publish("", body, exchange="x", headers=headers)
    assert rig.drain("q") == takes


def test_the_alternate_gets_only_what_no_binding_takes() -> None:
    rig = Rig()
    bind(rig, "lost", "fanout", rest="")
    rig.channel.declare_exchange("x", "direct", arguments={"alternate-exchange": "lost"})
    rig.queue("q")
    rig.channel.bind_queue("q", "x", "k", {})
    rig.publish("k", "taken", exchange="x")
    rig.publish("other", "left", exchange="x")
    assert (rig.drain("q"), rig.drain("rest")) == (["taken"], ["left"])


def test_a_direct_exchange_routes_by_cc_and_bcc_too_and_not_after_an_unbind() -> None:
    rig = Rig()
    bind(rig, "x", "direct", a="a", b="b", c="c", other="other")
    headers = {"CC": ["b"], "BCC": ["c"]}
    rig.publish("a", "first", exchange="x", headers=headers)
    rig.channel.unbind_queue("b", "x", "b", {})
    rig.publish("a", "second", exchange="x", headers=headers)
    assert {name: rig.drain(name) for name in ("a", "b", "c", "other")} == {
        "a": ["first", "second"],
        "b": ["first"],
        "c": ["first", "second"],
        "other": [],
    }


# Queues


@every_profile
def test_a_classic_queue_gives_the_highest_priority_out_first_and_knows_none_above_its_maximum(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", max_priority=5)
    for body, priority in (("none", None), ("five", 5), ("nine", 9), ("one", 1)):
        rig.publish("q", body, priority=priority)
    assert rig.drain("q") == ["five", "nine", "one", "none"]


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
def test_an_auto_delete_queue_goes_with_its_last_consumer(profile: str) -> None:
    rig = Rig(profile)
    rig.channel.declare_queue("q", auto_delete=True)
    for tag in "xy":
        rig.channel.consume("q", tag, no_ack=True, exclusive=False, arguments={})
    rig.channel.cancel("x")
    assert [queue.name for queue in rig.engine.queues()] == ["q"]
    rig.channel.cancel("y")
    assert rig.engine.queues() == []


@every_profile
@pytest.mark.parametrize("first_is_exclusive", [True, False])
def test_an_exclusive_consumer_is_alone_whoever_comes_first(profile: str, first_is_exclusive: bool) -> None:
    rig = Rig(profile)
    rig.queue("q")
    rig.channel.consume("q", "first", no_ack=True, exclusive=first_is_exclusive, arguments={})
    with pytest.raises(AmqpError) as refused:
        rig.channel.consume("q", "second", no_ack=True, exclusive=not first_is_exclusive, arguments={})
    assert (refused.value.code, "in exclusive use" in refused.value.text) == (403, True)


@every_profile
@pytest.mark.parametrize(
    ("argument", "value", "other"),
    [
        ("message-ttl", 1, 2),
        ("expires", 10_000, 20_000),
        ("max-length", 1, 2),
        ("max-length-bytes", 1, 2),
        ("overflow", "drop-head", "reject-publish"),
        ("dead-letter-exchange", "a", "b"),
        ("dead-letter-routing-key", "a", "b"),
        ("single-active-consumer", True, False),
        ("delivery-limit", 1, 2),
        ("dead-letter-strategy", "at-most-once", "at-least-once"),
    ],
)
def test_a_queue_declared_again_with_another_argument_or_without_it_is_refused(
    profile: str, argument: str, value: object, other: object
) -> None:
    rig = Rig(profile)
    same = {"x-queue-type": "quorum", "x-dead-letter-exchange": "x", f"x-{argument}": value}
    rig.channel.declare_queue("q", durable=True, arguments=same)
    assert rig.channel.declare_queue("q", durable=True, arguments=same) == ("q", 0, 0)
    without = {key: kept for key, kept in same.items() if key != f"x-{argument}"}
    for changed in ({**same, f"x-{argument}": other}, without):
        with pytest.raises(AmqpError) as refused:
            rig.channel.declare_queue("q", durable=True, arguments=changed)
        assert refused.value.text.startswith(f"PRECONDITION_FAILED - inequivalent arg 'x-{argument}' for queue 'q'")


# Deaths


def rejected_then_expired(profile: str) -> tuple[Rig, GetOk]:
    """A message rejected in q, rejected in dead, expired in q, now from dead: no automatic circle."""
    rig = Rig(profile)
    rig.queue("dead", dead_letter_exchange="", dead_letter_routing_key="q")
    rig.queue("q", message_ttl=10_000, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m")
    reject(rig, "q")
    rig.pass_time(5)
    reject(rig, "dead")
    rig.pass_time(10)
    return rig, taken(rig, "dead")


@every_profile
def test_two_reasons_in_one_queue_are_two_deaths_and_the_latest_is_first(profile: str) -> None:
    _, got = rejected_then_expired(profile)
    deaths = [(death["queue"], death["reason"], death["count"]) for death in headers_of(got)["x-death"]]
    assert deaths[0] == ("q", "expired", 1)
    assert sorted(deaths[1:]) == [("dead", "rejected", 1), ("q", "rejected", 1)]


@every_profile
def test_the_first_death_stays_the_first_and_4_x_names_the_last_too(profile: str) -> None:
    _, got = rejected_then_expired(profile)
    headers = headers_of(got)
    assert [headers[f"x-first-death-{what}"] for what in ("queue", "reason", "exchange")] == ["q", "rejected", ""]
    last = [headers.get(f"x-last-death-{what}") for what in ("queue", "reason", "exchange")]
    assert last == ([None] * 3 if profile == "3.10" else ["q", "expired", ""])


@every_profile
def test_a_death_counted_again_comes_first_and_keeps_the_time_of_the_first_one(profile: str) -> None:
    rig, got = rejected_then_expired(profile)
    rig.channel.reject(got.delivery_tag, requeue=False)
    reject(rig, "q")
    death = headers_of(taken(rig, "dead"))["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == ("q", "rejected", 2)
    assert death["time"].timestamp() == START_MS // 1000


@every_profile
@every_kind
def test_a_dead_letter_has_no_expiration_any_more_and_its_death_remembers_it(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead", kind)
    rig.queue("q", kind, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m", expiration="500")
    rig.pass_time(60)
    got = taken(rig, "dead")
    (death,) = headers_of(got)["x-death"]
    assert wire.Properties(got.header).expiration is None
    assert (death["reason"], death["original-expiration"]) == ("expired", "500")
    assert (death["exchange"], death["routing-keys"]) == ("", ["q"])


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


# Time


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


@pytest.mark.parametrize(
    ("kind", "after_reject", "after_nack"), [("failed", None, "m"), ("returned", "m", None), ("all", None, None)]
)
def test_4_3_delays_what_the_type_of_delayed_retry_says(
    kind: str, after_reject: str | None, after_nack: str | None
) -> None:
    for how, expected in (("reject", after_reject), ("nack", after_nack)):
        rig = Rig("4.3")
        rig.queue("q", "quorum", delayed_retry_type=kind, delayed_retry_min=300, delayed_retry_max=800)
        rig.publish("q", "m", message_id="m")
        tag = taken(rig, "q").delivery_tag
        if how == "reject":
            rig.channel.reject(tag, requeue=True)
        else:
            rig.channel.nack(tag)
        assert rig.get("q") == expected
        assert [place.state for place in rig.engine.whereabouts("m")] == ([] if expected else ["delayed"])
        rig.pass_time(1)
        assert rig.get("q") == (None if expected else "m")


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_versions_before_4_3_take_the_arguments_of_delayed_retry_and_delay_nothing(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum", delayed_retry_type="all", delayed_retry_min=300, delayed_retry_max=800)
    rig.publish("q", "m")
    reject(rig, "q", requeue=True)
    assert rig.get("q") == "m"


@every_profile
def test_waits_that_follow_one_another_follow_also_when_their_whole_time_passes_at_once(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("end")
    rig.queue("second", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="end")
    rig.queue("first", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="second")
    rig.publish("first", "m")
    rig.pass_time(2)
    assert rig.drain("end") == ["m"]


# Limits


@every_profile
def test_max_length_bytes_drops_the_oldest_until_the_rest_fits(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", max_length_bytes=10, dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in ("aaaa", "bbbb", "cc", "ddd"):
        rig.publish("q", body)
    assert (rig.drain("dead"), rig.drain("q")) == (["aaaa"], ["bbbb", "cc", "ddd"])


@every_profile
@every_kind
def test_a_message_in_hand_takes_no_room_in_a_bounded_queue(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "in hand")
    taken(rig, "q")
    rig.publish("q", "ready")
    assert rig.drain("dead") == []
    assert rig.drain("q") == ["ready"]


@every_profile
def test_a_full_quorum_queue_takes_publishes_again_when_a_fifth_is_free(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum", max_length=5, overflow="reject-publish")
    rig.channel.select_confirms()

    def outcome() -> type:
        rig.effects()
        rig.publish("q", "m")
        (effect,) = rig.effects()
        return type(effect)

    assert [outcome() for _ in range(7)] == [Confirm] * 6 + [ConfirmNack]
    rig.get("q")
    assert outcome() is ConfirmNack  # 5 are left: not over the limit, and not low yet
    rig.get("q")
    assert outcome() is Confirm
    assert len(rig.drain("q")) == 5


@every_profile
def test_a_refused_message_goes_to_the_dead_letters_if_the_queue_says_so(profile: str) -> None:
    for overflow, dead in (("reject-publish", []), ("reject-publish-dlx", ["b"])):
        rig = Rig(profile)
        rig.queue("dead")
        rig.queue("q", max_length=1, overflow=overflow, dead_letter_exchange="", dead_letter_routing_key="dead")
        rig.channel.select_confirms()
        for body in "ab":
            rig.publish("q", body)
        assert [type(effect) for effect in rig.effects()] == [Confirm, ConfirmNack]
        assert (rig.drain("q"), rig.drain("dead")) == (["a"], dead)


def test_an_argument_wins_over_a_policy_for_dead_letters_and_the_policy_for_overflow() -> None:
    rig = Rig()
    rig.queue("q", dead_letter_exchange="own", overflow="drop-head", message_ttl=1000)
    definition = {"dead-letter-exchange": "other", "overflow": "reject-publish", "message-ttl": 5000}
    vhost = rig.engine.vhosts["/"]
    vhost.set_policy(Policy(name="p", pattern="q", definition=Arguments(definition)))
    settings = vhost.queues["q"].settings
    assert (settings.dead_letter_exchange, settings.overflow, settings.message_ttl_ms) == (
        "own",
        "reject-publish",
        1000,
    )


# Outcomes


@every_profile
def test_one_full_queue_among_several_refuses_and_the_others_have_the_message(profile: str) -> None:
    rig = Rig(profile)
    bind(rig, "x", "fanout", before="")
    rig.queue("full", max_length=0, overflow="reject-publish")
    rig.channel.bind_queue("full", "x", "", {})
    rig.queue("after")
    rig.channel.bind_queue("after", "x", "", {})
    rig.channel.select_confirms()
    rig.publish("", "m", exchange="x")
    assert [type(effect) for effect in rig.effects()] == [ConfirmNack]
    assert {queue: rig.drain(queue) for queue in ("before", "full", "after")} == {
        "before": ["m"],
        "full": [],
        "after": ["m"],
    }


@every_profile
def test_a_message_without_a_route_that_is_not_mandatory_is_confirmed_and_gone(profile: str) -> None:
    rig = Rig(profile)
    rig.channel.select_confirms()
    rig.publish("nowhere", "m", message_id="m")
    assert [type(effect) for effect in rig.effects()] == [Confirm]
    assert rig.engine.whereabouts("m") == []


@every_profile
def test_every_publish_of_a_packet_is_confirmed_and_the_refused_ones_by_themselves(profile: str) -> None:
    conversation = Conversation(profile)
    conversation.open(1)
    conversation.ask(1, methods.ConfirmSelect())
    conversation.ask(1, methods.QueueDeclare(queue="q", arguments={"x-max-length": 3, "x-overflow": "reject-publish"}))
    for queue in ("q", "q", "q", "q", "nowhere", "nowhere"):
        conversation.client.publish(1, "", queue, wire.Properties.of().raw, b"m")
    conversation.session.receive(conversation.client.data_to_send())
    conversation.dispatch_effects()
    conversation.session.flush_confirms()
    outcomes: dict[int, str] = {}
    for event in conversation.client.receive_data(conversation.session.wire.data_to_send()):
        assert isinstance(event, wire.Ack | wire.Nack)
        first = max(outcomes, default=0) + 1 if event.multiple else event.delivery_tag
        for number in range(first, event.delivery_tag + 1):
            outcomes[number] = "acked" if isinstance(event, wire.Ack) else "nacked"
    assert outcomes == {1: "acked", 2: "acked", 3: "acked", 4: "nacked", 5: "acked", 6: "acked"}


# Versions


def test_3_10_has_no_delivery_limit_unless_it_is_given_one() -> None:
    rig = Rig("3.10")
    rig.queue("q", "quorum")
    rig.publish("q", "m")
    for _ in range(50):
        reject(rig, "q", requeue=True)
    assert rig.get("q") == "m"


@pytest.mark.parametrize(("profile", "cc"), [("3.10", None), ("4.0", ["b"]), ("4.3", ["b"])])
def test_a_dead_letter_key_removes_cc_on_3_10_only(profile: str, cc: list[str] | None) -> None:
    rig = Rig(profile)
    for name in ("b", "dead"):
        rig.queue(name)
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m", headers={"CC": ["b"]})
    reject(rig, "q")
    got = taken(rig, "dead")
    assert headers_of(got).get("CC") == cc
    assert headers_of(got)["x-death"][0]["routing-keys"] == ["q", "b"]
    assert rig.drain("b") == ["m"]  # the first copy; the dead letter goes by its queue's key alone


@pytest.mark.parametrize(("profile", "counts"), [("3.10", [0, 1]), ("4.0", [None, 1]), ("4.3", [None, 1])])
def test_only_3_10_shows_a_delivery_count_of_zero(profile: str, counts: list[int | None]) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum")
    rig.publish("q", "m")
    seen = []
    for _ in counts:
        got = taken(rig, "q")
        seen.append(headers_of(got).get("x-delivery-count"))
        rig.channel.reject(got.delivery_tag, requeue=True)
    assert seen == counts


# Restart


@every_profile
def test_a_restart_keeps_persistent_dead_letters_and_forgets_exchanges_that_are_not_durable(profile: str) -> None:
    rig = Rig(profile)
    for name, durable in (("kept", True), ("passing", False)):
        rig.channel.declare_exchange(name, "fanout", durable=durable)
    rig.queue("dead")
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    for exchange in ("kept", "passing"):
        rig.channel.bind_queue("q", exchange, "", {})
    for body, mode in (("persistent", 2), ("transient", 1)):
        rig.publish("q", body, delivery_mode=mode)
        reject(rig, "q")
    rig.engine.disconnect(rig.connection)
    rig.engine.restart()
    rig.connection = rig.engine.connect("/", "guest")
    rig.channel = rig.open_channel()
    assert rig.drain("dead") == ["persistent"]
    rig.publish("", "by kept", exchange="kept")
    with pytest.raises(AmqpError):
        rig.publish("", "by passing", exchange="passing")
    assert rig.drain("q") == ["by kept"]
