"""The command line. Each command is a module, imported when it is called, so that starting stays fast.

Errors end as one sentence and exit code 2, never as a traceback.
"""

import signal
from importlib import import_module

import click

from redrive.cli.console import (
    EXIT_COULD_NOT,
    EXIT_FOUND,
    SuggestingGroup,
    drop_closed_stdout,
    fail,
    fail_usage,
    interrupted_by,
    is_result_lost,
    say,
)
from redrive.core import RedriveError

__all__ = ["cli", "main"]

_COMMANDS = {
    "apply": "Declare FILE's topology on a broker.",
    "audit": "Read the audit, and prove that nobody changed it.",
    "broker": "Run an embedded broker that behaves like RabbitMQ.",
    "collect": "Take dead letters out of their queues into a database.",
    "compile": "Turn FILE into a RabbitMQ topology.",
    "demo": "Watch orders fail, wait, come back and be parked.",
    "dlq": "Find, understand and send back dead letters.",
    "init": "Write a commented redrive.yaml to start from.",
    "push": "Deliver a queue's messages to a service by HTTP.",
    "run": "Run the handlers of an app.",
    "schema": "Print the JSON Schema of redrive.yaml, for editors.",
    "serve": "Serve the admin API; collect, redrive and auto-retry beside it.",
    "simulate": "Show a message's life on a queue, in virtual time.",
    "token": "Make, list and revoke tokens of the admin API.",
}


_UNTIL_ENDED = ("broker", "collect", "demo", "push", "run", "serve")
"""These run until they are ended; if that happens while they start, they exit with 0."""
_ASKED = "redrive.command"


class _Commands(SuggestingGroup):
    """Command `x` is `x_command` in the module `redrive.cli.x`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        ctx.meta[_ASKED] = cmd_name
        if cmd_name in _UNTIL_ENDED:
            # A supervisor's SIGTERM may come before the command has its own handlers: importing takes a while.
            ctx.with_resource(interrupted_by(signal.SIGTERM))
        command = getattr(import_module(f"redrive.cli.{cmd_name}"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            result: object = super().invoke(ctx)
            if is_result_lost(ctx):
                ctx.exit(EXIT_FOUND)
            return result
        except BrokenPipeError:
            # `redrive simulate … | head`: the reader has closed the pipe, and click would exit with 1 (findings).
            drop_closed_stdout()
            return None
        except KeyboardInterrupt:
            # What must end in order has signal handlers of its own, so nothing of that kind had begun.
            raise SystemExit(0 if ctx.meta.get(_ASKED) in _UNTIL_ENDED else EXIT_FOUND) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="redrive", message="redrive %(version)s")
def cli() -> None:
    """Retries and dead letters for RabbitMQ, done once and done right."""


def main() -> None:
    """The `redrive` program."""
    try:
        code = cli(standalone_mode=False)
    except RedriveError as error:
        fail(error)
    except click.ClickException as error:
        fail_usage(error)
    except click.Abort:
        raise SystemExit(EXIT_FOUND) from None
    except BrokenPipeError:  # `redrive --help | head`
        drop_closed_stdout()
        raise SystemExit(0) from None
    except OSError as error:
        # `redrive compile … > /dev/full`; click itself handles a closed pipe.
        say(f"error: can't write the output: {error.strerror or error}")
        raise SystemExit(EXIT_COULD_NOT) from None
    # Commands return nothing; click itself (--help, --version) returns an exit code.
    raise SystemExit(code if isinstance(code, int) else 0)
