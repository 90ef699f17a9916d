"""Vhosts, queues, exchanges, bindings, policies, clients: what each address does, and in which words it won't."""

import pytest

from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from tests.unit.embedded_management.http_client import Answer, ApiClient
from tests.unit.embedded_management.management_broker import run


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["reason"]


def test_a_vhost_is_made_described_and_deleted_with_all_in_it() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        name = "a b/cö"
        assert (await api.ask("PUT", "vhosts", name, body={"description": "d", "tags": "x,y"})).status == 201
        assert (await api.ask("PUT", "vhosts", name)).status == 204
        shown = (await api.ask("GET", "vhosts", name)).json
        assert (shown["name"], shown["description"], shown["tags"]) == (name, "d", ["x", "y"])
        assert (await api.ask("PUT", "queues", name, "q")).status == 201
        assert (await api.ask("DELETE", "vhosts", name)).status == 204
        assert (await api.ask("GET", "queues", name)).status == 404
        assert (await api.ask("DELETE", "vhosts", name)).status == 404
        assert list(broker.engine.vhosts) == ["/"]

    run(steps)


def test_a_default_queue_type_of_streams_is_refused_loudly() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        answer = await api.ask("PUT", "vhosts", "v", body={"default_queue_type": "stream"})
        assert answer.status == 400
        assert "does not support the default queue type stream" in answer.json["reason"]

    run(steps)


def test_a_default_queue_type_is_shown_and_given_to_queues_that_name_none() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        assert (await api.ask("PUT", "vhosts", "v", body={"default_queue_type": "quorum"})).status == 201
        assert (await api.ask("GET", "vhosts", "v")).json["default_queue_type"] == "quorum"
        assert (await api.ask("PUT", "queues", "v", "q", body={"durable": True})).status == 201
        shown = (await api.ask("GET", "queues", "v", "q")).json
        assert (shown["type"], shown["arguments"]) == ("quorum", {"x-queue-type": "quorum"})

    run(steps)


def test_a_queue_declared_otherwise_is_refused_with_the_brokers_text() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        arguments = {"x-message-ttl": 5000, "x-dead-letter-exchange": ""}
        body = {"durable": True, "arguments": arguments}
        assert (await api.ask("PUT", "queues", "/", "q", body=body)).status == 201
        assert (await api.ask("PUT", "queues", "/", "q", body=body)).status == 204
        where = "for queue 'q' in vhost '/'"
        other = {"durable": True, "arguments": {**arguments, "x-message-ttl": 6000}}
        assert refusal(await api.ask("PUT", "queues", "/", "q", body=other)) == (
            400,
            f"inequivalent arg 'x-message-ttl' {where}: received '6000' but current is '5000'",
        )
        without = {"durable": True, "arguments": {"x-dead-letter-exchange": ""}}
        assert refusal(await api.ask("PUT", "queues", "/", "q", body=without)) == (
            400,
            f"inequivalent arg 'x-message-ttl' {where}: received none but current is the value '5000' of type 'long'",
        )
        assert (await api.ask("PUT", "queues", "/", "amq.x")).status == 401
        assert refusal(await api.ask("PUT", "queues", "nope", "q")) == (404, "vhost_not_found")

    run(steps)


