"""`redrive dlq peek`: the first messages of a queue on the broker, if looking destroys nothing."""

from typing import Any

import click

from redrive.cli.console import say
from redrive.cli.dlq.output import print_json, print_line, print_table, warn_line
from redrive.cli.dlq.selection import connection_settings_of, run_to_end
from redrive.cli.dlq.shared_options import ConnectionOptions, with_connection, with_format
from redrive.cli.dlq.show import body_lines, header_rows
from redrive.cli.text_tables import TableColumn, counted, size_text
from redrive.deadletters import PeekedMessage, PeekResult
from redrive.records import MessageContent
from redrive.wiring import describe_content, peek_queue


@click.command("peek")
@click.argument("queue")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), metavar="N")
@with_format
@with_connection
def peek_command(connection: ConnectionOptions, queue: str, limit: int, form: str) -> None:
    """Look at the first messages of QUEUE on the broker, and requeue them in order.

    Refused where looking would destroy or reorder, with the reason; `redrive collect` is the way then. Needs the
    management API (--management-url), which knows the queue's type and limits.

    \b
    Examples:
      redrive dlq peek q.thumbnail.dlq --limit 20
      redrive dlq peek orders.parked --format json
    """

    async def work() -> PeekResult:
        return await peek_queue(connection_settings_of(connection), queue, limit=limit)

    peeked = run_to_end(work)
    if form == "json":
        messages = [_as_json(one) for one in peeked.messages]
        print_json({"queue": queue, "messages": messages, "left": peeked.left, "note": peeked.note or None})
        return
    for one in peeked.messages:
        _print(one)
    if peeked.note:
        warn_line(peeked.note)
    say(f"{counted(len(peeked.messages), 'message')} shown, {peeked.left:,} behind.")


def _as_json(message: PeekedMessage) -> dict[str, Any]:
    described = describe_content(MessageContent(properties=message.properties, body=message.body))
    return {
        "place": message.place,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "properties": described.properties,
        "headers": described.headers,
        "body": {"encoding": described.body_encoding, "content": described.body},
    }


def _print(message: PeekedMessage) -> None:
    described = describe_content(MessageContent(properties=message.properties, body=message.body))
    print_line(f"{message.place}. exchange {message.exchange or '(default)'}, key {message.routing_key}", bold=True)
    for name, value in described.properties.items():
        print_line(f"  {name}: {value}")
    if described.headers:
        columns = [TableColumn(title="header"), TableColumn(title="type"), TableColumn(title="value", shrinks=True)]
        print_table(columns, header_rows(described.headers))
    print_line(f"  body, {size_text(len(message.body))}:")
    for line in body_lines(message.body):
        click.echo(line)
    click.echo()
