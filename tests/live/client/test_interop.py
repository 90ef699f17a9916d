"""pika reads what we write, we read what pika writes, and we pass on messages unchanged."""

import calendar
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from pika import exceptions
from rig.brokers import Vhost

from redrive import wire
from redrive.client import Client, Confirmed, Returned
from tests.live.client.accounts import drain, fill, ready, wait_ready
from tests.unit.client.scenario import run_scenario

MOMENT = datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC)
SECONDS = calendar.timegm(MOMENT.timetuple())

# Everything pika's encoder has a branch for (pika/data.py).
SCALARS: dict[str, Any] = {
    "text": "grüße 🐇",
    "empty": "",
    "bytes": b"\x00\xff\xfe not text",
    "no bytes": b"",
    "true": True,
    "false": False,
    "zero": 0,
    "int32 max": 2**31 - 1,
    "int32 min": -(2**31),
    "int64 max": 2**63 - 1,
    "int64 min": -(2**63),
    "just above int32": 2**31,
    "decimal": Decimal("12.345"),
    "negative decimal": Decimal("-0.01"),
    "whole decimal": Decimal(100),
    "moment": MOMENT,
    "nothing": None,
}
NESTED: dict[str, Any] = {
    "table": SCALARS,
    "array": list(SCALARS.values()),
    "empty table": {},
    "empty array": [],
    "deep": {"a": [{"b": [{"c": [[[1, [2, [3]]]]]}]}]},
    "x-death": [{"count": 3, "reason": "rejected", "queue": "q", "time": MOMENT, "routing-keys": ["a", "b"]}],
}
HEADERS = {**SCALARS, **NESTED, "k" * 128: "a long key"}
PROPERTIES: dict[str, Any] = {
    "content_type": "application/json; charset=utf-8",
    "content_encoding": "gzip",
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": "correlation-ü",
    "reply_to": "amq.rabbitmq.reply-to.answer",
    "expiration": "3600000",
    "message_id": "m" * 255,
    "type": "order.placed",
    "user_id": "guest",
    "app_id": "shop",
    "cluster_id": "somewhere",
}
BODY = bytes(range(256)) * 3


@pytest.mark.live
def test_pika_reads_every_property_and_type_that_we_write(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 0)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            publisher = await client.publisher()
            # pika has no floats to write and reads ours as whole numbers.
            headers = {**HEADERS, "double": 3.75, "float": wire.Float32(-2.5)}
            properties = wire.Properties.of(headers=headers, timestamp=MOMENT, **PROPERTIES)
            assert await publisher.publish("amq.direct", "k", BODY, properties) == Returned(312, "NO_ROUTE")
            assert await publisher.publish("", "q", BODY, properties) == Confirmed()
            for name, value in PROPERTIES.items():  # and each alone, so that no flag hides another
                alone = wire.Properties.of(**{name: value})
                assert await publisher.publish("", "q", b"", alone) == Confirmed()
            assert await publisher.publish("", "q", b"bare", wire.EMPTY) == Confirmed()

    run_scenario(scenario())
    everything, *alone, bare = drain(vhost.amqp_url, "q")
    assert everything.body == BODY
    assert everything.properties.headers == {**HEADERS, "double": 3, "float": -2}
    assert everything.properties.timestamp == SECONDS
    for (name, value), held in zip(PROPERTIES.items(), alone, strict=True):
        assert getattr(everything.properties, name) == value
        assert {key: each for key, each in vars(held.properties).items() if each is not None} == {name: value}
    assert bare.body == b"bare"
    assert not any(each is not None for each in vars(bare.properties).values())


@pytest.mark.live
def test_we_read_every_property_and_type_that_pika_writes(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 0)
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    whole = pika.BasicProperties(headers=HEADERS, timestamp=SECONDS, **PROPERTIES)
    channel.basic_publish("", "q", BODY, whole, mandatory=True)
    for name, value in PROPERTIES.items():
        channel.basic_publish("", "q", b"", pika.BasicProperties(**{name: value}), mandatory=True)
    channel.basic_publish("", "q", b"bare", mandatory=True)
    connection.close()

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            deliveries = await client.deliveries("q")
            everything = await anext(deliveries)
            assert everything.body == BODY
            assert everything.properties.present() == {**PROPERTIES, "headers": HEADERS, "timestamp": MOMENT}
            assert everything.properties.header("deep") == NESTED["deep"]
            everything.ack()
            for name, value in PROPERTIES.items():
                delivery = await anext(deliveries)
                assert delivery.properties.present() == {name: value}
                delivery.ack()
            bare = await anext(deliveries)
            assert bare.properties.present() == {}
            bare.ack()

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 0


