"""Which queues a message reaches: topics, headers, alternates, CC and BCC, bindings that are gone."""

import pytest

from redrive.topology import Arguments, Policy
from tests.unit.embedded.engine_rig import Rig, bind


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


def test_the_alternate_gets_only_what_no_binding_takes() -> None:
    rig = Rig()
    bind(rig, "lost", "fanout", rest="")
    rig.channel.declare_exchange("x", "direct", arguments={"alternate-exchange": "lost"})
    rig.queue("q")
    rig.channel.bind_queue("q", "x", "k", {})
    rig.publish("k", "taken", exchange="x")
    rig.publish("other", "left", exchange="x")
    assert (rig.drain("q"), rig.drain("rest")) == (["taken"], ["left"])


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
