"""`redrive dlq list`: find dead letters."""

from typing import Any

import click

from redrive.cli.console import say
from redrive.cli.dlq.output import STATUS_COLOURS, print_json, print_table
from redrive.cli.dlq.selection import filter_of, letter_id, on_store
from redrive.cli.dlq.shared_options import (
    ConnectionOptions,
    SelectionOptions,
    with_connection,
    with_format,
    with_selection,
)
from redrive.cli.text_tables import TableCell, TableColumn, counted, duration_text
from redrive.records import DeadLetter, Filter, NameTerm, letter_json
from redrive.stores import Store

_PAGE = 500
_LIMIT = 50
_COLUMNS = (
    TableColumn(title="id"),
    TableColumn(title="status"),
    TableColumn(title="dead", is_number=True),
    TableColumn(title="queue", shrinks=True),
    TableColumn(title="type", shrinks=True),
    TableColumn(title="error", shrinks=True),
    TableColumn(title="tries", is_number=True),
    TableColumn(title="redriven", is_number=True),
)


@click.command("list")
@with_selection
@click.option("--oldest-first", is_flag=True, help="The longest dead first.")
@click.option("--cursor", metavar="TEXT", help="Go on where a page ended (`next` of its JSON).")
@with_format
@with_connection
def list_command(
    connection: ConnectionOptions, wanted: SelectionOptions, oldest_first: bool, cursor: str | None, form: str
) -> None:
    """Find dead letters in the database: the newest 50, --limit N of them, or --all.

    \b
    A filter is terms that must all hold; - in front turns one round:
      queue:orders status:pending,failed error:Timeout dead:>2h attempts:>3
      topic:orders.* service:billing type:OrderPlaced group:ID id:ID
      body.customer.id:42 header.x-tenant:acme is:poison "exact words" word beginn*

    \b
    Examples:
      redrive dlq list
      redrive dlq list --status failed --queue orders
      redrive dlq list --filter 'error:Timeout dead:>2h' --format json
    """

    async def work(store: Store) -> tuple[list[DeadLetter], str | None, bool, int]:
        moment_ms = store.clock_ms()
        chosen = filter_of(wanted, moment_ms=moment_ms)
        if wanted.ids:
            ids = tuple([await letter_id(store, one) for one in wanted.ids])
            chosen = Filter((NameTerm(field="id", values=ids), *chosen.terms))
        limit = wanted.limit if wanted.limit is not None else None if wanted.takes_all else _LIMIT
        letters: list[DeadLetter] = []
        after, is_partial = cursor, False
        while limit is None or len(letters) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(letters))
            page = await store.letters.page(
                chosen, limit=size, cursor=after, newest_first=not oldest_first, now_ms=moment_ms
            )
            letters.extend(page.letters)
            after, is_partial = page.next_cursor, page.is_partial
            if after is None:
                break
        return letters, after, is_partial, moment_ms

    letters, after, is_partial, moment_ms = on_store(connection, work)
    if form == "json":
        print_json({"letters": [letter_json(one) for one in letters], "next": after, "partial": is_partial})
        return
    if letters:
        print_table(_COLUMNS, [_row(one, moment_ms) for one in letters])
    _say_rest(letters, after, is_partial, narrowed=wanted.has_selection)


def _row(letter: DeadLetter, moment_ms: int) -> list[str | TableCell]:
    marks = "".join(
        [
            " poison" if letter.is_poison else "",
            " edited" if letter.is_edited else "",
            " copy" if letter.copy_of else "",
        ]
    )
    return [
        letter.id,
        TableCell(f"{letter.status}{marks}", STATUS_COLOURS.get(letter.status)),
        duration_text(moment_ms - letter.dead_at_ms),
        letter.queue,
        letter.type or "-",
        error_line(letter),
        "-" if letter.attempts is None else str(letter.attempts),
        f"{letter.redrives}" if letter.returns == 0 else f"{letter.redrives}, back {letter.returns}",
    ]


def error_line(letter: DeadLetter) -> str:
    """What went wrong, in a line; without an error, why it died."""
    if letter.error_type is None and letter.error_message is None:
        return letter.reason
    message = (letter.error_message or "").split("\n", 1)[0]
    return ": ".join(part for part in (letter.error_type, message) if part)


def _say_rest(letters: list[Any], after: str | None, is_partial: bool, *, narrowed: bool) -> None:
    if not letters:
        say("No dead letters match." if narrowed else "No dead letters. `redrive collect` brings them in.")
    if after is not None:
        say(f"{counted(len(letters), 'dead letter')} shown, there are more: --limit N or --all.")
    if is_partial:
        say("The search was stopped before its end: narrow it down by queue, status or time.")
