"""Prints results of `redrive dlq`: JSON for machines, tables for people; and asks before what can't be undone."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from redrive.cli.console import ask, say, wants_colour, write
from redrive.cli.text_tables import TableCell, TableColumn, printable, render_table
from redrive.records import GroupState, OperationState, Status

STATUS_COLOURS: dict[str, str] = {
    Status.PENDING: "yellow",
    Status.RETRYING: "cyan",
    Status.WAITING: "blue",
    Status.IN_DOUBT: "magenta",
    Status.FAILED: "red",
    Status.RESOLVED: "green",
}
GROUP_COLOURS: dict[str, str] = {
    GroupState.OPEN: "yellow",
    GroupState.ACKNOWLEDGED: "cyan",
    GroupState.RESOLVED: "green",
    GroupState.REGRESSED: "red",
}
OPERATION_COLOURS: dict[str, str] = {
    OperationState.RUNNING: "cyan",
    OperationState.WAITING: "yellow",
    OperationState.PAUSED: "yellow",
    OperationState.CANCELLED: "red",
    OperationState.DONE: "green",
}


def print_json(value: Any) -> None:
    """One JSON document; ASCII, so that a text from a message can't drive a terminal."""
    write(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """One JSON document in a line."""
    write(json.dumps(value))


def print_table(columns: Sequence[TableColumn], rows: Iterable[Sequence[str | TableCell]]) -> None:
    """A table on stdout: as wide as the terminal there, uncut elsewhere."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    colour = wants_colour(sys.stdout)
    write(render_table(columns, rows, width=width, colour=colour), colour=colour)


def print_line(text: str, *, fg: str | None = None, bold: bool = False) -> None:
    """A line on stdout, with anything that could drive the terminal escaped."""
    write(click.style(printable(text), fg=fg, bold=bold or None), colour=wants_colour(sys.stdout))


def warn_line(text: str) -> None:
    """A warning on stderr."""
    click.secho(f"warning: {printable(text)}", fg="yellow", err=True, color=wants_colour(sys.stderr))


def fail_line(text: str) -> None:
    """An error on stderr; the exit code is the caller's."""
    click.secho(f"error: {printable(text)}", fg="red", err=True, color=wants_colour(sys.stderr))


def is_confirmed(question: str, *, yes: bool) -> bool:
    """Asks a person; without a terminal the answer is no."""
    if yes:
        return True
    if not sys.stdin.isatty():
        say(f"{printable(question)} Nothing was changed: no terminal to ask on; add --yes.")
        return False
    if ask(question):
        return True
    say("Nothing was changed.")
    return False
