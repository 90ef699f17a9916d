"""What a node of the rig is configured with, and the ports it gets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from rig.node_config import NodeOptions, NodePlace, Tls, enabled_plugins, environment, rabbitmq_conf
from rig.ports import Ports

PLACE = NodePlace(
    name="redrive1@localhost",
    folder=Path("/run/redrive1"),
    amqp_port=1001,
    management_port=1002,
    dist_port=1003,
    tls_port=1004,
)


def settings(options: NodeOptions) -> dict[str, str]:
    pairs = [
        (line.partition(" = ")[0], line.partition(" = ")[2])
        for line in rabbitmq_conf(PLACE, options).splitlines()
        if line
    ]
    return dict(pairs)


def test_a_node_listens_on_loopback_at_its_own_ports() -> None:
    found = settings(NodeOptions())
    assert found["listeners.tcp.1"] == "127.0.0.1:1001"
    assert (found["management.tcp.ip"], found["management.tcp.port"]) == ("127.0.0.1", "1002")
    assert environment(PLACE)["RABBITMQ_DIST_PORT"] == "1003"
    assert "inet_dist_use_interface {127,0,0,1}" in environment(PLACE)["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    assert not [key for key in found if "ssl" in key]


def test_a_test_has_the_last_word_in_the_configuration() -> None:
    lines = rabbitmq_conf(PLACE, NodeOptions(conf="heartbeat = 7\ndisk_free_limit.absolute = 1GB")).splitlines()
    assert lines[-2:] == ["heartbeat = 7", "disk_free_limit.absolute = 1GB"]


def test_definitions_are_loaded_from_the_nodes_own_copy() -> None:
    assert "load_definitions" not in settings(NodeOptions())
    assert settings(NodeOptions(definitions="{}"))["load_definitions"] == "/run/redrive1/etc/definitions.json"


def test_a_tls_listener_asks_for_client_certificates_only_when_told() -> None:
    tls = Tls(ca=Path("/t/ca.pem"), certificate=Path("/t/c.pem"), key=Path("/t/k.pem"))
    found = settings(NodeOptions(tls=tls))
    assert found["listeners.ssl.1"] == "127.0.0.1:1004"
    assert found["ssl_options.cacertfile"] == "/t/ca.pem"
    assert (found["ssl_options.verify"], found["ssl_options.fail_if_no_peer_cert"]) == ("verify_none", "false")
    strict = Tls(ca=tls.ca, certificate=tls.certificate, key=tls.key, verify_peer=True)
    found = settings(NodeOptions(tls=strict))
    assert (found["ssl_options.verify"], found["ssl_options.fail_if_no_peer_cert"]) == ("verify_peer", "true")


def test_the_nodes_of_a_cluster_know_each_others_names() -> None:
    found = settings(NodeOptions(peers=("a@localhost", "b@localhost")))
    assert found["cluster_formation.classic_config.nodes.1"] == "a@localhost"
    assert found["cluster_formation.classic_config.nodes.2"] == "b@localhost"


def test_management_is_enabled_besides_what_a_test_asks_for() -> None:
    assert enabled_plugins(NodeOptions()) == "[rabbitmq_management].\n"
    more = NodeOptions(plugins=("rabbitmq_shovel", "rabbitmq_management"))
    assert enabled_plugins(more) == "[rabbitmq_management,rabbitmq_shovel].\n"


def test_a_reserved_port_is_free_for_the_broker_and_taken_for_everybody_else() -> None:
    ports = Ports()
    try:
        port = ports.reserve()
        with socket.socket() as somebody, pytest.raises(OSError, match="in use"):
            somebody.bind(("127.0.0.1", port))
        with socket.socket() as broker:
            broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            broker.bind(("127.0.0.1", port))
            broker.listen()
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass
        assert len({ports.reserve() for _ in range(50)} | {port}) == 51
    finally:
        ports.close()
