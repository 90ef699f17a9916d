"""What `compile` writes is what RabbitMQ has after it took it, by each of the three ways in, on each version."""

import json

import pytest
from rig.brokers import Vhost
from rig.node import Node
from rig.node_pool import OwnNodes

from redrive.topology import write_definitions
from tests.live.broker_topology import EVERYWHERE, compiled, read_back, without_vhosts


def check_import_by_the_management_api(vhost: Vhost, example: str) -> None:
    topology = compiled(example, vhost.name)
    vhost.management.post("definitions", body=json.loads(write_definitions(topology)))
    assert read_back(vhost.management.get("definitions", vhost.name), vhost.name) == without_vhosts(topology)


@pytest.mark.live
@pytest.mark.parametrize("example", EVERYWHERE)
def test_the_management_api_imports_an_example_as_it_is(vhost: Vhost, example: str) -> None:
    check_import_by_the_management_api(vhost, example)


@pytest.mark.live(versions=("4.3",))
def test_the_management_api_imports_native_as_it_is_on_4_3(vhost: Vhost) -> None:
    check_import_by_the_management_api(vhost, "native")


@pytest.mark.live
def test_an_import_through_a_vhosts_own_path_is_the_same(vhost: Vhost) -> None:
    """POST /api/definitions/VHOST wants objects without vhosts."""
    topology = compiled("ladder", vhost.name)
    body = json.loads(write_definitions(topology, per_vhost=True))
    vhost.management.post("definitions", vhost.name, body=body)
    assert read_back(vhost.management.get("definitions", vhost.name), vhost.name) == without_vhosts(topology)


@pytest.mark.live
def test_an_import_twice_changes_nothing(vhost: Vhost) -> None:
    topology = compiled("file-pipeline", vhost.name)
    for _ in range(2):
        vhost.management.post("definitions", body=json.loads(write_definitions(topology)))
    assert read_back(vhost.management.get("definitions", vhost.name), vhost.name) == without_vhosts(topology)


def check_import_by_rabbitmqctl(node: Node, vhost: Vhost, examples: tuple[str, ...]) -> None:
    for example in examples:
        topology = compiled(example, vhost.name)
        file = node.place.folder / "import.json"  # inside the node's own folder, which its chroot can see
        file.write_text(write_definitions(topology), encoding="utf-8")
        node.ctl("import_definitions", str(file))
        found = read_back(vhost.management.get("definitions", vhost.name), vhost.name)
        assert set(topology.queues) <= set(found.queues)
        assert set(topology.exchanges) <= set(found.exchanges)
        assert set(topology.bindings) <= set(found.bindings)


@pytest.mark.live
def test_rabbitmqctl_imports_the_examples(rabbit_node: Node, vhost: Vhost) -> None:
    # ladder is left to the other ways in: native, on 4.3, has the same queue with other arguments
    check_import_by_rabbitmqctl(rabbit_node, vhost, ("freeflow", "event-bus", "file-pipeline", "ratatoskr", "bookly"))


def check_boot(own_node: OwnNodes, example: str) -> None:
    topology = compiled(example)
    node = own_node(definitions=write_definitions(topology))
    found = read_back(node.management.get("definitions", "/"), "/")
    assert found == without_vhosts(topology)


@pytest.mark.live
@pytest.mark.parametrize("example", EVERYWHERE)
def test_a_node_boots_with_an_example_as_load_definitions(own_node: OwnNodes, example: str) -> None:
    check_boot(own_node, example)


@pytest.mark.live(versions=("4.3",))
def test_a_node_of_4_3_boots_with_native_as_load_definitions(own_node: OwnNodes) -> None:
    check_boot(own_node, "native")
