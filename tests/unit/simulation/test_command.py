"""`redrive simulate` as a user meets it: a real process, its output, its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.topology import write_definitions
from redrive.wiring import load_file

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LADDER = "examples/ladder/redrive.yaml"


def simulate(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "redrive", "simulate", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")},
    )


def test_a_message_that_fails_three_times_is_handled_on_its_fourth_run() -> None:
    result = simulate(LADDER, "--queue", "orders", "--fail", "3")
    assert (result.returncode, result.stderr) == (0, "")
    assert "35m30s  orders           run 4 of 4: ok → ack" in result.stdout
    assert "Handled after 4 runs, 35m30s after it was published." in result.stdout


def test_a_message_that_is_parked_is_fine_too_and_json_says_where() -> None:
    result = simulate(LADDER, "--queue", "orders", "--script", "park", "--format", "json", "--profile", "3.10")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert (document["profile"], document["end"]["queue"]) == ("3.10", "orders.parked")


def test_a_loss_is_a_finding(tmp_path: Path) -> None:
    definitions = {
        "vhosts": [{"name": "/"}],
        "queues": [
            {
                "name": "orders",
                "vhost": "/",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-dead-letter-exchange": "nowhere"},
            }
        ],
    }
    (tmp_path / "definitions.json").write_text(json.dumps(definitions))
    result = simulate("definitions.json", "--queue", "orders", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, "")
    assert "Lost after 1 run, 0s after it was published" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((LADDER, "--queue", "order"), "error: queue order: is not in the file; did you mean `orders`?"),
        ((LADDER, "--queue", "orders", "--script", "fial"), "did you mean `fail`?"),
        (("examples/native/redrive.yaml", "--queue", "orders", "--profile", "4.0"), "silently ignored by RabbitMQ 4.0"),
        (("nothing.yaml", "--queue", "orders"), "there is no such file"),
        ((LADDER, "--queue", "orders", "--fail", "1", "--script", "ok"), "give one of them"),
        ((LADDER, "--queue", "orders", "--key", "x"), "--key needs --exchange"),
        ((LADDER,), "missing option '--queue'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    result = simulate(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_the_references_definitions_can_be_made_as_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "simulate.md").read_text(encoding="utf-8")
    written, _, shown = page.partition("## Somebody's definitions.json")[2].partition("```console\n")
    (tmp_path / "cycle.yaml").write_text(written.split("```yaml\n")[1].split("```")[0])
    first, second, *output = shown.split("```")[0].splitlines()
    assert first == "$ redrive compile cycle.yaml --format definitions > definitions.json"
    topology = load_file(str(tmp_path / "cycle.yaml")).topology
    (tmp_path / "definitions.json").write_text(write_definitions(topology))
    assert second.startswith("$ redrive simulate ")
    result = simulate(*second.removeprefix("$ redrive simulate ").split(), cwd=tmp_path)
    assert result.stdout.splitlines() == output
