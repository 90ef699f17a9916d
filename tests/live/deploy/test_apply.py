"""`redrive apply` on real brokers: declares what is missing, twice is once, and a difference stops everything."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rig.brokers import Vhost

from redrive.topology import read_definitions
from tests.live.broker_topology import EVERYWHERE, compiled, read_back, without_vhosts
from tests.unit.cli.dlq_stage import redrive as in_this_process

ROOT = Path(__file__).parents[3]


def redrive(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "redrive", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )


def check_apply(vhost: Vhost, example: str) -> None:
    file = f"examples/{example}/redrive.yaml"
    first = redrive("apply", file, "--url", vhost.amqp_url, "--yes")
    assert (first.returncode, first.stderr) == (0, "")
    topology = compiled(example, vhost.name)
    assert read_back(vhost.management.get("definitions", vhost.name), vhost.name) == without_vhosts(topology)
    second = redrive("apply", file, "--yes", REDRIVE_URL=vhost.amqp_url)
    assert second.returncode == 0
    assert "no queue or exchange missing, " in second.stdout
    third = redrive("apply", file, "--yes", "--management-url", vhost.management.url, REDRIVE_URL=vhost.amqp_url)
    assert third.returncode == 0
    assert third.stdout.startswith("nothing missing, ")


@pytest.mark.live
@pytest.mark.parametrize("example", EVERYWHERE)
def test_an_example_is_applied_as_it_is_and_again_without_change(vhost: Vhost, example: str) -> None:
    check_apply(vhost, example)


@pytest.mark.live(versions=("4.3",))
def test_native_is_applied_on_4_3(vhost: Vhost) -> None:
    check_apply(vhost, "native")


@pytest.mark.live(versions=("3.10", "4.0"))
def test_native_is_refused_below_4_3_before_anything_is_declared(vhost: Vhost) -> None:
    """The broker itself would take the arguments without a word and retry without a pause."""
    result = redrive("apply", "examples/native/redrive.yaml", "--url", vhost.amqp_url, "--yes")
    assert (result.returncode, result.stdout) == (2, "")
    assert "x-delayed-retry-type is silently ignored by RabbitMQ" in result.stderr
    assert vhost.management.get("queues", vhost.name) == []


@pytest.mark.live(versions=("4.0", "4.3"))
def test_a_classic_shape_stays_classic_where_the_default_queue_type_is_quorum(vhost: Vhost) -> None:
    vhost.management.put("vhosts", vhost.name, body={"default_queue_type": "quorum"})
    result = redrive("apply", "examples/file-pipeline/redrive.yaml", "--url", vhost.amqp_url, "--yes")
    assert (result.returncode, result.stderr) == (0, "")
    found = read_back(vhost.management.get("definitions", vhost.name), vhost.name)
    assert {queue.type for queue in found.queues} == {"classic"}
    assert set(found.queues) == set(compiled("file-pipeline", vhost.name).queues)


@pytest.mark.live
def test_the_deploy_user_of_the_permissions_can_apply_what_they_were_made_for(vhost: Vhost) -> None:
    for example in EVERYWHERE:
        file = f"examples/{example}/redrive.yaml"
        rights = json.loads(redrive("compile", file, "--format", "permissions").stdout)["permissions"]
        deploy = next(one for one in rights if one["user"] == "redrive-deploy")
        user = f"deploy-{vhost.name}"[-80:]
        vhost.management.put("users", user, body={"password": "secret", "tags": ""})
        try:
            body = {key: deploy[key] for key in ("configure", "write", "read")}
            vhost.management.put("permissions", vhost.name, user, body=body)
            url = vhost.amqp_url.replace("guest:guest@", f"{user}:secret@")
            result = redrive("apply", file, "--url", url, "--yes")
            assert (result.returncode, result.stderr) == (0, ""), example
        finally:
            vhost.management.delete("users", user)


@pytest.mark.live
def test_a_difference_is_named_with_both_values_and_nothing_is_changed(vhost: Vhost) -> None:
    different = {"durable": True, "arguments": {"x-queue-type": "quorum", "x-message-ttl": 5000}}
    vhost.management.put("queues", vhost.name, "orders.wait.30s", body=different)
    before = vhost.management.get("definitions", vhost.name)
    result = redrive("apply", "examples/ladder/redrive.yaml", "--url", vhost.amqp_url, "--yes", "--format", "json")
    assert result.returncode == 2
    report = json.loads(result.stdout)
    assert report["applied"] is False
    (difference,) = report["differences"]
    assert difference["address"].startswith("queue orders.wait.30s (vhost ")
    assert difference["argument"] in ("x-message-ttl", "x-dead-letter-exchange", "x-overflow", "x-delivery-limit")
    assert difference["wanted"] != difference["found"]
    after = vhost.management.get("definitions", vhost.name)
    assert read_definitions(json.dumps(after), vhost=vhost.name) == read_definitions(
        json.dumps(before), vhost=vhost.name
    )


@pytest.mark.live
def test_an_exchange_of_another_type_is_a_difference(vhost: Vhost) -> None:
    vhost.management.put("exchanges", vhost.name, "domain.events", body={"type": "direct", "durable": True})
    result = redrive("apply", "examples/ladder/redrive.yaml", "--url", vhost.amqp_url, "--yes")
    assert result.returncode == 2
    assert "exchange domain.events" in result.stdout
    assert "type is direct on the broker and topic in the file" in result.stdout
    assert "RabbitMQ can't change an exchange in place: rename it in the file" in result.stdout
    assert "queue" not in result.stdout


@pytest.mark.live
def test_a_user_without_rights_is_told_where_they_are(vhost: Vhost) -> None:
    """Where something is missing it is the declaring that is refused, and where all is there the looking."""
    file = "examples/ladder/redrive.yaml"
    hint = f"see the rights it needs with: redrive compile {file} --format permissions"
    user = f"nobody-{vhost.name}"[-80:]
    vhost.management.put("users", user, body={"password": "secret", "tags": ""})
    url = vhost.amqp_url.replace("guest:guest@", f"{user}:secret@")
    try:
        outside = redrive("apply", file, "--url", url, "--yes")
        assert (outside.returncode, outside.stdout) == (2, "")
        assert f"error: user {user} has no access to vhost {vhost.name} of " in outside.stderr
        vhost.management.put("permissions", vhost.name, user, body={"configure": "^$", "write": "^$", "read": "^$"})
        missing = redrive("apply", file, "--url", url, "--yes")
        assert missing.returncode == 2
        assert f"user {user} " in missing.stdout + missing.stderr
        assert hint in (missing.stdout + missing.stderr).replace("See", "see")
        assert vhost.management.get("queues", vhost.name) == []
        assert redrive("apply", file, "--url", vhost.amqp_url, "--yes").returncode == 0
        there = redrive("apply", file, "--url", url, "--yes")
        assert there.returncode == 2
        assert f"queue orders (vhost {vhost.name}): user {user} may not configure it" in there.stdout
        assert f"Nothing was changed. S{hint[1:]}" in there.stdout
        for word in ("ACCESS_REFUSED", "in place", "rename"):
            assert word not in missing.stdout + missing.stderr + there.stdout + there.stderr
    finally:
        vhost.management.delete("users", user)


@pytest.mark.live(versions=("4.3",))
def test_an_empty_value_can_be_read(vhost: Vhost, tmp_path: Path) -> None:
    there = {"durable": True, "arguments": {"x-dead-letter-exchange": ""}}
    vhost.management.put("queues", vhost.name, "orders", body=there)
    file = tmp_path / "redrive.yaml"
    file.write_text('queues: {orders: {retry: false, arguments: {x-dead-letter-exchange: "amq.fanout"}}}')
    result = redrive("apply", str(file), "--url", vhost.amqp_url, "--yes")
    assert 'x-dead-letter-exchange is "" on the broker and amq.fanout in the file' in result.stdout
    assert (
        "RabbitMQ can't change a queue in place: rename it in the file, or delete it once it is empty." in result.stdout
    )


@pytest.mark.live(versions=("3.10",))
def test_without_yes_and_without_a_person_nothing_is_changed(vhost: Vhost) -> None:
    result = redrive("apply", "examples/ladder/redrive.yaml", "--url", vhost.amqp_url)
    assert result.returncode == 2
    assert "Nothing was changed: say --yes" in result.stderr
    assert vhost.management.get("queues", vhost.name) == []


@pytest.mark.live(versions=("3.10",))
def test_a_vhost_that_does_not_exist_is_one_sentence(vhost: Vhost) -> None:
    url = vhost.broker.amqp_url("no-such-vhost")
    result = redrive("apply", "examples/ladder/redrive.yaml", "--url", url, "--yes")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert "has no vhost no-such-vhost; create it, or check --url" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.live
def test_a_wrong_password_is_one_sentence_that_says_whose(vhost: Vhost) -> None:
    url = vhost.amqp_url.replace("guest:guest@", "guest:hunter2@")
    for result in (
        redrive("apply", "examples/ladder/redrive.yaml", "--url", url, "--yes"),
        redrive("push", "orders", "--to", "http://h/", "--file", "examples/ladder/redrive.yaml", "--url", url),
    ):
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("error: 127.0.0.1:")
        assert result.stderr.endswith(" does not accept user guest with this password; check --url\n")


@pytest.mark.live
def test_a_queue_that_may_not_be_read_is_one_sentence(vhost: Vhost) -> None:
    file = "examples/ladder/redrive.yaml"
    assert redrive("apply", file, "--url", vhost.amqp_url, "--yes").returncode == 0
    user = f"nobody-{vhost.name}"[-80:]
    vhost.management.put("users", user, body={"password": "secret", "tags": ""})
    try:
        vhost.management.put("permissions", vhost.name, user, body={"configure": "^$", "write": "^$", "read": "^$"})
        url = vhost.amqp_url.replace("guest:guest@", f"{user}:secret@")
        arguments = ("push", "orders", "--to", "http://h/", "--file", file, "--url", url, "--log-level", "error")
        result = redrive(*arguments)
        assert result.returncode == 2
        assert result.stderr.startswith(f"error: user {user} may not read queue orders of amqp://127.0.0.1:")
        assert result.stderr.endswith(f"; see the rights it needs with: redrive compile {file} --format permissions\n")
    finally:
        vhost.management.delete("users", user)


def test_a_broker_key_that_is_no_url_is_named_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("broker: localhost\nqueues: {orders: {retry: [30s]}}")
    result = in_this_process("apply", str(file), "--yes", REDRIVE_URL="")
    assert result.code == 2
    assert result.err.startswith(f"error: broker: of {file}: localhost is no AMQP URL; write it like amqp://")


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    file = str(ROOT / "examples/ladder/redrive.yaml")
    result = in_this_process("apply", file, "--url", "amqp://u:secret@127.0.0.1:1/", "--yes")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: 127.0.0.1:1: ")
    assert "secret" not in result.err


def bindings_of(vhost: Vhost) -> set[tuple[str, str, str]]:
    shown = vhost.management.get("bindings", vhost.name)
    return {(one["source"], one["destination"], one["routing_key"]) for one in shown if one["source"]}


@pytest.mark.live
def test_a_missing_binding_is_named_asked_about_and_only_then_made(vhost: Vhost) -> None:
    file = "examples/ladder/redrive.yaml"
    known = ("apply", file, "--url", vhost.amqp_url, "--management-url", vhost.management.url)
    binding = ("domain.events", "orders", "orders.#")
    assert redrive(*known, "--yes").returncode == 0
    vhost.management.delete("bindings", vhost.name, "e", "domain.events", "q", "orders", "orders.%23")
    assert binding not in bindings_of(vhost)

    asked = redrive(*known)
    assert (asked.returncode, asked.stdout) == (2, "")
    assert f"  + binding domain.events → orders (orders.#) (vhost {vhost.name})\n" in asked.stderr
    assert "Nothing was changed: say --yes to declare these." in asked.stderr
    assert binding not in bindings_of(vhost)

    made = redrive(*known, "--yes")
    assert made.returncode == 0
    assert f"  + binding domain.events → orders (orders.#) (vhost {vhost.name})\n1 declared, 1 binding in place" in (
        made.stdout
    )
    assert binding in bindings_of(vhost)
    assert redrive(*known).stdout.startswith("nothing missing, 1 binding in place")


@pytest.mark.live
def test_where_bindings_can_not_be_seen_that_is_said_and_nothing_is_made_unasked(vhost: Vhost) -> None:
    file = "examples/ladder/redrive.yaml"
    unknown = ("apply", file, "--url", vhost.amqp_url, "--management-url", "http://127.0.0.1:9")
    assert redrive(*unknown, "--yes").stdout.endswith("1 binding in place (RabbitMQ " + server_version(vhost) + ").\n")
    vhost.management.delete("bindings", vhost.name, "e", "domain.events", "q", "orders", "orders.%23")

    asked = redrive(*unknown)
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "  ? 1 binding: which of them exist only the management API could tell" in asked.stderr
    assert bindings_of(vhost) == set()

    made = redrive(*unknown, "--yes")
    assert made.returncode == 0
    assert "nothing missing" not in made.stdout
    assert "  ? 1 binding made; which of them were missing is not known: the management API does not" in made.stdout
    assert "no queue or exchange missing, 1 binding in place" in made.stdout
    assert bindings_of(vhost) == {("domain.events", "orders", "orders.#")}


def server_version(vhost: Vhost) -> str:
    return str(vhost.management.get("overview")["rabbitmq_version"])
