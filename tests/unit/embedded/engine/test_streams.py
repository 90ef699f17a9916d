"""Streams, each a fact about RabbitMQ: who reads what, from where, with how much credit, and what is refused."""

from datetime import UTC, datetime
from typing import Any

import pytest

from redrive import wire
from redrive.embedded.engine import AmqpError, Channel, ConsumerCancelled, Deliver
from redrive.embedded.engine.profiles import PROFILES
from tests.unit.embedded.engine_rig import START_MS, Rig

every_profile = pytest.mark.parametrize("profile", PROFILES)


def _read(
    rig: Rig,
    offset: Any = "first",
    *,
    tag: str = "tag",
    prefetch: int = 100,
    channel: Channel | None = None,
    **more: Any,
) -> Channel:
    reader = rig.open_channel() if channel is None else channel
    reader.qos(prefetch)
    arguments = {"x-stream-offset": offset} | {f"x-stream-{key.replace('_', '-')}": one for key, one in more.items()}
    consumer = reader.consume("s", tag, no_ack=False, exclusive=False, arguments=arguments)
    assert consumer is not None
    consumer.queue.dispatch()
    return reader


def _stream(profile: str = "4.3", *, messages: int = 5, each_s: float = 0.0) -> Rig:
    rig = Rig(profile)
    rig.queue("s", "stream")
    for number in range(messages):
        rig.publish("s", str(number))
        rig.pass_time(each_s)
    return rig


def _bodies(rig: Rig) -> str:
    return "".join(body for _, body in rig.delivered())


@every_profile
@pytest.mark.parametrize(
    ("offset", "read"),
    [
        ("first", "01234n"),
        ("last", "4n"),
        ("next", "n"),
        (0, "01234n"),
        (3, "34n"),
        (-7, "01234n"),
        (5, "n"),
        (6, ""),
        ("1h", "01234n"),
        ("25s", "34n"),
        (datetime.fromtimestamp(START_MS / 1000 + 15, UTC), "234n"),
        (datetime.fromtimestamp(START_MS / 1000 + 7200, UTC), "n"),
    ],
)
def test_a_consumer_begins_where_it_asks_to(profile: str, offset: Any, read: str) -> None:
    rig = _stream(profile, each_s=10)
    _read(rig, offset)
    rig.publish("s", "n")
    assert _bodies(rig) == read


@every_profile
def test_each_consumer_reads_everything_and_nothing_leaves(profile: str) -> None:
    rig = _stream(profile, messages=3)
    first = _read(rig, tag="a")
    _read(rig, tag="b")
    assert rig.delivered() == [(tag, body) for tag in "ab" for body in "012"]
    first.ack(3, multiple=True)
    first.close()
    _read(rig, tag="c")
    assert rig.delivered() == [("c", body) for body in "012"]
    assert rig.engine.vhosts["/"].queues["s"].stored == 3


@every_profile
def test_the_prefetch_is_the_credit_and_every_ack_earns_one(profile: str) -> None:
    rig = _stream(profile)
    reader = _read(rig, prefetch=2)
    assert _bodies(rig) == "01"
    reader.ack(1)
    assert _bodies(rig) == "2"
    reader.ack(3, multiple=True)
    assert _bodies(rig) == "34"


@pytest.mark.parametrize("profile", ["4.0", "4.3"])
@pytest.mark.parametrize("how", ["nack", "reject", "recover"])
def test_on_4_x_whatever_is_said_of_a_message_earns_the_next_and_nothing_comes_again(profile: str, how: str) -> None:
    rig = _stream(profile)
    reader = _read(rig, prefetch=1)
    match how:
        case "nack":
            reader.nack(1)
        case "reject":
            reader.reject(1)
        case _:
            reader.recover(True)
    assert _bodies(rig) == "01"


@pytest.mark.parametrize(("how", "code"), [("nack", 540), ("reject", 540), ("recover", 541)])
def test_on_3_10_a_stream_takes_acks_only(how: str, code: int) -> None:
    rig = _stream("3.10")
    reader = _read(rig, prefetch=1)
    with pytest.raises(AmqpError) as caught:
        reader.recover(True) if how == "recover" else getattr(reader, how)(1)
    assert caught.value.code == code


@every_profile
def test_what_cannot_be_done_with_a_stream_is_refused(profile: str) -> None:
    rig = _stream(profile)
    where = "queue 's' in vhost '/'"
    refused: dict[str, Any] = {
        f"NOT_IMPLEMENTED - basic.get not supported by stream queues {where}": lambda: rig.channel.get(
            "s", no_ack=True
        ),
        f"NOT_IMPLEMENTED - queue.purge not supported by stream queues {where}": lambda: rig.channel.purge_queue("s"),
    }
    for text, attempt in refused.items():
        with pytest.raises(AmqpError) as caught:
            attempt()
        assert caught.value.text == text
    with pytest.raises(AmqpError, match="consumer prefetch count is not set"):
        rig.channel.consume("s", "t", no_ack=False, exclusive=False, arguments={})
    rig.channel.qos(1)
    with pytest.raises(AmqpError, match="automatic acknowledgement not supported"):
        rig.channel.consume("s", "t", no_ack=True, exclusive=False, arguments={})
    with pytest.raises(AmqpError, match="invalid arg 'x-priority' for queue 's' in vhost '/' of queue type"):
        rig.channel.consume("s", "t", no_ack=False, exclusive=False, arguments={"x-priority": 1})


@every_profile
@pytest.mark.parametrize("offset", ["nope", "", "0s", "10", "2 hours", True, None])
def test_an_offset_that_is_none_is_refused(profile: str, offset: Any) -> None:
    rig = _stream(profile)
    with pytest.raises(AmqpError) as caught:
        _read(rig, offset)
    is_text = isinstance(offset, str)
    garbled = not is_text or (profile != "4.3" and not offset[:1].isdigit())
    assert caught.value.code == (541 if garbled else 406)


