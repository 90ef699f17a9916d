"""Delayed retry of quorum queues, which only 4.3 has."""

import pytest

from tests.unit.embedded.engine_rig import Rig, reject, taken


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


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_versions_before_4_3_take_the_arguments_of_delayed_retry_and_delay_nothing(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", "quorum", delayed_retry_type="all", delayed_retry_min=300, delayed_retry_max=800)
    rig.publish("q", "m")
    reject(rig, "q", requeue=True)
    assert rig.get("q") == "m"
