"""The delivery limit of quorum queues, and the counters that it looks at."""

import pytest

from redrive import wire
from tests.unit.embedded.engine_rig import Rig, every_profile, headers_of, reject, taken


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


def test_3_10_has_no_delivery_limit_unless_it_is_given_one() -> None:
    rig = Rig("3.10")
    rig.queue("q", "quorum")
    rig.publish("q", "m")
    for _ in range(50):
        reject(rig, "q", requeue=True)
    assert rig.get("q") == "m"


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
