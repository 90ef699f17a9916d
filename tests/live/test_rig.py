"""The rig itself, on every version it has: what other live tests take for granted."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rig import Broker, Management, ManagementRefused, Node, NodeFailed, OwnNodes, Tls, Vhost, clean_vhost
from rig.process_group import ProcessGroup
from rig.supervisor import ABANDONED_S_MIN, marked_processes
from rig.versions import cache_folder

# A queue declared less than about a second before its node is killed may come back without its messages or not at all:
# brokers of all three versions sync the registration of a queue later than they confirm what is published to it.
SETTLED_S = 2.0
DURABLE = {"durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}}


def publish(management: Management, vhost: str, queue: str, payload: str) -> None:
    body = {"routing_key": queue, "payload": payload, "payload_encoding": "string", "properties": {"delivery_mode": 2}}
    answer = management.post("exchanges", vhost, "amq.default", "publish", body=body)
    assert answer == {"routed": True}


def take_payloads(management: Management, vhost: str, queue: str) -> list[str]:
    """Everything in the queue; a quorum queue may need a moment after a restart before it has a leader."""
    body = {"count": 100, "ackmode": "ack_requeue_false", "encoding": "auto"}
    deadline = time.monotonic() + 30
    while True:
        try:
            return [message["payload"] for message in management.post("queues", vhost, queue, "get", body=body)]
        except ManagementRefused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def answers_amqp(port: int, *, timeout_s: float) -> bool:
    """Whether the broker answers a protocol header with connection.start."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        try:
            return connection.recv(1) == b"\x01"
        except TimeoutError:
            return False


@pytest.mark.live
def test_the_broker_has_the_version_it_is_labelled_with(rabbit: Broker) -> None:
    said = rabbit.management.get("overview")["rabbitmq_version"]
    assert rabbit.version == said
    assert said.startswith(rabbit.label + ".")


@pytest.mark.live
def test_a_clean_vhost_holds_no_queues_and_takes_messages(vhost: Vhost) -> None:
    assert vhost.management.get("queues", vhost.name) == []

    vhost.management.put("queues", vhost.name, "orders/new", body=DURABLE)
    publish(vhost.management, vhost.name, "orders/new", "one")

    assert [queue["name"] for queue in vhost.management.get("queues", vhost.name)] == ["orders/new"]
    assert take_payloads(vhost.management, vhost.name, "orders/new") == ["one"]
    vhost.management.delete("queues", vhost.name, "orders/new")
    assert vhost.management.get("queues", vhost.name) == []


@pytest.mark.live
def test_a_clean_vhost_is_gone_afterwards(rabbit: Broker) -> None:
    with clean_vhost(rabbit) as made:
        assert made.management.get("vhosts", made.name)["name"] == made.name
        made.management.put("queues", made.name, "left-behind", body=DURABLE)

    with pytest.raises(ManagementRefused) as refused:
        rabbit.management.get("vhosts", made.name)
    assert refused.value.status == 404


@pytest.mark.live
def test_the_shared_node_takes_rabbitmqctl_commands(rabbit_node: Node, vhost: Vhost) -> None:
    assert vhost.name in rabbit_node.ctl("list_vhosts", "--quiet").splitlines()
    with pytest.raises(NodeFailed, match="no-such-command"):
        rabbit_node.ctl("no-such-command")


