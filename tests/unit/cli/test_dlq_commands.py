"""What all of `redrive collect` and `redrive dlq` have in common: help with examples, a fast start, documentation."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from redrive.cli import cli
from tests.unit.cli.dlq_stage import redrive

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "command-line.md"


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every command below, itself too."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, (*path, name))


ROOT_CONTEXT = click.Context(cli)
COMMANDS = [
    path
    for name in ("collect", "dlq")
    if (found := cli.get_command(ROOT_CONTEXT, name)) is not None
    for path in commands(found, (name,))
]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example_that_it_understands(path: tuple[str, ...]) -> None:
    ran = redrive(*path, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Example" in ran.out
    assert f"redrive {' '.join(path)}" in ran.out


@pytest.mark.parametrize("path", [one for one in COMMANDS if len(one) > 1], ids=" ".join)
def test_every_command_is_in_the_reference(path: tuple[str, ...]) -> None:
    text = REFERENCE.read_text(encoding="utf-8").replace("\\|", "|")
    rows = [line for line in text.splitlines() if line.startswith("| `") and f"`{path[1]}" in line.split(" | ")[0]]
    assert rows
    for word in path[2:]:
        assert any(word in line for line in rows), word


@pytest.mark.parametrize("typo", [("dlq", "lst"), ("dlq", "groups", "ack"), ("dlq", "operations", "stop")])
def test_an_unknown_subcommand_is_a_usage_error(typo: tuple[str, ...]) -> None:
    ran = redrive(*typo)
    assert (ran.code, ran.out) == (2, "")
    assert f"error: there is no command {typo[-1]}; " in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (("--help",), ("redrive.stores", "redrive.deadletters", "redrive.client", "redrive.records", "asyncio")),
        (("dlq", "--help"), ("redrive.stores", "redrive.deadletters", "redrive.client", "asyncio")),
        (("dlq", "list", "--help"), ("redrive.client", "redrive.management", "redrive.topology", "redrive.runtime")),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(arguments: tuple[str, ...], absent: tuple[str, ...]) -> None:
    program = f"""
import sys
from redrive.cli import cli
try:
    cli({list(arguments)!r})
except SystemExit:
    pass
print(sorted(set({list(absent)!r}) & set(sys.modules)), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stderr.splitlines()[-1] == "[]"
