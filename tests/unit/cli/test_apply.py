"""`redrive apply` and what it says: of the file, of a broker that is away, of what AMQP can't declare."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.dlq_stage import redrive, scene_in

QUEUE = {"name": "orders", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
POLICY = {
    "vhost": "/",
    "name": "limits",
    "pattern": "^orders",
    "apply-to": "queues",
    "definition": {"max-length": 10},
    "priority": 0,
}


def definitions(folder: Path, **parts: object) -> str:
    file = folder / "definitions.json"
    file.write_text(json.dumps({"vhosts": [{"name": "/"}], **parts}))
    return str(file)


def test_what_is_odd_in_a_file_is_a_warning_and_no_reason_to_stop(tmp_path: Path) -> None:
    ran = redrive("compile", definitions(tmp_path, queues=[QUEUE, QUEUE]))
    assert ran.code == 0
    assert [one["name"] for one in ran.json["queues"]] == ["orders"]
    (line,) = ran.err.splitlines()
    assert line.startswith("warning: ")
    assert "queue orders is listed twice" in line


def test_a_broker_that_is_away_is_not_waited_for_unless_asked(tmp_path: Path) -> None:
    file = definitions(tmp_path, queues=[QUEUE])
    ran = redrive("apply", file, "--yes", "--url", "amqp://guest:guest@127.0.0.1:1/")
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ")
    assert "127.0.0.1:1" in line
    assert "waited" not in line


@pytest.mark.slow
def test_policies_are_named_as_not_applied_and_a_pipe_gets_no_colour(tmp_path: Path) -> None:
    file = definitions(tmp_path, queues=[QUEUE | {"name": "orders.own"}], policies=[POLICY])
    with scene_in(tmp_path) as scene:
        ran = scene.run("apply", file, "--yes")
    assert ran.code == 1
    assert "  ! policy limits: not applied, policies need the management API" in ran.out.splitlines()
    assert "\x1b" not in ran.out
