"""Output of the command line: results to stdout, everything else to stderr, colours only on a terminal."""

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO

import click

from redrive.core import Finding, InvalidInput, RedriveError

EXIT_FOUND = 1
"""Findings, changes, or some messages not moved."""
EXIT_COULD_NOT = 2
"""Bad input, usage, or a broker that can't be reached."""

_FINDINGS_SHOWN = 50
_KEEPS_RESULT = "redrive.keeps_result"
_RESULT_LOST = "redrive.result_lost"


class SuggestingGroup(click.Group):
    """A group of commands that suggests the nearest one when a name is misspelt."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names. Raises a usage error if there is none."""
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            from redrive.core import did_you_mean

            hint = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"there is no command {args[0]}; {hint}", ctx=ctx)
        return super().resolve_command(ctx, args)


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour what goes to a stream: a terminal, unless NO_COLOR is set; FORCE_COLOR wins."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def warn(findings: Iterable[Finding]) -> None:
    """Prints warnings, one a line."""
    for finding in findings:
        click.secho(f"warning: {_printable(finding.text)}", fg="yellow", err=True, color=wants_colour(sys.stderr))


def say(text: str) -> None:
    """Prints what is not the result, to stderr."""
    click.echo(text, err=True)


def announce_start(text: str, *, log_format: str | None) -> None:
    """Prints that the work has begun, unless the log is JSON: nothing else may stand between its lines."""
    if log_format == "text" or (log_format is None and sys.stderr.isatty()):
        say(text)


def fail(error: RedriveError) -> NoReturn:
    """Prints what is wrong, one sentence each, and ends with exit code 2."""
    texts = [one.text for one in error.findings] if isinstance(error, InvalidInput) else [str(error)]
    for text in texts[:_FINDINGS_SHOWN]:
        click.secho(f"error: {_printable(text)}", fg="red", err=True, color=wants_colour(sys.stderr))
    if len(texts) > _FINDINGS_SHOWN:
        click.echo(f"… and {len(texts) - _FINDINGS_SHOWN} more", err=True)
    raise SystemExit(EXIT_COULD_NOT)


def fail_usage(error: click.ClickException) -> NoReturn:
    """`fail` for usage errors that click found."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        error.show()
        raise SystemExit(EXIT_COULD_NOT)
    text = error.format_message().strip().rstrip(".")
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    where = "" if context is None else f"; see: {context.command_path} --help"
    text = f"{text.removesuffix('?')}?{where.removeprefix(';')}" if text.endswith("?") else f"{text}{where}"
    click.secho(f"error: {_printable(' '.join(text.split()))}", fg="red", err=True, color=wants_colour(sys.stderr))
    raise SystemExit(EXIT_COULD_NOT)


def write(text: str, *, colour: bool | None = None) -> None:
    """Prints a line of the result. If the reader has closed the pipe (`| head`), the command still ends as usual.

    Raises OSError for a full disk, unless the command has called `keep_result`.
    """
    try:
        click.echo(text, color=colour)
    except BrokenPipeError:
        drop_closed_stdout()
    except OSError as error:
        context = click.get_current_context(silent=True)
        if context is None or not context.meta.get(_KEEPS_RESULT):
            raise
        context.meta[_RESULT_LOST] = True
        say(f"error: can't write the output: {error.strerror or error}; what was to be written:")
        say(text)


def keep_result() -> None:
    """For commands that change something: they continue if their result can't be written. It then goes to stderr, and
    the exit code is 1 (not all went well), not 2 (nothing was done)."""
    click.get_current_context().meta[_KEEPS_RESULT] = True


def is_result_lost(context: click.Context) -> bool:
    """Whether a part of the result could not be written."""
    return bool(context.meta.get(_RESULT_LOST))


def ask(question: str) -> bool:
    """Asks a person; Ctrl-C and the end of input mean no."""
    try:
        # A running event loop would only cancel its task, which waits for the answer: only a second Ctrl-C would end
        # it.
        with interrupted_by(signal.SIGINT):
            return click.confirm(_printable(question), err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def drop_closed_stdout() -> None:
    """The reader has closed the pipe (`| head`): further output to stdout is dropped, the work continues."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


@contextmanager
def interrupted_by(number: signal.Signals) -> Iterator[None]:
    """While the block runs, this signal raises `KeyboardInterrupt` at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _printable(text: str) -> str:
    """Escapes control characters: a file or message must not control the reader's terminal."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
