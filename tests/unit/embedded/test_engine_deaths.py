"""What becomes of the dead: x-death, cycles, delivery limits, at-least-once."""

import pytest

from redrive import wire
from redrive.embedded.engine.profiles import PROFILES
from redrive.topology import Arguments, Policy
from tests.unit.embedded.rig import Rig

every_profile = pytest.mark.parametrize("profile", PROFILES)


def reject(rig: Rig, queue: str, *, requeue: bool = False) -> None:
    got = rig.got(queue)
    assert got is not None, f"nothing in {queue}"
    rig.channel.reject(got.delivery_tag, requeue=requeue)


@every_profile
def test_a_reject_loop_counts_and_is_never_dropped(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("main", dead_letter_exchange="", dead_letter_routing_key="retry")
    rig.queue("retry", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="main")
    rig.publish("main", "m", message_id="m")
    for _ in range(30):
        reject(rig, "main")
        rig.pass_time(1)
    assert rig.deaths("main") == [("retry", "expired", 30), ("main", "rejected", 30)]


@every_profile
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_circle_by_ttl_alone_is_dropped_and_its_life_says_so(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("a", kind, message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="b")
    rig.queue("b", kind, message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="a")
    rig.publish("a", "m", message_id="m")
    rig.pass_time(10)
    assert rig.engine.whereabouts("m") == []
    texts = [str(hop) for hop in rig.engine.life("m")]
    assert texts[1] == "expired in a after 1 s → b"
    assert texts[-1] == "dropped: automatic cycle a→b→a"


@every_profile
def test_a_message_over_the_delivery_limit_dies_for_it(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", "quorum", delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m")
    for _ in range(3):
        reject(rig, "q", requeue=True)
    assert rig.deaths("dead") == [("q", "delivery_limit", 1)]


@pytest.mark.parametrize(("profile", "survives"), [("3.10", False), ("4.0", True), ("4.3", True)])
def test_a_negative_delivery_limit_destroys_on_3_10_and_is_none_since(profile: str, survives: bool) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum", delivery_limit=-1)
    rig.publish("q", "m")
    reject(rig, "q", requeue=True)
    assert (rig.get("q") == "m") is survives


def test_21_deliveries_are_all_that_the_default_limit_of_4_x_allows() -> None:
    for profile in ("4.0", "4.3"):
        rig = Rig(profile)
        rig.queue("q", "quorum")
        rig.publish("q", "m")
        for _ in range(21):
            reject(rig, "q", requeue=True)
        assert rig.get("q") is None


def test_a_nack_does_not_count_on_4_3() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum", delivery_limit=2)
    rig.publish("q", "m")
    for _ in range(50):
        got = rig.got("q")
        assert got is not None
        rig.channel.nack(got.delivery_tag)
    assert rig.get("q") == "m"


def test_4_3_carries_failed_deliveries_to_the_next_queue() -> None:
    rig = Rig("4.3")
    rig.queue("next", "quorum", delivery_limit=3)
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="next")
    rig.publish("q", "m")
    reject(rig, "q", requeue=True)
    reject(rig, "q")
    got = rig.got("next")
    assert got is not None
    headers = wire.Properties(got.header).headers
    assert (got.redelivered, headers["x-delivery-count"], headers["x-acquired-count"]) == (True, 2, 2)
    rig.channel.reject(got.delivery_tag, requeue=True)
    reject(rig, "next", requeue=True)
    assert rig.get("next") is None


@pytest.mark.parametrize(
    ("profile", "counts"),
    [
        ("3.10", {"x-delivery-count": 1}),
        ("4.0", {"x-delivery-count": 1}),
        ("4.3", {"x-delivery-count": 1, "x-acquired-count": 1}),
    ],
)
def test_a_quorum_queue_shows_the_counters_that_its_version_has(profile: str, counts: dict[str, int]) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum")
    rig.publish("q", "m")
    reject(rig, "q", requeue=True)
    got = rig.got("q")
    assert got is not None
    assert wire.Properties(got.header).headers == counts


def test_4_0_adds_up_failed_deliveries_over_queues_but_its_limit_counts_from_zero() -> None:
    rig = Rig("4.0")
    rig.queue("third", "quorum", delivery_limit=1)
    rig.queue("second", "quorum", dead_letter_exchange="", dead_letter_routing_key="third")
    rig.queue("first", "quorum", dead_letter_exchange="", dead_letter_routing_key="second")
    rig.publish("first", "m")
    reject(rig, "first")
    reject(rig, "second")
    got = rig.got("third")
    assert got is not None
    assert (got.redelivered, wire.Properties(got.header).headers["x-delivery-count"]) == (True, 2)
    rig.channel.reject(got.delivery_tag, requeue=True)
    assert rig.get("third") == "m"


@pytest.mark.parametrize(("profile", "count"), [("3.10", 2), ("4.0", 1), ("4.3", 1)])
def test_only_3_10_believes_an_x_death_that_a_client_brings(profile: str, count: int) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m")
    reject(rig, "q")
    got = rig.got("dead", no_ack=True)
    assert got is not None
    rig.channel.publish("", "q", got.header, b"again")
    reject(rig, "q")
    assert rig.deaths("dead") == [("q", "rejected", count)]


def test_3_10_keeps_only_the_first_entry_in_its_place() -> None:
    rig = Rig("3.10")
    for number in range(5):
        rig.queue(f"h{number}", dead_letter_exchange="", dead_letter_routing_key=f"h{number + 1}")
    rig.queue("h5")
    rig.publish("h0", "m")
    for number in range(5):
        reject(rig, f"h{number}")
    assert [queue for queue, _, _ in rig.deaths("h5")] == ["h4", "h2", "h0", "h1", "h3"]


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


@pytest.mark.parametrize("profile", ["4.0", "4.3"])
def test_the_last_deaths_exchange_is_the_latest_and_not_that_of_the_first_of_its_kind(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="q")
    rig.channel.bind_queue("q", "amq.topic", "k", {})
    rig.publish("k", "m", exchange="amq.topic")
    reject(rig, "q")
    reject(rig, "q")
    got = rig.got("q")
    assert got is not None
    headers = wire.Properties(got.header).headers
    assert headers["x-death"][0]["exchange"] == "amq.topic"
    assert (headers["x-first-death-exchange"], headers["x-last-death-exchange"]) == ("amq.topic", "")
