"""`redrive dlq operations`: what was asked to be sent, how far it is; pause, resume, cancel."""

import click

from redrive.cli.console import SuggestingGroup, keep_result, say
from redrive.cli.dlq.foreground_run import items_not_sent, report, run_in_foreground
from redrive.cli.dlq.output import OPERATION_COLOURS, print_json, print_line, print_table
from redrive.cli.dlq.selection import UnknownId, connection_settings_of, on_store, one_of, run_to_end
from redrive.cli.dlq.shared_options import ConnectionOptions, with_connection, with_format, with_who
from redrive.cli.text_tables import TableCell, TableColumn, duration_text, moment_text
from redrive.records import ItemState, Operation, OperationItem, OperationState, item_json, operation_json
from redrive.stores import Store
from redrive.wiring import now_ms, opened_broker, opened_store

_RECENT = 200
_COLUMNS = (
    TableColumn(title="operation"),
    TableColumn(title="kind"),
    TableColumn(title="state"),
    TableColumn(title="age", is_number=True),
    TableColumn(title="total", is_number=True),
    TableColumn(title="sent", is_number=True),
    TableColumn(title="refused", is_number=True),
    TableColumn(title="in doubt", is_number=True),
    TableColumn(title="skipped", is_number=True),
    TableColumn(title="who", shrinks=True),
    TableColumn(title="what", shrinks=True),
)
_ITEM_COLUMNS = (
    TableColumn(title="id"),
    TableColumn(title="state"),
    TableColumn(title="at"),
    TableColumn(title="queue", shrinks=True),
    TableColumn(title="reason", shrinks=True),
)


@click.group("operations", cls=SuggestingGroup, invoke_without_command=True)
@click.option("--state", type=click.Choice([str(one) for one in OperationState], case_sensitive=False))
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), metavar="N")
@click.option("--cursor", metavar="TEXT", help="Go on where a page ended (`next` of its JSON).")
@with_format
@with_connection
@click.pass_context
def operations_command(
    ctx: click.Context, connection: ConnectionOptions, state: str | None, limit: int, cursor: str | None, form: str
) -> None:
    """List what was asked to be sent back, the latest first; see one; pause, resume or cancel it.

    \b
    Examples:
      redrive dlq operations
      redrive dlq operations show ID
      redrive dlq operations resume ID
    """
    if ctx.invoked_subcommand is not None:
        return

    async def work(store: Store) -> tuple[list[Operation], str | None]:
        wanted = None if state is None else OperationState(state.lower())
        found, after = await store.operations.page(limit, cursor=cursor, state=wanted)
        return list(found), after

    operations, after = on_store(connection, work)
    if form == "json":
        print_json({"operations": [operation_json(one) for one in operations], "next": after})
        return
    if not operations:
        say("No operations.")
        return
    print_table(_COLUMNS, [_row(one) for one in operations])
    if after is not None:
        say("There are more: --limit N.")


def _row(operation: Operation) -> list[str | TableCell]:
    return [
        operation.id,
        str(operation.kind),
        TableCell(str(operation.state), OPERATION_COLOURS.get(operation.state)),
        duration_text(now_ms() - operation.created_at_ms),
        f"{operation.total:,}",
        f"{operation.sent:,}",
        f"{operation.refused:,}",
        f"{operation.in_doubt:,}",
        f"{operation.skipped:,}",
        operation.who,
        operation.why or operation.selection_text,
    ]


@operations_command.command("show")
@click.argument("operation", metavar="ID")
@click.option("--items", "item_count", default=20, show_default=True, type=click.IntRange(0, 100_000), metavar="N")
@click.option("--item-state", type=click.Choice([str(one) for one in ItemState], case_sensitive=False))
@with_format
@with_connection
def show_command(
    connection: ConnectionOptions, operation: str, item_count: int, item_state: str | None, form: str
) -> None:
    """Show an operation and what became of its dead letters.

    \b
    Example:
      redrive dlq operations show ID --item-state refused
    """

    async def work(store: Store) -> tuple[Operation, list[OperationItem]]:
        found = await _found(store, operation)
        wanted = None if item_state is None else ItemState(item_state.lower())
        items: list[OperationItem] = []
        if item_count:
            page, _ = await store.operations.items(found.id, item_count, state=wanted)
            items = list(page)
        return found, items

    found, items = on_store(connection, work)
    if form == "json":
        print_json({"operation": operation_json(found), "items": [item_json(one) for one in items]})
        return
    _print(found)
    if items:
        print_line("")
        rows = [(one.letter_id, str(one.state), moment_text(one.at_ms), one.queue, one.reason) for one in items]
        print_table(_ITEM_COLUMNS, rows)


