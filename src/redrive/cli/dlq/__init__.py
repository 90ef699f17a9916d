"""`redrive dlq`: dead letters from the command line. Each subcommand is imported when it is called."""

from importlib import import_module

import click

from redrive.cli.console import SuggestingGroup

__all__ = ["dlq_command"]

_SUBCOMMANDS = {
    "queues": ("queues", "Dead-letter queues: how deep they are, what is stored of them."),
    "list": ("letter_list", "Find dead letters."),
    "show": ("show", "Everything about a dead letter."),
    "stats": ("stats", "Counts by status, queue, topic, service, type and group; over time."),
    "groups": ("groups", "Groups of similar dead letters, their state and notes."),
    "peek": ("peek", "Look at a queue's first messages, if that destroys nothing."),
    "redrive": ("redrive", "Send dead letters back to where they failed, or elsewhere."),
    "retry": ("redrive", "Redrive single dead letters without asking."),
    "return": ("redrive", "Restore dead letters to their dead-letter queues."),
    "operations": ("operations", "Redrives and how far they are; pause, resume, cancel."),
    "resolve": ("resolve", "Mark dead letters as resolved."),
    "reopen": ("resolve", "Make dead letters pending again."),
    "delete": ("resolve", "Delete dead letters."),
    "edit": ("edit", "Change a dead letter's body or headers before it is sent back."),
    "auto-retry": ("auto_retry", "Rules that redrive dead letters automatically."),
    "export": ("transfer", "Dead letters as JSON lines, nothing lost."),
    "import": ("transfer", "Import what export wrote."),
    "audit": ("audit", "Who did what, when and why."),
}


class _Subcommands(SuggestingGroup):
    """Subcommand `a-b` is `a_b_command` in its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _SUBCOMMANDS:
            return None
        module = import_module(f"redrive.cli.dlq.{_SUBCOMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in _SUBCOMMANDS.items()])


@click.command("dlq", cls=_Subcommands)
def dlq_command() -> None:
    """Find, understand and send back dead letters.

    `redrive collect` fills the database that these commands read (--database, else REDRIVE_DATABASE, else
    sqlite:///redrive.db). Only peek, queues and commands that send messages need the broker (--url, else REDRIVE_URL).
    An ID may be shortened to a beginning or an ending that no other has.

    \b
    Exit codes: 0 fine or nothing to do; 1 some messages were not moved; 2 could not.

    \b
    Examples:
      redrive dlq list --queue orders --filter 'error:Timeout dead:>2h'
      redrive dlq show 1hv7
      redrive dlq redrive --queue orders --limit 10
    """
