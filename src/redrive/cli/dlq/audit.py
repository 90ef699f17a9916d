"""`redrive dlq audit`: who did what to which messages, when, why."""

import click

from redrive.cli.console import say
from redrive.cli.dlq.output import print_json, print_table
from redrive.cli.dlq.selection import on_store
from redrive.cli.dlq.shared_options import ConnectionOptions, with_connection, with_format
from redrive.cli.text_tables import TableColumn, moment_text, printable
from redrive.core import did_you_mean
from redrive.records import AuditEntry, audit_json
from redrive.stores import Store

_COLUMNS = (
    TableColumn(title="at"),
    TableColumn(title="who", shrinks=True),
    TableColumn(title="token", shrinks=True),
    TableColumn(title="action"),
    TableColumn(title="count", is_number=True),
    TableColumn(title="subject", shrinks=True),
    TableColumn(title="why", shrinks=True),
)


@click.command("audit")
@click.option("--by", "who", metavar="NAME", help="What one person did.")
@click.option("--action", metavar="NAME", help="One kind only: redrive.created, letters.deleted …")
@click.option("--token", "token_id", metavar="ID", help="What was done with one token, whatever its name.")
@click.option("--subject", metavar="TEXT", help="What was done to one id, filter or queue.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), metavar="N")
@click.option("--cursor", metavar="TEXT", help="Go on where a page ended (`next` of its JSON).")
@with_format
@with_connection
def audit_command(
    connection: ConnectionOptions,
    who: str | None,
    action: str | None,
    token_id: str | None,
    subject: str | None,
    limit: int,
    cursor: str | None,
    form: str,
) -> None:
    """List who did what, the latest first. Entries are never changed.

    \b
    Examples:
      redrive dlq audit
      redrive dlq audit --by ada --action letters.deleted --format json
    """

    async def work(store: Store) -> tuple[list[AuditEntry], str | None, tuple[str, ...]]:
        entries, after = await store.audit.page(
            limit, cursor=cursor, who=who, action=action, subject=subject, token_id=token_id
        )
        # An action that nobody knows is most likely misspelt.
        known = await store.audit.actions() if action is not None and not entries else ()
        return list(entries), after, known

    entries, after, known = on_store(connection, work)
    if form == "json":
        print_json({"entries": [audit_json(one) for one in entries], "next": after})
        return
    if not entries:
        is_narrowed = any(one is not None for one in (who, action, token_id, subject, cursor))
        say("No entries match." if is_narrowed else "Nothing was done yet.")
        if action is not None and known and action not in known:
            say(f"There is no entry with the action {printable(action)}; {did_you_mean(action, known)}")
        return
    rows = [
        (moment_text(one.at_ms), one.who, one.token_id or "-", one.action, f"{one.count:,}", one.subject, one.why)
        for one in entries
    ]
    print_table(_COLUMNS, rows)
    if after is not None:
        say("There are more: --limit N.")
