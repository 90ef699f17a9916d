"""Definitions: what goes in comes out, what is there stays, and a refusal stops an import where RabbitMQ's stops."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from redrive.embedded import PROFILES, EmbeddedBroker
from redrive.topology import Topology, compile_declaration, read_declaration, read_definitions, write_definitions
from tests.unit.embedded_management.http_client import ApiClient
from tests.unit.embedded_management.management_broker import run, running

EXAMPLES = Path(__file__).parents[3] / "examples"
CASES = [
    (file.parent.name, profile)
    for file in sorted(EXAMPLES.glob("*/redrive.yaml"))
    for profile in PROFILES
    if file.parent.name != "native" or profile == "4.3"
]


def compiled(example: str) -> Topology:
    declaration = read_declaration((EXAMPLES / example / "redrive.yaml").read_text(), file=example)
    return compile_declaration(declaration).topology


def read_back(answer: Any, vhost: str = "/") -> Topology:
    return read_definitions(json.dumps(answer), vhost=vhost).only(vhost)


@pytest.mark.parametrize(("example", "profile"), CASES)
def test_an_example_is_read_back_as_it_was_imported(example: str, profile: str) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        topology = compiled(example)
        body = write_definitions(topology).encode()
        for _time in range(2):
            assert (await api.ask("POST", "definitions", body=body)).status == 204
            assert read_back((await api.ask("GET", "definitions")).json) == topology
            assert read_back((await api.ask("GET", "definitions", "/")).json) == topology

    run(steps, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_address_of_a_vhost_decides_where_objects_go(profile: str) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        await api.ask("PUT", "vhosts", "v")
        topology = compiled("ladder")
        body = write_definitions(topology, per_vhost=True).encode()
        assert (await api.ask("POST", "definitions", "v", body=body)).status == 204
        assert read_back((await api.ask("GET", "definitions", "v")).json, "v") == topology.moved("v")
        assert (await api.ask("GET", "queues", "/")).json == []
        assert (await api.ask("POST", "definitions", "nope", body=body)).status == 404

    run(steps, profile)


def queue(name: str, vhost: str = "/", *, arguments: Any = None) -> dict[str, Any]:
    return {"name": name, "vhost": vhost, "durable": True, "auto_delete": False, "arguments": arguments or {}}


def policy(**definition: Any) -> dict[str, Any]:
    return {"vhost": "/", "name": "p", "pattern": "q", "apply-to": "all", "definition": definition, "priority": 0}


def test_what_exists_stays_and_policies_are_overwritten() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        before = {"queues": [queue("q", arguments={"x-message-ttl": 5})], "policies": [policy(**{"max-length": 1})]}
        after = {"queues": [queue("q"), queue("new")], "policies": [policy(**{"max-length": 2})]}
        for body in (before, after):
            assert (await api.ask("POST", "definitions", body=body)).status == 204
        shown = (await api.ask("GET", "definitions")).json
        ttls = {one["name"]: one["arguments"].get("x-message-ttl") for one in shown["queues"]}
        assert ttls == {"q": 5, "new": None}
        assert [one["definition"] for one in shown["policies"]] == [{"max-length": 2}]

    run(steps)


def test_operator_policies_come_and_go_as_parameters() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        value = {"pattern": "q", "definition": {"max-length": 3}, "priority": 1, "apply-to": "queues"}
        parameter = {"vhost": "/", "component": "operator_policy", "name": "o", "value": value}
        body = {"queues": [queue("q")], "parameters": [parameter]}
        assert (await api.ask("POST", "definitions", body=body)).status == 204
        assert (await api.ask("GET", "definitions")).json["parameters"] == [parameter]
        assert broker.engine.vhosts["/"].queues["q"].settings.length_max == 3

    run(steps)


def binding(source: str, destination: str) -> dict[str, Any]:
    ends = {"source": source, "destination": destination, "destination_type": "queue"}
    return {**ends, "vhost": "/", "routing_key": "", "arguments": {}}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{bad", "failed_to_parse_json"),
        (b"[]", "failed_to_parse_json"),
        ({"queues": [queue("q", "nope")]}, 'Please create virtual host "nope" prior to importing definitions.'),
        (
            {"queues": [queue("q", arguments={"x-message-ttl": -5})]},
            "precondition_failed: invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {value_negative,-5}",
        ),
        (
            {"policies": [policy(nope=1)]},
            'Validation failed\n\n[{<<"nope">>,1}] are not recognised policy settings\n (vhost: "/" key: "p")',
        ),
        (
            {"bindings": [binding("amq.topic", "missing")]},
            '{resources_missing,[{not_found,{resource,<<"/">>,queue,<<"missing">>}}]}',
        ),
    ],
)
def test_an_import_is_refused_in_the_brokers_words(body: Any, reason: str) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        answer = await api.ask("POST", "definitions", body=body)
        assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": reason})

    run(steps)


def test_3_10_leaves_a_binding_to_nothing_out() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        body = {"bindings": [binding("amq.topic", "missing")]}
        assert (await api.ask("POST", "definitions", body=body)).status == 204
        assert (await api.ask("GET", "definitions")).json["bindings"] == []

    run(steps, "3.10")


def test_objects_without_a_vhost_need_one_in_the_address() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        body = write_definitions(compiled("ladder"), per_vhost=True).encode()
        answer = await api.ask("POST", "definitions", body=body)
        assert answer.status == 400
        assert "definitions/VHOST" in answer.json["reason"]
        assert broker.engine.queues() == []

    run(steps)


def test_an_exclusive_queue_is_nobodys_definition() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        connection = broker.engine.connect("/", "guest")
        channel = connection.open_channel(1)
        channel.declare_queue("mine", exclusive=True)
        channel.bind_queue("mine", "amq.topic", "k", {})
        shown = (await api.ask("GET", "definitions")).json
        assert (shown["queues"], shown["bindings"]) == ([], [])
        assert [one["exclusive"] for one in (await api.ask("GET", "queues")).json] == [True]

    run(steps)


def test_a_thousand_queues_are_imported_quickly() -> None:
    async def steps() -> float:
        names = [f"q{number}" for number in range(1000)]
        body = {"queues": [queue(name) for name in names], "bindings": [binding("amq.topic", name) for name in names]}
        async with running() as (broker, api):
            began_s = time.perf_counter()
            assert (await api.ask("POST", "definitions", body=body)).status == 204
            took_s = time.perf_counter() - began_s
            assert len(broker.engine.queues()) == 1000
            return took_s

    assert asyncio.run(steps()) < 2.0
