"""`redrive token`: who may use the admin API. It works on the database, so it also helps people who are locked out."""

import json

import click

from redrive.cli.console import EXIT_COULD_NOT, SuggestingGroup, drop_closed_stdout, keep_result, say
from redrive.cli.dlq.output import fail_line, print_json, print_line, print_table
from redrive.cli.dlq.selection import on_store
from redrive.cli.dlq.shared_options import ConnectionOptions, DurationOption, with_connection, with_format, with_who
from redrive.cli.text_tables import TableCell, TableColumn, moment_text
from redrive.records import Role, Token, check_token, clean_name, mint_token, token_json
from redrive.stores import Store, UnknownToken
from redrive.wiring import new_id, new_secret

_COLUMNS = (
    TableColumn(title="id"),
    TableColumn(title="name", shrinks=True),
    TableColumn(title="role"),
    TableColumn(title="queues", shrinks=True),
    TableColumn(title="payloads"),
    TableColumn(title="state"),
    TableColumn(title="expires"),
    TableColumn(title="made by", shrinks=True),
)
_COLOURS = {"valid": "green", "expired": "yellow", "revoked": "red"}
_NEVER = "never"


class _Expiry(DurationOption):
    """A duration, or `never` as 0."""

    name = "expiry"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds."""
        return 0 if value == _NEVER else super().convert(value, param, ctx)


@click.group("token", cls=SuggestingGroup)
def token_command() -> None:
    """Make, list and revoke tokens of the admin API (`redrive serve`).

    A token has a role (viewer, operator, admin), may be limited to queues, and expires. Only a hash of it is kept.

    \b
    Examples:
      redrive token create ada --role operator --queue 'orders*'
      redrive token list
      redrive token revoke ada
    """


@token_command.command("create")
@click.argument("name")
@click.option("--role", required=True, type=click.Choice([str(one) for one in Role]))
@click.option("--queue", "queues", multiple=True, metavar="GLOB", help="Only these queues; * is anything. Repeatable.")
@click.option("--payloads", is_flag=True, help="Let a viewer see bodies, headers and errors' texts.")
@click.option("--expires", "expires_ms", type=_Expiry(), default="90d", show_default=True, help="After so long; never.")
@click.option("--why", default="", metavar="TEXT", help="For the audit.")
@with_format
@with_who
@with_connection
def create_command(
    connection: ConnectionOptions,
    name: str,
    role: str,
    queues: tuple[str, ...],
    payloads: bool,
    expires_ms: int,
    why: str,
    form: str,
    who: str,
) -> None:
    """Make a token for NAME, and print it: this once, and never again.

    \b
    Examples:
      redrive token create ada --role operator --queue 'orders*' --expires 30d
      redrive token create dashboard --role viewer --expires never
    """

    async def work(store: Store) -> tuple[Token, str, int]:
        moment_ms = store.clock_ms()
        token = check_token(
            Token(
                id=new_id(),
                name=clean_name(name),
                role=Role(role),
                queues=queues,
                sees_payloads=payloads,
                created_at_ms=moment_ms,
                created_by=who,
                expires_at_ms=moment_ms + expires_ms if expires_ms else None,
            ),
            now_ms=moment_ms,
        )
        text, secret_hash = mint_token(token.id, new_secret())
        await store.tokens.create(token, secret_hash=secret_hash, now_ms=moment_ms, why=why)
        return token, text, moment_ms

    token, text, moment_ms = on_store(connection, work, creates=True)
    try:
        # Not `write`: here a reader that has gone away has missed what nobody can show again.
        is_json = form == "json"
        click.echo(json.dumps({**token_json(token, now_ms=moment_ms), "token": text}, indent=2) if is_json else text)
    except OSError as error:

        async def take_back(store: Store) -> None:
            await store.tokens.revoke(token.id, who=who, now_ms=store.clock_ms(), why="it could not be shown")

        on_store(connection, take_back)
        drop_closed_stdout()
        fail_line(f"can't write the token: {error.strerror or error}; it is revoked, make another under another name")
        raise SystemExit(EXIT_COULD_NOT) from None
    if is_json:
        return
    until = "does not expire" if token.expires_at_ms is None else f"expires {moment_text(token.expires_at_ms)}"
    say(f"This is the only time it is shown. It is for {token.name}, {token.role}, and {until}.")


@token_command.command("list")
@click.option("--all", "shows_all", is_flag=True, help="Also those that are expired or revoked.")
@with_format
@with_connection
def list_command(connection: ConnectionOptions, shows_all: bool, form: str) -> None:
    """List the tokens, without their secrets.

    \b
    Example:
      redrive token list --all
    """

    async def work(store: Store) -> tuple[tuple[Token, ...], int]:
        return await store.tokens.all(), store.clock_ms()

    tokens, moment_ms = on_store(connection, work)
    found = [one for one in tokens if shows_all or one.is_valid(moment_ms)]
    if form == "json":
        print_json({"tokens": [token_json(one, now_ms=moment_ms) for one in found]})
        return
    if not found:
        say("No tokens. Make one with: redrive token create NAME --role admin")
        return
    print_table(_COLUMNS, [_row(one, moment_ms) for one in found])


@token_command.command("revoke")
@click.argument("token", metavar="ID")
@click.option("--why", default="", metavar="TEXT", help="For the audit.")
@with_who
@with_connection
def revoke_command(connection: ConnectionOptions, token: str, why: str, who: str) -> None:
    """Revoke a token by its ID or NAME: from the next request on it counts nowhere.

    \b
    Example:
      redrive token revoke ada --why 'left the team'
    """

    keep_result()

    async def work(store: Store) -> Token:
        known = await store.tokens.all()
        by_name = [one for one in known if one.name == token and one.revoked_at_ms is None]
        by_id = [one for one in known if one.id == token]
        for one in (*by_id, *by_name):
            return await store.tokens.revoke(one.id, who=who, now_ms=store.clock_ms(), why=why)
        raise UnknownToken(token)

    revoked = on_store(connection, work)
    print_line(f"The token {revoked.id} of {revoked.name} is revoked.")


def _row(token: Token, moment_ms: int) -> tuple[str | TableCell, ...]:
    state = token.state(moment_ms)
    return (
        token.id,
        token.name,
        str(token.role),
        ", ".join(token.queues) or "all",
        "yes" if token.shows_payloads else "no",
        TableCell(state, _COLOURS[state]),
        _NEVER if token.expires_at_ms is None else moment_text(token.expires_at_ms),
        token.created_by,
    )
