"""`--url-file`, `--password-file`, `--database-file`: files with secrets, which no list of processes shows.

They become the environment variables with `_FILE`, which `redrive.wiring` reads, and win over the environment.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def with_secret_files(command: _Command) -> _Command:
    """Adds the options of what needs a broker and a database."""
    return with_broker_files(_option("--database-file", "REDRIVE_DATABASE", "A file with --database.")(command))


def with_broker_files(command: _Command) -> _Command:
    """Adds the options of what needs a broker."""
    command = _option("--password-file", "REDRIVE_PASSWORD", "A file with the password for the broker's user.")(command)
    return _option("--url-file", "REDRIVE_URL", "A file with --url, which then no list of processes shows.")(command)


def _option(name: str, variable: str, text: str) -> Callable[[_Command], _Command]:
    def say(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            os.environ.pop(variable, None)
            os.environ[f"{variable}_FILE"] = value

    return click.option(name, metavar="FILE", help=text, expose_value=False, callback=say)
