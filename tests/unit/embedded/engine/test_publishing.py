"""basic.publish: returns, confirms and nacks, transactions, what is refused in a message."""

import pytest

from redrive import wire
from redrive.embedded import PROFILES
from redrive.embedded.engine import AmqpError, BasicReturn, Confirm, ConfirmNack
from tests.unit.embedded.engine_rig import START_MS, Rig, bind, every_profile


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
def test_a_message_without_a_route_that_is_not_mandatory_is_confirmed_and_gone(profile: str) -> None:
    rig = Rig(profile)
    rig.channel.select_confirms()
    rig.publish("nowhere", "m", message_id="m")
    assert [type(effect) for effect in rig.effects()] == [Confirm]
    assert rig.engine.whereabouts("m") == []


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


@pytest.mark.parametrize(("profile", "mebibytes"), [("3.10", 128), ("4.0", 16), ("4.3", 16)])
def test_a_body_above_the_versions_limit_is_refused_and_one_at_the_limit_taken(profile: str, mebibytes: int) -> None:
    """aiormq: 20 MiB pass on 3.10 and close the channel on 4.x."""
    rig = Rig(profile)
    rig.queue("q")
    limit = mebibytes * 1024 * 1024
    header = wire.Properties.of().raw
    with pytest.raises(AmqpError) as refused:
        rig.channel.publish("", "q", header, bytes(limit + 1))
    text = f"PRECONDITION_FAILED - message size {limit + 1} is larger than configured max size {limit}"
    assert (refused.value.code, refused.value.text, refused.value.is_hard) == (406, text, False)
    rig.channel.publish("", "q", header, bytes(limit))
    got = rig.got("q")
    assert got is not None
    assert (len(got.message.body), got.left) == (limit, 0)
