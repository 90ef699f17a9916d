"""max-length and max-length-bytes: drop-head, reject-publish, purging."""

import pytest

from redrive.embedded.engine import Confirm, ConfirmNack
from tests.unit.embedded.engine_rig import Rig, every_kind, every_profile, taken


@every_profile
def test_a_full_classic_queue_refuses_the_one_too_many_and_a_quorum_queue_the_next(profile: str) -> None:
    for kind, count in (("classic", 2), ("quorum", 3)):
        rig = Rig(profile)
        rig.queue("q", kind, max_length=2, overflow="reject-publish")
        rig.channel.select_confirms()
        for body in "abcde":
            rig.publish("q", body)
        outcomes = [type(effect) for effect in rig.effects()]
        assert outcomes == [Confirm] * count + [ConfirmNack] * (5 - count)
        assert rig.drain("q") == list("abcde")[:count]


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


@every_profile
@every_kind
def test_drop_head_dead_letters_the_oldest(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", kind, max_length=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in "abcd":
        rig.publish("q", body)
    assert rig.drain("q") == ["c", "d"]
    assert rig.drain("dead") == ["a", "b"]


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


@pytest.mark.parametrize(("profile", "order"), [("3.10", "cba"), ("4.0", "cba"), ("4.3", "abc")])
def test_what_a_quorum_queue_drops_at_one_stroke_dies_the_latest_first_before_4_3(profile: str, order: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", "quorum", max_length=3, dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in "abc":
        rig.publish("q", body)
    for _ in "abc":
        rig.got("q")
    for body in "def":
        rig.publish("q", body)
    rig.channel.close()  # a, b and c come back at once, before d, e and f, and are dropped
    rig.channel = rig.open_channel()
    assert rig.drain("dead") == list(order)
    assert rig.drain("q") == ["d", "e", "f"]


@every_profile
def test_a_quorum_queue_drops_one_after_the_other_what_is_nacked_after_single_gets(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", "quorum", max_length=2, dead_letter_exchange="", dead_letter_routing_key="dead", delivery_limit=5)
    for body in "ab":
        rig.publish("q", body)
    for _ in "ab":
        rig.got("q")
    for body in "cd":
        rig.publish("q", body)
    rig.channel.nack(0, multiple=True)
    assert rig.drain("dead") == ["a", "b"]
    assert rig.drain("q") == ["c", "d"]


@every_profile
@every_kind
def test_messages_fetched_one_by_one_come_back_one_by_one_so_that_the_late_expire_before_they_overflow(
    profile: str, kind: str
) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    dead_letters = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    limit = {"delivery_limit": 5} if kind == "quorum" else {}
    rig.queue("q", kind, max_length=2, **dead_letters, **limit)
    for body in ("late 1", "late 2"):
        rig.publish("q", body, expiration="100")
    for _ in range(2):
        rig.got("q")
    rig.publish("q", "stays")
    rig.pass_time(0.2)
    rig.channel.nack(0, multiple=True)
    assert [rig.deaths("dead") for _ in range(2)] == [[("q", "expired", 1)]] * 2
    assert rig.drain("q") == ["stays"]


def test_delayed_messages_fill_a_queue_that_refuses() -> None:
    rig = Rig("4.3")
    delayed = {"delayed_retry_type": "all", "delayed_retry_min": 500, "delayed_retry_max": 500}
    rig.queue("q", "quorum", max_length=1, overflow="reject-publish", **delayed)
    rig.channel.select_confirms()
    for body in "ab":
        rig.publish("q", body)
    tags = [got.delivery_tag for got in (rig.got("q"), rig.got("q")) if got is not None]
    for tag in tags:
        rig.channel.nack(tag)
    rig.effects()
    rig.publish("q", "c")
    assert [type(effect) for effect in rig.effects()] == [ConfirmNack]
    rig.pass_time(1)
    assert rig.drain("q") == ["a", "b"]


def test_purging_a_quorum_queue_takes_and_counts_delayed_messages_on_4_3() -> None:
    rig = Rig("4.3")
    rig.queue("q", "quorum", delayed_retry_type="all", delayed_retry_min=500, delayed_retry_max=500)
    for body in "ab":
        rig.publish("q", body)
    got = rig.got("q")
    assert got is not None
    rig.channel.nack(got.delivery_tag)
    assert rig.channel.purge_queue("q") == 2
    rig.pass_time(1)
    assert rig.drain("q") == []


@pytest.mark.parametrize(("profile", "purged", "arrives"), [("3.10", 0, ["m"]), ("4.0", 0, ["m"]), ("4.3", 1, [])])
def test_purging_a_quorum_queue_takes_and_counts_held_dead_letters_on_4_3(
    profile: str, purged: int, arrives: list[str]
) -> None:
    rig = Rig(profile)
    at_least_once = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    rig.queue("q", "quorum", dead_letter_exchange="", dead_letter_routing_key="dead", **at_least_once)
    rig.publish("q", "m")
    got = rig.got("q")
    assert got is not None
    rig.channel.reject(got.delivery_tag, requeue=False)
    assert rig.channel.purge_queue("q") == purged
    rig.queue("dead")
    rig.pass_time(180)
    assert rig.drain("dead") == arrives
