"""`redrive dlq queues`: the dead-letter queues there are, how deep they are, and what is stored of them."""

import click

from redrive.cli.console import say
from redrive.cli.dlq.output import print_json, print_table, warn_line
from redrive.cli.dlq.selection import connection_settings_of, run_to_end
from redrive.cli.dlq.shared_options import ConnectionOptions, with_connection, with_format
from redrive.cli.text_tables import TableCell, TableColumn
from redrive.records import Status
from redrive.wiring import KnownQueue, KnownQueues, known_queues, opened_store

_COLUMNS = (
    TableColumn(title="dead-letter queue", shrinks=True),
    TableColumn(title="of", shrinks=True),
    TableColumn(title="on the broker", is_number=True),
    TableColumn(title="consumers", is_number=True),
    *(TableColumn(title=str(status), is_number=True) for status in Status),
    TableColumn(title="collecting", shrinks=True),
)


@click.command("queues")
@click.option("--match", "patterns", multiple=True, metavar="GLOB", help="Which queues of the broker are meant.")
@with_format
@with_connection
def queues_command(connection: ConnectionOptions, patterns: tuple[str, ...], form: str) -> None:
    """List dead-letter queues: those of --file, those of the broker by their names, those with stored dead letters.

    Depths come from the management API, or over AMQP for queues that a file or the database names; without a broker the
    stored counts are shown alone.

    \b
    Examples:
      redrive dlq queues
      redrive dlq queues --file redrive.yaml --url amqp://guest:guest@localhost:5672/
      redrive dlq queues --match '*.dead' --format json
    """

    async def work() -> KnownQueues:
        found = connection_settings_of(connection)
        async with opened_store(found) as store:
            return await known_queues(found, store, patterns=patterns)

    known = run_to_end(work)
    if form == "json":
        print_json(_as_json(known))
        return
    if known.problem is not None:
        warn_line(f"depths are not known: {known.problem}")
    if not known.queues:
        say("No dead-letter queues were found; name them with --match or --file.")
        return
    print_table(_COLUMNS, [_row(one) for one in known.queues])


def _row(queue: KnownQueue) -> list[str | TableCell]:
    return [
        queue.dlq,
        queue.known_queue or "",
        "?" if queue.messages is None else f"{queue.messages:,}",
        "?" if queue.consumers is None else str(queue.consumers),
        *(f"{queue.stored[status]:,}" if queue.stored.get(status) else "" for status in Status),
        TableCell(f"stopped: {queue.stopped}", "red") if queue.stopped is not None else "",
    ]


def _as_json(known: KnownQueues) -> dict[str, object]:
    return {
        "broker": known.address,
        "problem": known.problem,
        "queues": [
            {
                "dlq": one.dlq,
                "vhost": one.vhost,
                "queue": one.known_queue,
                "messages": one.messages,
                "consumers": one.consumers,
                "stored": {str(status): one.stored.get(status, 0) for status in Status},
                "stopped": one.stopped,
            }
            for one in known.queues
        ],
    }