@pytest.mark.live
def test_a_node_listens_on_loopback_only(rabbit_node: Node) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = {rabbit_node.place.amqp_port, rabbit_node.place.management_port, rabbit_node.place.dist_port}
    found = {
        (local.split(":")[0], int(local.split(":")[1], 16)) for _, local, _, state, *_ in listening if state == "0A"
    }
    assert {(address, port) for address, port in found if port in ports} == {("0100007F", port) for port in ports}
    wide = [line.split()[1] for line in Path("/proc/net/tcp6").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert not {int(local.split(":")[1], 16) for local in wide} & ports


@pytest.mark.live
def test_a_node_keeps_its_messages_while_it_is_paused_and_when_it_is_restarted_or_killed(own_node: OwnNodes) -> None:
    # One test for three facts: a boot is what costs here.
    node = own_node()
    node.management.put("queues", "/", "orders", body=DURABLE)
    publish(node.management, "/", "orders", "one")
    first_pid = node.pid
    assert Path(f"/proc/{first_pid}/comm").read_text().strip().startswith("beam")

    node.pause()
    assert not answers_amqp(node.place.amqp_port, timeout_s=1)
    assert node.is_running
    node.resume()
    assert answers_amqp(node.place.amqp_port, timeout_s=10)

    node.restart()
    assert node.pid != first_pid
    assert take_payloads(node.management, "/", "orders") == ["one"]

    publish(node.management, "/", "orders", "two")
    node.kill()
    assert not node.is_running
    with pytest.raises(OSError):
        node.management.get("overview")

    node.start()
    assert take_payloads(node.management, "/", "orders") == ["two"]


@pytest.mark.live
def test_a_node_boots_with_definitions_and_can_be_looked_into(own_node: OwnNodes, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(
        '{"vhosts": [{"name": "shop"}], "queues": [{"vhost": "shop", "name": "orders", "durable": true,'
        ' "auto_delete": false, "arguments": {"x-queue-type": "quorum"}}]}'
    )

    node = own_node(definitions=file)

    assert [vhost["name"] for vhost in node.management.get("vhosts")] == ["shop"]
    assert [(queue["name"], queue["type"]) for queue in node.management.get("queues", "shop")] == [("orders", "quorum")]
    publish(node.management, "shop", "orders", "one")
    assert take_payloads(node.management, "shop", "orders") == ["one"]


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_node_that_refuses_its_configuration_fails_with_its_log(own_node: OwnNodes) -> None:
    with pytest.raises(NodeFailed, match=r"ended with [\s\S]*no_such_key"):
        own_node(conf="no_such_key = 1")


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_node_takes_plugins_advanced_config_and_tls(own_node: OwnNodes, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=60)

    node = own_node(
        plugins=("rabbitmq_shovel",),
        advanced="[{rabbit, [{frame_max, 16384}]}].",
        conf="heartbeat = 7",
        tls=Tls(ca=certificate, certificate=certificate, key=key),
    )

    assert node.ctl("eval", "application:get_env(rabbit, frame_max).").strip() == "{ok,16384}"
    assert node.ctl("eval", "application:get_env(rabbit, heartbeat).").strip() == "{ok,7}"
    assert "rabbitmq_shovel" in node.ctl("list", "--enabled", "--minimal", program="rabbitmq-plugins").split()
    context = ssl.create_default_context(cafile=str(certificate))
    with (
        socket.create_connection(("127.0.0.1", node.place.tls_port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        secured.sendall(b"AMQP\x00\x00\x09\x01")
        assert secured.recv(1) == b"\x01"


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_three_nodes_form_a_cluster_that_outlives_one_of_them(own_node: OwnNodes) -> None:
    cluster = own_node.cluster()
    names = {node.name for node in cluster}
    assert len(names) == 3
    assert [cluster.running_names(node) for node in cluster] == [names, names, names]
    cluster[0].management.put("queues", "/", "orders", body=DURABLE)
    publish(cluster[0].management, "/", "orders", "one")
    time.sleep(SETTLED_S)

    cluster[0].kill()

    assert take_payloads(cluster[1].management, "/", "orders") == ["one"]
    cluster[0].start()
    assert cluster.running_names(cluster[0]) == names


@pytest.mark.live
def test_a_node_carries_the_mark_of_its_run_and_its_folder_is_private(rabbit_node: Node) -> None:
    """The run's folder may let others pass to what is theirs (PostgreSQL's account); they list and read nothing."""
    folder = rabbit_node.place.folder.parent
    assert folder.stat().st_mode & 0o066 == 0
    assert rabbit_node.place.folder.stat().st_mode & 0o077 == 0
    assert (folder / "home").stat().st_mode & 0o077 == 0
    assert f"REDRIVE_RIG_RUN={folder}".encode() in Path(f"/proc/{rabbit_node.pid}/environ").read_bytes().split(b"\0")


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
@pytest.mark.parametrize("victim", ["client", "supervisor"])
def test_nothing_stays_when_a_run_is_killed(victim: str, rabbit_node: Node) -> None:
    """The client is what started the run (pytest, say), the supervisor what starts its processes."""
    if os.geteuid() != 0 and victim == "supervisor":
        pytest.skip("under sudo the supervisor belongs to root")
    command = [sys.executable, "-m", "rig", "start", rabbit_node.label]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as client:
        assert client.stdout is not None
        announced = re.search(r"\(pid (\d+), files in (\S+)\)", client.stdout.readline())
        assert announced is not None
        pid, folder = int(announced[1]), Path(announced[2]).parent
        supervisor_pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert {pid} < set(marked_processes(folder)), "the node, its epmd and their helpers carry the run's mark"

        os.kill(client.pid if victim == "client" else supervisor_pid, signal.SIGKILL)

        deadline = time.monotonic() + 10
        while set(marked_processes(folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert set(marked_processes(folder)) == set()
        client.kill()
    if victim == "client":
        while folder.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not folder.exists()
    else:
        assert folder.exists(), "nobody was left to remove it"
        long_ago = time.time() - 2 * ABANDONED_S_MIN
        os.utime(folder, (long_ago, long_ago))
        with ProcessGroup() as later:
            later.ask(do="spawn", argv=["true"], env={"PATH": os.defpath}, log=os.devnull)
            assert not folder.exists(), "the next run's supervisor removes it"
            assert later.folder.exists()
    assert f" {cache_folder()}" not in Path("/proc/self/mountinfo").read_text()