def _print(operation: Operation) -> None:
    target = operation.target
    where = "the failed queue"
    if target.exchange is not None:
        key = "each message's first key" if target.routing_key is None else f"key {target.routing_key}"
        where = f"queue {target.routing_key}" if target.exchange == "" else f"exchange {target.exchange}, {key}"
    print_line(f"{operation.kind} {operation.id}", bold=True)
    print_line(f"state     {operation.state}", fg=OPERATION_COLOURS.get(operation.state))
    if operation.note:
        print_line(f"note      {operation.note}")
    print_line(f"selected  {operation.selection_text}")
    print_line(f"target    {'the dead-letter queues' if operation.kind == 'return' else where}")
    print_line(
        f"letters   {operation.total:,}: {operation.sent:,} sent, {operation.refused:,} refused, "
        f"{operation.in_doubt:,} in doubt, {operation.skipped:,} skipped, {operation.left:,} left"
    )
    if operation.rate_per_s is not None:
        print_line(f"rate      {operation.rate_per_s:g}/s")
    print_line(f"who       {operation.who}" + (f": {operation.why}" if operation.why else ""))
    print_line(f"created   {moment_text(operation.created_at_ms)}")
    print_line(f"started   {moment_text(operation.started_at_ms)}")
    print_line(f"ended     {moment_text(operation.ended_at_ms)}")


@operations_command.command("pause")
@click.argument("operation", metavar="ID")
@click.option("--why", default="", metavar="TEXT")
@with_who
@with_connection
def pause_command(connection: ConnectionOptions, operation: str, why: str, who: str) -> None:
    """Pause an operation, wherever it runs: what is in flight is ended, the rest stays queued.

    \b
    Example:
      redrive dlq operations pause ID --why 'the consumers are slow'
    """

    keep_result()

    async def work(store: Store) -> Operation:
        found = await _found(store, operation)
        return await store.operations.pause(found.id, why or f"paused by {who}", now_ms=store.clock_ms(), who=who)

    _say_state(on_store(connection, work))


@operations_command.command("resume")
@click.argument("operation", metavar="ID")
@click.option("--witness", is_flag=True, help="It was begun with --witness.")
@with_format
@with_who
@with_connection
def resume_command(connection: ConnectionOptions, operation: str, witness: bool, form: str, who: str) -> None:
    """Go on with an operation that was paused or whose runner is gone, in the foreground, to its end.

    \b
    Example:
      redrive dlq operations resume ID
    """

    keep_result()

    async def work() -> tuple[Operation, list[OperationItem]]:
        settings = connection_settings_of(connection)
        async with opened_store(settings, creates=False) as store:
            found = await _found(store, operation)
            if found.state is OperationState.PAUSED:
                found = await store.operations.resume(found.id, now_ms=store.clock_ms(), who=who)
            if found.state in (OperationState.WAITING, OperationState.RUNNING):
                async with opened_broker(settings, store, has_witness=witness) as broker:
                    found = await run_in_foreground(store, broker, found)
            return found, await items_not_sent(store, found)

    report(*run_to_end(work), form=form)


@operations_command.command("cancel")
@click.argument("operation", metavar="ID")
@with_who
@with_connection
def cancel_command(connection: ConnectionOptions, operation: str, who: str) -> None:
    """Cancel an operation: what is not sent yet stays a dead letter.

    \b
    Example:
      redrive dlq operations cancel ID
    """

    keep_result()

    async def work(store: Store) -> Operation:
        found = await _found(store, operation)
        return await store.operations.cancel(found.id, who=who, now_ms=store.clock_ms())

    _say_state(on_store(connection, work))


def _say_state(operation: Operation) -> None:
    print_line(f"{operation.id} is {operation.state}: {operation.sent:,} of {operation.total:,} sent.")


async def _found(store: Store, text: str) -> Operation:
    """The operation with this id, or the only recent one that begins or ends so. Raises `UnknownId`."""
    exact = await store.operations.get(text)
    if exact is not None:
        return exact
    recent, _ = await store.operations.page(_RECENT)
    near = {one.id: one for one in recent if one.id.startswith(text) or one.id.endswith(text)}
    found = near.get(
        one_of(text, list(near), noun="operation", listing="redrive dlq operations", address=store.address)
    )
    if found is None:
        raise UnknownId(f"there is no operation {text} in {store.address}; look for it with: redrive dlq operations")
    return found
