"""What a definitions file says is what the model holds."""

import json
from typing import Any

import pytest

from redrive.core import Severity
from redrive.topology import Arguments, Binding, DestinationType, Exchange, Policy, Queue, Topology, Vhost
from redrive.topology.definitions import parse_definitions, read_definitions


def cluster(**sections: Any) -> str:
    return json.dumps({"vhosts": [{"name": "/"}], **sections})


def only_queue(**fields: Any) -> Queue:
    (queue,) = read_definitions(cluster(queues=[{"name": "orders", "vhost": "/", **fields}])).queues
    return queue


def test_every_object_of_a_whole_cluster_file_is_read() -> None:
    topology = read_definitions(
        cluster(
            exchanges=[{"name": "events", "vhost": "/", "type": "topic", "durable": False, "internal": True}],
            queues=[{"name": "orders", "vhost": "/", "arguments": {"x-message-ttl": 5}}],
            bindings=[
                {
                    "source": "events",
                    "vhost": "/",
                    "destination": "orders",
                    "destination_type": "queue",
                    "routing_key": "o.#",
                    "arguments": {},
                }
            ],
            policies=[
                {"name": "p", "vhost": "/", "pattern": "^o", "definition": {"max-length": 1}, "priority": 2},
            ],
        )
    )
    assert topology == Topology(
        vhosts=(Vhost(name="/"),),
        exchanges=(Exchange(name="events", type="topic", durable=False, internal=True),),
        queues=(Queue(name="orders", arguments=Arguments({"x-message-ttl": 5})),),
        bindings=(Binding(source="events", destination="orders", routing_key="o.#"),),
        policies=(Policy(name="p", pattern="^o", definition=Arguments({"max-length": 1}), priority=2),),
    )


def test_what_is_absent_is_what_an_import_makes_of_it() -> None:
    assert only_queue() == Queue(name="orders", durable=True, auto_delete=False, arguments=Arguments())
    (exchange,) = read_definitions(cluster(exchanges=[{"name": "e", "vhost": "/", "type": "direct"}])).exchanges
    assert exchange == Exchange(name="e", type="direct", durable=True, auto_delete=False, internal=False)


def test_an_empty_argument_map_may_come_as_a_list() -> None:
    assert only_queue(arguments=[]).arguments == Arguments()


def test_a_byte_order_mark_is_no_part_of_the_file() -> None:
    text = cluster(queues=[{"name": "orders", "vhost": "/"}])
    assert read_definitions(b"\xef\xbb\xbf" + text.encode()).queues == (Queue(name="orders"),)
    assert read_definitions("\ufeff" + text).queues == (Queue(name="orders"),)


def test_objects_without_a_vhost_belong_to_the_one_given() -> None:
    text = json.dumps(
        {
            "rabbit_version": "3.10.8",
            "queues": [{"name": "orders", "durable": True}],
            # 3.10 leaves the vhost in these even in the per-vhost form; the path of an import decides all the same.
            "policies": [{"vhost": "old", "name": "p", "pattern": "", "definition": {"max-length": 5}}],
            "parameters": [
                {
                    "vhost": "old",
                    "component": "operator_policy",
                    "name": "cap",
                    "value": {"pattern": "", "apply-to": "queues", "definition": {"max-length": 9}, "priority": 1},
                }
            ],
        }
    )
    found = parse_definitions(text, vhost="billing")
    assert found.per_vhost
    assert found.topology.vhosts == (Vhost(name="billing"),)
    assert found.topology.queues == (Queue(name="orders", vhost="billing"),)
    assert [one.vhost for one in found.topology.policies] == ["billing", "billing"]


def test_a_per_vhost_export_of_4_brings_the_vhosts_settings_along() -> None:
    text = json.dumps({"original_vhost_name": "a", "metadata": {"default_queue_type": "quorum"}, "queues": []})
    found = parse_definitions(text)
    assert found.per_vhost
    assert found.topology.vhosts == (Vhost(name="/", default_queue_type="quorum"),)