@pytest.mark.live
def test_types_that_pika_can_not_write_come_back_to_us_as_they_went(vhost: Vhost) -> None:
    """Every field type of RabbitMQ's own parser. The broker writes 'L' as 'l', its other name; all else stays."""
    headers = {
        "b": wire.Int8(-128),
        "B": wire.UInt8(255),
        "s": wire.Int16(-32768),
        "u": wire.UInt16(65535),
        "i": wire.UInt32(2**32 - 1),
        "l": wire.Int64(1),
        "L": wire.LongLong(-1),
        "f": wire.Float32(0.5),
        "d": -5e-324,
        "S not UTF-8": wire.LongString(b"\xff\xfe"),
        "T far away": wire.Timestamp(2**40),
        "nested": [wire.UInt8(1), {"i": wire.UInt32(2)}],
    }

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            await channel.declare_queue("q", arguments={"x-queue-type": "quorum"})
            publisher = await client.publisher()
            sent = wire.Properties.of(headers=headers)
            assert await publisher.publish("", "q", b"", sent) == Confirmed()
            got = await channel.get_message("q")
            assert got is not None
            table = {key: value for key, value in got.properties.headers.items() if not key.startswith("x-")}
            assert table == headers
            kinds = {key: type(value) for key, value in headers.items()} | {"L": wire.Int64}
            assert {key: type(value) for key, value in table.items()} == kinds
            channel.ack(got)
            await channel.close()

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 0


@pytest.mark.live
def test_bytes_that_pass_through_us_unread_are_identical_at_the_far_end(vhost: Vhost) -> None:
    """Consumed here, published there with the header as it came, and read by pika beside one that went straight."""
    for queue in ("from", "to", "straight"):
        fill(vhost.amqp_url, queue, 0)
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    whole = pika.BasicProperties(headers=HEADERS, timestamp=SECONDS, **PROPERTIES)
    for queue in ("from", "straight"):
        channel.basic_publish("", queue, BODY, whole, mandatory=True)
        channel.basic_publish("", queue, b"", mandatory=True)
    connection.close()
    raw: dict[str, list[bytes]] = {"from": [], "to": []}

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            publisher = await client.publisher()
            deliveries = await client.deliveries("from")
            for _ in range(2):
                delivery = await anext(deliveries)
                raw["from"].append(delivery.header)
                assert await publisher.publish("", "to", delivery.body, delivery.header) == Confirmed()
                delivery.ack()
            arrived = await client.channel()
            for _ in range(2):
                got = await arrived.get_message("to")
                assert got is not None
                raw["to"].append(got.header)
            await arrived.close()

    run_scenario(scenario())
    assert raw["to"] == raw["from"]
    assert ready(vhost.amqp_url, "from") == 0
    wait_ready(vhost.amqp_url, "to", 2)
    straight, passed = drain(vhost.amqp_url, "straight"), drain(vhost.amqp_url, "to")
    assert [(held.body, held.properties.headers) for held in passed] == [
        (held.body, held.properties.headers) for held in straight
    ]
    assert [held.properties.encode() for held in passed] == [held.properties.encode() for held in straight]


@pytest.mark.live
def test_a_changed_header_leaves_every_other_byte_of_pikas_message(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 0)
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    whole = pika.BasicProperties(headers=HEADERS, timestamp=SECONDS, **PROPERTIES)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "q", BODY, whole, mandatory=True)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            publisher = await client.publisher()
            deliveries = await client.deliveries("q")
            delivery = await anext(deliveries)
            changed = delivery.properties.edit(headers={"x-retry-count": 1}, drop=["x-death"], expiration=None)
            assert await publisher.publish("", "q", delivery.body, changed) == Confirmed()
            delivery.ack()
            await deliveries.consumer.stop()
            await deliveries.close()

    run_scenario(scenario())
    method, properties, body = channel.basic_get("q", auto_ack=True)
    assert method is not None
    connection.close()
    kept = {key: value for key, value in HEADERS.items() if key != "x-death"}
    assert properties.headers == {**kept, "x-retry-count": 1}
    assert properties.expiration is None
    assert body == BODY
    for name, value in PROPERTIES.items():
        if name != "expiration":
            assert getattr(properties, name) == value


@pytest.mark.live
def test_outcomes_agree_with_pikas(vhost: Vhost) -> None:
    """The same four publishes through both clients end the same way."""
    fill(vhost.amqp_url, "q", 0, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"pika", mandatory=True)
    with pytest.raises(exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"pika", mandatory=True)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            publisher = await client.publisher()
            assert await publisher.publish("", "q", b"ours") == Confirmed()
            assert await publisher.publish("", "nowhere", b"ours") == Returned(312, "NO_ROUTE")
            assert type(await publisher.publish("", "q", b"ours")).__name__ == "Nacked"

    run_scenario(scenario())
    with pytest.raises(exceptions.NackError):
        channel.basic_publish("", "q", b"pika", mandatory=True)
    connection.close()
    assert [held.body for held in drain(vhost.amqp_url, "q")] == [b"pika", b"ours"]