@every_profile
@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 5},
        {"x-expires": 5000},
        {"x-max-length": 5},
        {"x-overflow": "drop-head"},
        {"x-dead-letter-exchange": "d"},
        {"x-single-active-consumer": True},
        {"x-delivery-limit": 3},
        {"x-max-priority": 3},
        {"x-queue-mode": "lazy"},
        {"x-max-age": "1x"},
        {"x-max-age": 5},
        {"x-max-age": "0s"},
        {"x-initial-cluster-size": 0},
        {"x-stream-max-segment-size-bytes": -1},
    ],
)
def test_an_argument_that_a_stream_does_not_have_is_refused(profile: str, arguments: dict[str, Any]) -> None:
    rig = Rig(profile)
    with pytest.raises(AmqpError) as caught:
        rig.channel.declare_queue("s", durable=True, arguments={"x-queue-type": "stream", **arguments})
    assert caught.value.text.startswith(f"PRECONDITION_FAILED - invalid arg '{next(iter(arguments))}' for queue 's'")


@every_profile
def test_a_stream_is_durable_and_declared_again_must_be_the_same(profile: str) -> None:
    rig = Rig(profile)
    for wrong in ({"durable": False}, {"exclusive": True}, {"auto_delete": True}):
        with pytest.raises(AmqpError, match="invalid property"):
            rig.channel.declare_queue("s", arguments={"x-queue-type": "stream"}, **({"durable": True} | wrong))
    table = {"x-queue-type": "stream", "x-max-age": "1h"}
    for _ in range(2):
        assert rig.channel.declare_queue("s", durable=True, arguments=table) == ("s", 0, 0)
    with pytest.raises(AmqpError, match="inequivalent arg 'x-max-age'") as caught:
        rig.channel.declare_queue("s", durable=True, arguments=table | {"x-max-age": "2h"})
    assert ("received '7200000'" in caught.value.text) is (profile == "4.3")


@every_profile
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_dead_letter_is_kept_by_a_stream_but_lost_on_3_10(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("s", "stream")
    rig.queue("q", kind, dead_letter_exchange="", dead_letter_routing_key="s")
    rig.publish("q", "m", message_id="id")
    got = rig.got("q")
    assert got is not None
    rig.channel.reject(got.delivery_tag, requeue=False)
    rig.effects()
    _read(rig)
    if profile == "3.10":
        assert rig.delivered() == []
        assert rig.engine.whereabouts("id") == []
        assert "takes no dead letters" in str(rig.engine.life("id")[-1])
        return
    (delivered,) = [one for one in rig.effects() if isinstance(one, Deliver)]
    headers = wire.Properties(delivered.header).headers
    assert [(one["queue"], one["reason"]) for one in headers["x-death"]] == [("q", "rejected")]
    assert [place.queue for place in rig.engine.whereabouts("id")] == ["s"]


@every_profile
def test_at_least_once_a_dead_letter_reaches_a_stream_everywhere(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("s", "stream")
    more = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    rig.queue("q", "quorum", dead_letter_exchange="", dead_letter_routing_key="s", **more)
    rig.publish("q", "m")
    got = rig.got("q")
    assert got is not None
    rig.channel.reject(got.delivery_tag, requeue=False)
    _read(rig)
    (delivered,) = [one for one in rig.effects() if isinstance(one, Deliver)]
    headers = wire.Properties(delivered.header).headers
    assert ("x-death" in headers) is (profile != "3.10")  # 3.10 keeps no arrays in a stream
    assert headers["x-first-death-queue"] == "q"


@every_profile
def test_what_a_stream_gives_back_has_an_offset_and_no_tables(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("s", "stream")
    headers = {"z": 1, "a": "x", "table": {"k": 1}, "list": [1], "CC": ["other"], "x-stream-offset": 99}
    rig.publish("s", "m", headers=headers, expiration="60000")
    _read(rig)
    (delivered,) = [one for one in rig.effects() if isinstance(one, Deliver)]
    properties = wire.Properties(delivered.header)
    kept = ["a", "x-stream-offset", "z"] if profile == "3.10" else ["CC", "a", "x-stream-offset", "z"]
    assert list(properties.headers) == kept
    assert properties.headers["x-stream-offset"] == 0
    assert (properties.expiration, delivered.redelivered) == ("60000", False)
    assert properties.delivery_mode == (None if profile == "3.10" else 1)


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ({"filter": "a"}, {"3.10": "abn", "4.3": "a"}),
        ({"filter": ["a", "b"]}, {"3.10": "abn", "4.3": "ab"}),
        ({"filter": "a", "match_unfiltered": True}, {"3.10": "abn", "4.3": "an"}),
    ],
)
@pytest.mark.parametrize("profile", ["3.10", "4.3"])
def test_a_filter_chooses_by_the_filter_value_on_4_x(
    profile: str, filters: dict[str, Any], read: dict[str, str]
) -> None:
    rig = Rig(profile)
    rig.queue("s", "stream")
    for value in "ab":
        rig.publish("s", value, headers={"x-stream-filter-value": value})
    rig.publish("s", "n")
    _read(rig, **filters)
    assert _bodies(rig) == read[profile]


def test_a_deleted_stream_cancels_its_readers_and_is_gone_whoever_reads() -> None:
    rig = _stream()
    _read(rig, prefetch=1)
    assert rig.channel.delete_queue("s", if_unused=True, if_empty=True) == 0
    assert [one.consumer_tag for one in rig.effects() if isinstance(one, ConsumerCancelled)] == ["tag"]
    assert "s" not in rig.engine.vhosts["/"].queues