def test_a_whole_cluster_file_is_recognised_by_its_vhosts_or_by_one_object_that_names_its_own() -> None:
    assert not parse_definitions('{"vhosts": []}').per_vhost
    assert not parse_definitions('{"queues": [{"name": "a", "vhost": "/"}]}').per_vhost
    assert not parse_definitions(
        '{"policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {}}]}'
    ).per_vhost
    assert not parse_definitions("{}").per_vhost


def test_vhosts_that_only_objects_name_are_there_too() -> None:
    text = json.dumps({"queues": [{"name": "a", "vhost": "x"}], "exchanges": []})
    assert read_definitions(text).vhosts == (Vhost(name="x"),)


def test_operator_policies_are_found_among_the_parameters() -> None:
    value = {"pattern": "^a", "apply-to": "queues", "definition": {"max-length": 9}, "priority": 3}
    shovel = {"vhost": "/", "component": "shovel", "name": "s", "value": {"src-uri": "amqp://"}}
    parameters = [{"vhost": "/", "component": "operator_policy", "name": "cap", "value": value}, shovel]
    topology = read_definitions(cluster(parameters=parameters))
    assert topology.policies == (
        Policy(
            name="cap",
            pattern="^a",
            apply_to="queues",
            definition=Arguments({"max-length": 9}),
            priority=3,
            operator=True,
        ),
    )
    assert topology.extra.thaw()["parameters"] == [shovel]


@pytest.mark.parametrize(
    "vhost",
    [
        {"metadata": {"default_queue_type": "quorum", "description": "", "tags": []}, "limits": []},
        {"default_queue_type": "quorum"},
    ],
)
def test_a_vhosts_default_queue_type_is_found_wherever_it_stands(vhost: dict[str, Any]) -> None:
    topology = read_definitions(json.dumps({"vhosts": [{"name": "v", **vhost}]}))
    assert topology.vhosts[0].default_queue_type == "quorum"


def test_what_the_model_does_not_know_is_kept() -> None:
    topology = read_definitions(
        cluster(users=[{"name": "u"}], rabbit_version="4.0.5", queues=[{"name": "q", "vhost": "/", "type": "classic"}])
    )
    assert topology.extra.thaw() == {"users": [{"name": "u"}], "rabbit_version": "4.0.5"}
    assert topology.queues[0].extra.thaw() == {"type": "classic"}


def test_an_exchange_binding_leads_to_an_exchange() -> None:
    item = {"source": "a", "vhost": "/", "destination": "b", "destination_type": "exchange"}
    (binding,) = read_definitions(cluster(bindings=[item])).bindings
    assert (binding.destination_type, binding.routing_key) == (DestinationType.EXCHANGE, "")


def test_a_binding_to_nowhere_is_read_all_the_same() -> None:
    item = {"source": "no", "vhost": "/", "destination": "where", "destination_type": "queue", "routing_key": ""}
    assert len(read_definitions(cluster(bindings=[item])).bindings) == 1


def test_predeclared_exchanges_are_no_part_of_the_topology() -> None:
    named = [{"name": name, "vhost": "/", "type": "direct"} for name in ("", "amq.topic", "mine")]
    topology = read_definitions(cluster(exchanges=named))
    assert [one.name for one in topology.exchanges] == ["mine"]


def test_the_same_object_twice_is_one_and_a_warning() -> None:
    found = parse_definitions(
        cluster(queues=[{"name": "a", "vhost": "/"}, {"name": "a", "vhost": "/", "durable": True}])
    )
    assert found.topology.queues == (Queue(name="a"),)
    (warning,) = found.warnings
    assert (warning.code, warning.severity, warning.address) == ("repeated-object", Severity.WARNING, "queues[1]")


@pytest.mark.parametrize("name", ["amq.mine", "x" * 256, "line\nbreak"])
def test_a_name_that_an_import_would_skip_or_no_client_can_reach_is_a_warning(name: str) -> None:
    (warning,) = parse_definitions(cluster(queues=[{"name": name, "vhost": "/"}])).warnings
    assert (warning.code, warning.address) == ("doubtful-name", "queues[0].name")
