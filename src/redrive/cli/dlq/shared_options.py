"""Options that subcommands of `redrive dlq` share: where the dead letters are, which of them, who asks, which format.

Each decorator adds options to a command and gives it one value made of them: `connection`, `wanted`, `who`.
"""

import getpass
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from redrive.cli.secret_files import with_secret_files
from redrive.core import InvalidDuration, parse_duration_ms
from redrive.records import Status
from redrive.stores import acting_as
from redrive.wiring import user_name

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where the broker and the database are, as typed; what is None may be in the environment or the file."""

    url: str | None = None
    management_url: str | None = None
    database: str | None = None
    file: str | None = None

    def merged_with(self, other: object) -> "ConnectionOptions":
        """These options; where one is not given, that of the command above."""
        if not isinstance(other, ConnectionOptions):
            return self
        return ConnectionOptions(
            url=other.url if self.url is None else self.url,
            management_url=other.management_url if self.management_url is None else self.management_url,
            database=other.database if self.database is None else self.database,
            file=other.file if self.file is None else self.file,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """Which dead letters, as typed."""

    ids: tuple[str, ...] = ()
    queue: str | None = None
    group: str | None = None
    status: str | None = None
    filter_text: str = ""
    takes_all: bool = False
    limit: int | None = None

    @property
    def has_selection(self) -> bool:
        """Whether something narrows it down."""
        return bool(self.ids or self.queue or self.group or self.status or self.filter_text.strip())


def with_connection(command: _Command) -> Callable[..., Any]:
    """Adds --url, --management-url, --database, --file; gives `connection`."""

    @wraps(command)
    def run(
        *arguments: Any,
        url: str | None,
        management_url: str | None,
        database: str | None,
        file: str | None,
        **rest: Any,
    ) -> Any:
        connection = ConnectionOptions(url=url, management_url=management_url, database=database, file=file)
        context = click.get_current_context()
        # `groups --database X show` means the same as `groups show --database X`.
        connection = context.obj = connection.merged_with(context.obj)
        return command(*arguments, connection=connection, **rest)

    return _decorated(
        with_secret_files(run),
        click.option("--url", help="The broker: amqp(s)://user:password@host:port/vhost."),
        click.option("--management-url", metavar="URL", help="Its management API; guessed from --url."),
        click.option("--database", metavar="DB", help="sqlite:///redrive.db, sqlite:////var/lib/… or postgresql://…"),
        click.option("--file", metavar="FILE", help="A redrive.yaml whose broker: and database: are used."),
    )


def with_selection(command: _Command) -> Callable[..., Any]:
    """Adds ID …, --queue, --group, --status, --filter, --all, --limit; gives `wanted`."""

    @wraps(command)
    def run(
        *arguments: Any,
        ids: tuple[str, ...],
        queue: str | None,
        group: str | None,
        status: str | None,
        filter_text: str,
        takes_all: bool,
        limit: int | None,
        **rest: Any,
    ) -> Any:
        wanted = SelectionOptions(
            ids=ids,
            queue=queue,
            group=group,
            status=status,
            filter_text=filter_text,
            takes_all=takes_all,
            limit=limit,
        )
        return command(*arguments, wanted=wanted, **rest)

    return _decorated(
        run,
        click.argument("ids", nargs=-1, metavar="[ID]..."),
        click.option("--queue", metavar="Q", help="The queue they failed in, or the dead-letter queue; * is anything."),
        click.option("--group", metavar="ID", help="The group they belong to."),
        click.option("--status", type=click.Choice([str(one) for one in Status], case_sensitive=False)),
        click.option("--filter", "filter_text", default="", metavar="TEXT", help="See `redrive dlq list --help`."),
        click.option("--all", "takes_all", is_flag=True, help="All of them."),
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of dead letters."),
    )


def with_who(command: _Command) -> Callable[..., Any]:
    """Adds --as; gives `who`."""

    @wraps(command)
    def run(*arguments: Any, said_who: str | None, **rest: Any) -> Any:
        login = _login()
        who = user_name(flag=said_who, environment=os.environ, login=login)
        # Anybody who can use the database may give any name; the audit also has the login of the process.
        with acting_as(f"cli:{login or 'unknown'}"):
            return command(*arguments, who=who, **rest)

    option = click.option(
        "--as", "said_who", metavar="NAME", help="Who does it, for the audit; else REDRIVE_USER, else your login."
    )
    return _decorated(run, option)


def with_format(command: _Command) -> Callable[..., Any]:
    """Adds --format; gives `form`."""
    option = click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
    return _decorated(command, option)


class DurationOption(click.ParamType[int]):
    """`500ms`, `30s`, `5m` as milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds; a usage error where it is none."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ms(value)
        except InvalidDuration as error:
            self.fail(str(error), param, ctx)


class RateOption(click.ParamType[float]):
    """`50`, `50/s`, `300/m` as messages a second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A number above zero; a usage error where it is none."""
        if isinstance(value, float):
            return value
        number, slash, unit = str(value).strip().partition("/")
        per_s = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(unit.strip() if slash else "s")
        try:
            rate = float(number) / (per_s or 0.0)
        except (ValueError, ZeroDivisionError):
            rate = 0.0
        if not 0 < rate <= 1_000_000:
            self.fail(f"{value!r} is no rate; write it like 50/s or 300/m", param, ctx)
        return rate


def _decorated(command: Callable[..., Any], *options: Callable[[Any], Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def _login() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # in a container the user may have a number and no name
        return None
