"""The command line as a user meets it: a real process, its output, its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from redrive.cli import cli
from redrive.cli.console import announce_start

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


def redrive(*arguments: str, cwd: Path = ROOT, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-m", "redrive", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        timeout=60,
        env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")},
    )
    return subprocess.CompletedProcess(
        result.args, result.returncode, result.stdout.decode(), result.stderr.decode("utf-8", "replace")
    )


def test_compile_prints_definitions_by_default() -> None:
    result = redrive("compile", "examples/ladder/redrive.yaml")
    assert (result.returncode, result.stderr) == (0, "")
    definitions = json.loads(result.stdout)
    assert definitions["vhosts"] == [{"name": "/"}]
    assert [queue["name"] for queue in definitions["queues"]] == [
        "orders",
        "orders.wait.30s",
        "orders.wait.5m",
        "orders.wait.30m",
        "orders.parked",
    ]


@pytest.mark.parametrize("form", ["tree", "mermaid", "svg"])
def test_compile_draws(form: str) -> None:
    result = redrive("compile", "examples/ladder/redrive.yaml", "--format", form)
    assert (result.returncode, result.stderr) == (0, "")
    for name in ("domain.events", "orders", "orders.wait.30s", "orders.wait.30m", "orders.parked"):
        assert name in result.stdout
    assert "\x1b[" not in result.stdout


def test_compile_reads_definitions_too(tmp_path: Path) -> None:
    definitions = redrive("compile", "examples/file-pipeline/redrive.yaml").stdout
    (tmp_path / "definitions.json").write_text(definitions)
    result = redrive("compile", "definitions.json", cwd=tmp_path)
    assert json.loads(result.stdout) == json.loads(definitions)


def test_compile_reads_stdin() -> None:
    yaml = redrive("compile", "-", "--format", "tree", stdin=b"queues: {orders: {retry: [1s]}}")
    assert "orders.wait.1s" in yaml.stdout
    definitions = redrive("compile", "-", stdin=b'{"queues": [{"name": "a", "vhost": "/", "durable": true}]}')
    assert [queue["name"] for queue in json.loads(definitions.stdout)["queues"]] == ["a"]


def test_permissions_give_each_user_what_it_needs_and_no_more() -> None:
    result = redrive("compile", "examples/ladder/redrive.yaml", "--format", "permissions")
    rights = {one["user"]: one for one in json.loads(result.stdout)["permissions"]}
    assert rights["redrive-consumer"] == {
        "user": "redrive-consumer",
        "vhost": "/",
        "configure": "^$",
        "write": r"^(amq\.default)$",
        "read": "^(orders)$",
    }
    assert rights["redrive-publisher"]["write"] == r"^(domain\.events)$"
    assert rights["redrive-operator"]["read"] == r"^(orders\.parked)$"


@pytest.mark.parametrize("version", ["3.10", "4.0"])
def test_native_is_refused_below_4_3(version: str) -> None:
    result = redrive("compile", "examples/native/redrive.yaml", "--for", version)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "queue orders" in result.stderr
    assert "4.3" in result.stderr


@pytest.mark.parametrize(
    ("example", "version"),
    [
        (example, version)
        for example in ("freeflow", "event-bus", "file-pipeline", "ratatoskr", "bookly", "ladder", "native")
        for version in ("3.10", "4.0", "4.3")
        if example != "native" or version == "4.3"
    ],
)
def test_every_other_example_is_right_for_every_version(example: str, version: str) -> None:
    file = str(EXAMPLES / example / "redrive.yaml")
    runner = CliRunner()
    result = runner.invoke(cli, ["compile", file, "--for", version])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == runner.invoke(cli, ["compile", file]).stdout


WRONG = {
    "a missing file": (("compile", "nowhere.yaml"), "error: nowhere.yaml: there is no such file; write one with"),
    "a folder": (("compile", "examples"), "error: examples: is a folder; name the file in it"),
    "a wrong format": (("compile", "x.yaml", "--format", "png"), "'png' is not one of"),
    "an unknown command": (("compyle",), "error: there is no command compyle; did you mean `compile`?"),
    "no file": (("compile",), "missing argument 'FILE'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_ends_in_one_sentence_and_exit_code_2(case: str) -> None:
    arguments, sentence = WRONG[case]
    result = redrive(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", b"\xff\xfe\x00binary"),
        ("a.yaml", b"queues: [1"),
        ("a.json", b"[]"),
        ("a.json", b"{"),
        ("a.json", b"[" * 100_000),
        ("a.yaml", b"\x1b[31mred: 1"),
        ("a", b""),
    ],
)
def test_an_unusable_file_ends_in_one_sentence_and_exit_code_2(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    result = redrive("compile", name, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {name}")
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_init_writes_a_file_that_compiles_and_never_overwrites_one(tmp_path: Path) -> None:
    first = redrive("init", cwd=tmp_path)
    assert first.returncode == 0
    assert "redrive compile redrive.yaml --format tree" in first.stderr
    written = (tmp_path / "redrive.yaml").read_text()
    assert redrive("compile", "redrive.yaml", cwd=tmp_path).returncode == 0
    second = redrive("init", cwd=tmp_path)
    assert second.returncode == 2
    assert second.stderr == "error: redrive.yaml: is there already; choose another name\n"
    assert (tmp_path / "redrive.yaml").read_text() == written


def test_everything_the_starter_file_comments_out_compiles_too(tmp_path: Path) -> None:
    redrive("init", cwd=tmp_path)
    text = (tmp_path / "redrive.yaml").read_text()
    _, body = text.split("\n\n", 1)
    uncommented = "\n".join(
        line.replace("# ", "", 1) if line.lstrip().startswith("# ") else line for line in body.splitlines()
    )
    (tmp_path / "all.yaml").write_text(uncommented.replace("  #\n", "\n"))
    result = redrive("compile", "all.yaml", "--format", "tree", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    for name in ("emails.wait.10s", "invoices.dlq", "audit", "billing.queue.billing-api"):
        assert name in result.stdout


def test_schema_prints_json() -> None:
    result = redrive("schema")
    assert result.returncode == 0
    assert json.loads(result.stdout)["title"] == "redrive.yaml"


@pytest.mark.parametrize("command", [(), ("compile",), ("schema",), ("init",)])
def test_every_command_has_help_with_an_example(command: tuple[str, ...]) -> None:
    result = redrive(*command, "--help")
    assert result.returncode == 0
    assert not command or "Example" in result.stdout


def test_a_reader_that_goes_away_is_no_crash() -> None:
    process = subprocess.run(
        f"{sys.executable} -m redrive compile examples/freeflow/redrive.yaml | head -1",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.stdout == "{\n"
    assert "Traceback" not in process.stderr


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    result = redrive("apply", "examples/ladder/redrive.yaml", "--url", "amqp://127.0.0.1:1/", "--yes")
    assert result.returncode == 2
    assert result.stderr == "error: 127.0.0.1:1: the connection was refused; does a broker run there?\n"


@pytest.mark.parametrize(("log_format", "said"), [("text", "Consuming orders\n"), ("json", ""), (None, "")])
def test_only_json_stands_where_the_log_is_json(
    log_format: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    announce_start("Consuming orders", log_format=log_format)
    assert capsys.readouterr().err == said
