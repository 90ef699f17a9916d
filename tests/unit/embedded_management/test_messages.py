"""Publish and get: what is said of a message, and where it is afterwards."""

import base64
from typing import Any

import pytest

from redrive.embedded import EmbeddedBroker
from tests.unit.embedded_management.http_client import ApiClient
from tests.unit.embedded_management.management_broker import run


async def publish(api: ApiClient, key: str, payload: bytes = b"hello", **properties: Any) -> Any:
    body = {
        "routing_key": key,
        "payload": base64.b64encode(payload).decode(),
        "payload_encoding": "base64",
        "properties": properties,
    }
    return (await api.ask("POST", "exchanges", "/", "amq.default", "publish", body=body)).json


async def get(api: ApiClient, ackmode: str, count: int = 10, **more: Any) -> Any:
    body = {"count": count, "ackmode": ackmode, "encoding": "auto", **more}
    return (await api.ask("POST", "queues", "/", "q", "get", body=body)).json


def depths(broker: EmbeddedBroker) -> dict[str, int]:
    return {queue.name: len(queue.ready) for queue in broker.engine.queues()}


async def make_queues(api: ApiClient) -> None:
    dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "parked"}
    await api.ask("PUT", "queues", "/", "q", body={"durable": True, "arguments": dying})
    await api.ask("PUT", "queues", "/", "parked", body={"durable": True})


@pytest.mark.parametrize(
    ("ackmode", "after"),
    [
        ("ack_requeue_true", {"q": 2, "parked": 0}),
        ("reject_requeue_true", {"q": 2, "parked": 0}),
        ("ack_requeue_false", {"q": 0, "parked": 0}),
        ("reject_requeue_false", {"q": 0, "parked": 2}),
    ],
)
def test_an_ackmode_decides_where_a_message_is_afterwards(ackmode: str, after: dict[str, int]) -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        await make_queues(api)
        for _ in range(2):
            assert await publish(api, "q") == {"routed": True}
        got = await get(api, ackmode)
        assert [(one["payload"], one["message_count"], one["redelivered"]) for one in got] == [
            ("hello", 1, False),
            ("hello", 0, False),
        ]
        assert depths(broker) == after
        assert broker.engine.unacked_count == 0

    run(steps)


def test_a_message_comes_back_as_it_was_published() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        await make_queues(api)
        properties = {
            "delivery_mode": 2,
            "headers": {"a": 1, "b": "x", "c": [1, {"d": 1.5}], "e": True},
            "message_id": "m1",
            "timestamp": 123456,
            "priority": 3,
            "content_type": "text/plain",
            "type": "t",
        }
        await publish(api, "q", b"\xff\xfe", **properties, unknown=1)
        await publish(api, "q", "grüße".encode())
        first, second = await get(api, "ack_requeue_true", count=-1)
        assert first["properties"] == properties
        assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == ("//4=", "base64", 2)
        assert (first["exchange"], first["routing_key"]) == ("", "q")
        assert (second["payload"], second["payload_encoding"], second["properties"]) == ("grüße", "string", [])
        short = (await get(api, "ack_requeue_true", truncate=2))[1]
        assert (short["payload"], short["payload_bytes"], short["redelivered"]) == ("gr", 7, True)

    run(steps)


def test_a_message_without_a_route_and_one_refused_are_not_routed() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        full = {"x-max-length": 0, "x-overflow": "reject-publish"}
        await api.ask("PUT", "queues", "/", "full", body={"durable": True, "arguments": full})
        assert await publish(api, "nope") == {"routed": False}
        assert await publish(api, "full") == {"routed": False}
        assert depths(broker) == {"full": 0}

    run(steps)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"payload_encoding": "strange"}, ["unsupported_encoding", "strange"]),
        ({"payload": "!!!"}, ["not_base64", "!!!"]),
        ({"properties": {"delivery_mode": "2"}}, ["not_int", "delivery_mode"]),
        ({"properties": {"expiration": "x"}}, "406 PRECONDITION_FAILED - invalid expiration 'x': no_integer"),
        (
            {"properties": {"user_id": "bob"}},
            "406 PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'",
        ),
    ],
)
def test_a_publish_is_refused_in_the_brokers_words(change: dict[str, Any], reason: Any) -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        await make_queues(api)
        body = {"routing_key": "q", "payload": "", "payload_encoding": "base64", "properties": {}, **change}
        answer = await api.ask("POST", "exchanges", "/", "amq.default", "publish", body=body)
        assert (answer.status, answer.json["reason"]) == (400, reason)
        assert depths(broker) == {"q": 0, "parked": 0}

    run(steps)


@pytest.mark.parametrize("missing", ["count", "ackmode", "encoding"])
def test_a_get_needs_its_fields(missing: str) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        await make_queues(api)
        body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        del body[missing]
        answer = await api.ask("POST", "queues", "/", "q", "get", body=body)
        assert (answer.status, answer.json["reason"]) == (400, f"[{{key_missing,{missing}}}]")

    run(steps)


@pytest.mark.parametrize(
    ("profile", "get_reason", "publish_status"),
    [("3.10", "NOT_FOUND - no queue 'nope' in vhost '/'", 400), ("4.3", "queue_not_found", 404)],
)
def test_versions_say_otherwise_what_is_missing(profile: str, get_reason: str, publish_status: int) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        body: dict[str, Any] = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        answer = await api.ask("POST", "queues", "/", "nope", "get", body=body)
        assert (answer.status, answer.json["reason"]) == (404, get_reason)
        body = {"routing_key": "q", "payload": "", "payload_encoding": "string", "properties": {}}
        answer = await api.ask("POST", "exchanges", "/", "nope", "publish", body=body)
        assert answer.status == publish_status

    run(steps, profile)


def test_a_waiting_consumer_gets_what_is_published() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        await make_queues(api)
        connection = broker.engine.connect("/", "guest")
        channel = connection.open_channel(1)
        consumer = channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
        assert consumer is not None
        assert await publish(api, "q") == {"routed": True}
        assert [entry.message.body for entry, _, _ in channel.unacked.values()] == [b"hello"]

    run(steps)