@pytest.mark.parametrize("body", [b"{bad", b"[1]", b"5", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        assert refusal(await api.ask("PUT", "queues", "/", "q", body=body)) == (400, "not_json")

    run(steps)


def test_a_name_or_a_table_that_amqp_can_not_carry_is_refused() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        long = "n" * 256
        answer = await api.ask("PUT", "queues", "/", long)
        assert refusal(answer) == (400, "queue should be less than 255 bytes, actually was 256\n")
        assert (await api.ask("PUT", "exchanges", "/", long)).status == 400
        assert (await api.ask("PUT", "vhosts", long)).status == 400
        await api.ask("PUT", "queues", "/", "q")
        between = ("bindings", "/", "e", "amq.topic", "q", "q")
        assert (await api.ask("POST", *between, body={"routing_key": long})).status == 400
        assert (await api.ask("POST", *between, body=b'{"routing_key": "\\ud800"}')).status == 400
        deep = b'{"arguments": ' + b'{"a": ' * 300 + b"1" + b"}" * 301
        assert refusal(await api.ask("PUT", "queues", "/", "deep", body=deep)) == (400, "nested deeper than 100")
        assert [queue.name for queue in broker.engine.queues()] == ["q"]
        assert len(broker.engine.connections) == 0

    run(steps)


def test_depths_are_of_this_moment() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        await api.ask("PUT", "queues", "/", "q", body={"durable": True})
        engine = broker.engine.connect("/", "guest")
        channel = engine.open_channel(1)
        for _ in range(3):
            channel.publish("", "q", b"\0\0", b"12345")
        assert channel.get("q", no_ack=False)
        shown = (await api.ask("GET", "queues", "/", "q")).json
        assert {key: shown[key] for key in ("messages", "messages_ready", "messages_unacknowledged")} == {
            "messages": 3,
            "messages_ready": 2,
            "messages_unacknowledged": 1,
        }
        assert (shown["message_bytes"], shown["message_bytes_ready"]) == (15, 10)
        answer = await api.ask("DELETE", "queues", "/", "q", query="?if-empty=true")
        assert refusal(answer) == (400, "queue 'q' in vhost '/' not empty")
        assert (await api.ask("DELETE", "queues", "/", "q", "contents")).status == 204
        shown = (await api.ask("GET", "queues", "/", "q")).json
        assert (shown["messages"], shown["messages_unacknowledged"]) == (1, 1)
        assert (await api.ask("DELETE", "queues", "/", "q")).status == 204
        assert (await api.ask("GET", "queues", "/", "q")).status == 404

    run(steps)


def test_a_list_has_columns_an_order_and_pages() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        for name in ("a", "b", "c"):
            await api.ask("PUT", "queues", "/", name)
        answer = await api.ask("GET", "queues", query="?columns=name&sort=name&sort_reverse=true")
        assert answer.json == [{"name": "c"}, {"name": "b"}, {"name": "a"}]
        page = (await api.ask("GET", "queues", "/", query="?page=2&page_size=2&columns=name")).json
        assert (page["items"], page["page_count"], page["total_count"]) == ([{"name": "c"}], 2, 3)
        named = (await api.ask("GET", "queues", query="?page=1&name=^[ab]&use_regex=true&columns=name")).json
        assert (named["items"], named["filtered_count"]) == ([{"name": "a"}, {"name": "b"}], 2)
        far = await api.ask("GET", "queues", query="?page=9&page_size=2")
        assert far.json == {"error": "page_out_of_range", "reason": "Page out of range, page: 9 page size: 2, len: 3"}
        for wrong in ("x", "0", "1&page_size=501"):
            answer = await api.ask("GET", "queues", query=f"?page={wrong}")
            assert refusal(answer) == (400, "Pagination parameters are invalid")

    run(steps)


def test_an_exchange_is_made_shown_and_deleted() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        body = {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "other"}}
        assert (await api.ask("PUT", "exchanges", "/", "x", body=body)).status == 201
        assert (await api.ask("PUT", "exchanges", "/", "x", body=body)).status == 204
        answer = await api.ask("PUT", "exchanges", "/", "x", body={**body, "type": "direct"})
        text = "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'direct' but current is 'topic'"
        assert refusal(answer) == (400, text)
        shown = (await api.ask("GET", "exchanges", "/", "x")).json
        assert {key: shown[key] for key in body} == body
        assert (await api.ask("GET", "exchanges", "/", "amq.default")).json["name"] == ""
        assert len((await api.ask("GET", "exchanges", "/")).json) == 8
        assert (await api.ask("DELETE", "exchanges", "/", "amq.direct")).status == 401
        assert (await api.ask("DELETE", "exchanges", "/", "x")).status == 204
        assert (await api.ask("DELETE", "exchanges", "/", "x")).status == 404

    run(steps)


def test_a_binding_is_found_and_taken_away_by_its_properties_key() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        between = ("bindings", "/", "e", "amq.topic", "q", "q")
        await api.ask("PUT", "queues", "/", "q")
        for body in (
            {},
            {"routing_key": "a.#"},
            {"routing_key": "a.#", "arguments": {"x": 1}},
            {"routing_key": "~ ö/"},
        ):
            assert (await api.ask("POST", *between, body=body)).status == 201
        listed = (await api.ask("GET", *between)).json
        keys = [one["properties_key"] for one in listed]
        assert keys[0].startswith("%7E+%C3%B6%2F")
        assert sorted((one["routing_key"], one["arguments"] != {}) for one in listed) == [
            ("", False),
            ("a.#", False),
            ("a.#", True),
            ("~ ö/", False),
        ]
        of_queue = (await api.ask("GET", "queues", "/", "q", "bindings")).json
        assert [one["source"] for one in of_queue] == ["", *["amq.topic"] * 4]
        for one in listed:
            assert (await api.ask("GET", *between, one["properties_key"])).json == one
            assert (await api.ask("DELETE", *between, one["properties_key"])).status == 204
            assert (await api.ask("DELETE", *between, one["properties_key"])).status == 404
        assert (await api.ask("GET", *between)).json == []
        missing = await api.ask("POST", "bindings", "/", "e", "amq.topic", "q", "nope", body={})
        assert refusal(missing) == (404, "no queue 'nope' in vhost '/'")

    run(steps)


def test_exchanges_are_bound_to_exchanges() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        between = ("bindings", "/", "e", "amq.topic", "e", "amq.fanout")
        assert (await api.ask("POST", *between, body={"routing_key": "k"})).status == 201
        shown = (await api.ask("GET", "exchanges", "/", "amq.topic", "bindings", "source")).json
        assert shown == (await api.ask("GET", "exchanges", "/", "amq.fanout", "bindings", "destination")).json
        assert [(one["destination"], one["destination_type"]) for one in shown] == [("amq.fanout", "exchange")]
        assert (await api.ask("DELETE", *between, "k")).status == 204

    run(steps)


def test_policies_apply_and_operator_policies_bound_them() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        await api.ask("PUT", "queues", "/", "q", body={"durable": True})
        body = {"pattern": "^q", "definition": {"max-length": 100}, "priority": 1, "apply-to": "queues"}
        assert (await api.ask("PUT", "policies", "/", "p", body=body)).status == 201
        assert (await api.ask("PUT", "policies", "/", "p", body=body)).status == 204
        limits = {"pattern": "^q", "definition": {"max-length": 10}}
        assert (await api.ask("PUT", "operator-policies", "/", "o", body=limits)).status == 201
        assert (await api.ask("GET", "policies", "/", "p")).json == {"vhost": "/", "name": "p", **body}
        shown = (await api.ask("GET", "queues", "/", "q")).json
        assert (shown["policy"], shown["operator_policy"]) == ("p", "o")
        assert shown["effective_policy_definition"] == {"max-length": 10}
        assert broker.engine.vhosts["/"].queues["q"].settings.length_max == 10
        parameters = (await api.ask("GET", "parameters")).json
        assert [(one["component"], one["name"]) for one in parameters] == [("operator_policy", "o")]
        assert (await api.ask("GET", "parameters", "operator_policy")).json == parameters
        assert (await api.ask("GET", "parameters", "operator_policy", "/")).json == parameters
        assert (await api.ask("DELETE", "operator-policies", "/", "o")).status == 204
        assert (await api.ask("DELETE", "policies", "/", "p")).status == 204
        assert broker.engine.vhosts["/"].queues["q"].settings.length_max is None
        assert (await api.ask("DELETE", "policies", "/", "p")).status == 404

    run(steps)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"pattern": "x"}, "[{key_missing,definition}]"),
        ({"definition": {}}, "[{key_missing,pattern}]"),
        ({"definition": {"nope": "y", "zip": [1]}}, '[{<<"nope">>,<<"y">>},{<<"zip">>,[1]}] are not recognised'),
        ({"definition": {"max-length": True}}, "true is not a valid maximum length"),
        ({"definition": {"message-ttl": -1}}, "-1 is not a valid message TTL"),
        ({"definition": {}}, "no policy provided"),
        ({"definition": {"max-length": 1}, "apply-to": "x"}, "apply-to 'x' unrecognised; should be one of: 'queues',"),
        ({"definition": {"max-length": 1}, "priority": "x"}, 'priority should be a number, actually was <<"x">>'),
        ({"definition": {"max-length": 1}, "pattern": "("}, "pattern should be regular expression but is invalid:"),
        ({"definition": {"delayed-retry-type": "all"}}, "delayed-retry-min is required when delayed-retry-type is all"),
    ],
)
def test_a_policy_is_refused_in_the_brokers_words(body: dict[str, object], sentence: str) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        whole = body if sentence.startswith("[{key_missing") else {"pattern": "x", **body}
        answer = await api.ask("PUT", "policies", "/", "p", body=whole)
        assert answer.status == 400
        assert answer.json["reason"].removeprefix("Validation failed\n\n").startswith(sentence)

    run(steps)


@pytest.mark.parametrize(("profile", "status"), [("3.10", 400), ("4.0", 400), ("4.3", 201)])
def test_a_policy_key_is_known_from_its_version_on(profile: str, status: int) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        body = {"pattern": "x", "definition": {"delayed-retry-min": 10}}
        assert (await api.ask("PUT", "policies", "/", "p", body=body)).status == status

    run(steps, profile)


def test_clients_are_listed_and_hung_up_on() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        async with Client(broker.url, name="test") as client:
            await client.connection()
            listed = (await api.ask("GET", "connections")).json
            assert [(one["user"], one["vhost"], one["state"]) for one in listed] == [("guest", "/", "running")]
            name = listed[0]["name"]
            assert (await api.ask("GET", "connections", name)).json == listed[0]
            overview = (await api.ask("GET", "overview")).json
            assert overview["object_totals"]["connections"] == 1
            before = broker.engine.connections[0]
            assert (await api.ask("DELETE", "connections", name)).status == 204
            assert before not in broker.engine.connections
            assert (await api.ask("DELETE", "connections", name)).status == 404

    run(steps)
