"""`redrive dlq groups`: kinds of failure, and what people say about them."""

from collections.abc import Awaitable, Callable

import click

from redrive.cli.console import SuggestingGroup, keep_result, say
from redrive.cli.dlq.output import GROUP_COLOURS, print_json, print_line, print_table
from redrive.cli.dlq.selection import UnknownId, on_store
from redrive.cli.dlq.shared_options import ConnectionOptions, with_connection, with_format, with_who
from redrive.cli.text_tables import TableCell, TableColumn, duration_text, moment_text
from redrive.deadletters import DeadLetterService
from redrive.records import Group, GroupState, Status, group_json
from redrive.stores import Store
from redrive.wiring import dead_letter_service, now_ms

_COLUMNS = (
    TableColumn(title="group"),
    TableColumn(title="state"),
    TableColumn(title="count", is_number=True),
    TableColumn(title="pending", is_number=True),
    TableColumn(title="last", is_number=True),
    TableColumn(title="redriven", is_number=True),
    TableColumn(title="queue", shrinks=True),
    TableColumn(title="what", shrinks=True),
)


@click.group("groups", cls=SuggestingGroup, invoke_without_command=True)
@click.option("--state", type=click.Choice([str(one) for one in GroupState], case_sensitive=False))
@click.option("--queue", metavar="Q")
@click.option("--order", type=click.Choice(("last_seen", "count")), default="last_seen", show_default=True)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), metavar="N")
@with_format
@with_connection
@click.pass_context
def groups_command(
    ctx: click.Context,
    connection: ConnectionOptions,
    state: str | None,
    queue: str | None,
    order: str,
    limit: int,
    form: str,
) -> None:
    """List groups of similar dead letters. A resolved group that gets a new one is `regressed`.

    \b
    Examples:
      redrive dlq groups --order count
      redrive dlq groups acknowledge ID --why 'the supplier is down'
      redrive dlq redrive --group ID
    """
    if ctx.invoked_subcommand is not None:
        return

    async def work(store: Store) -> tuple[list[Group], str | None]:
        groups, after = await store.groups.page(
            limit=limit,
            state=None if state is None else GroupState(state.lower()),
            queue=queue,
            order="count" if order == "count" else "last_seen",
        )
        return list(groups), after

    groups, after = on_store(connection, work)
    if form == "json":
        print_json({"groups": [group_json(one) for one in groups], "next": after})
        return
    if not groups:
        say("No groups.")
        return
    moment_ms = now_ms()
    print_table(_COLUMNS, [_row(one, moment_ms) for one in groups])
    if after is not None:
        say("There are more: --limit N.")


def _row(group: Group, moment_ms: int) -> list[str | TableCell]:
    return [
        group.id,
        TableCell(str(group.state), GROUP_COLOURS.get(group.state)),
        f"{group.count:,}",
        f"{group.by_status.get(Status.PENDING, 0):,}",
        duration_text(moment_ms - group.last_seen_ms),
        f"{group.redriven}, back {group.returned}" if group.returned else str(group.redriven),
        group.queue,
        group.title,
    ]


@groups_command.command("show")
@click.argument("group_id", metavar="ID")
@with_format
@with_connection
def show_command(connection: ConnectionOptions, group_id: str, form: str) -> None:
    """Show a group with what was said about it, by whom and why, and its notes.

    \b
    Example:
      redrive dlq groups show ID
    """
    group = on_store(connection, lambda store: _found(store, group_id))
    if form == "json":
        print_json(group_json(group))
        return
    print_line(group.title, bold=True)
    print_line(f"group     {group.id}")
    print_line(f"state     {group.state}", fg=GROUP_COLOURS.get(group.state))
    change = group.state_change
    if change is not None:
        why = f": {change.why}" if change.why else ""
        print_line(f"said      {change.state}, {moment_text(change.at_ms)} {change.who}{why}")
    print_line(f"queue     {group.queue}")
    by_status = ", ".join(f"{count:,} {status}" for status, count in group.by_status.items() if count)
    print_line(f"letters   {group.count:,} ({by_status})" if by_status else f"letters   {group.count:,}")
    print_line(f"redriven  {group.redriven:,}, of which {group.returned:,} came back")
    print_line(f"seen      {moment_text(group.first_seen_ms)} to {moment_text(group.last_seen_ms)}")
    for note in group.notes:
        print_line(f"note      {moment_text(note.at_ms)} {note.who}: {note.text}")


_ChangeState = Callable[[DeadLetterService, str, str, str], Awaitable[Group]]
_CHANGES: dict[GroupState, _ChangeState] = {
    GroupState.ACKNOWLEDGED: lambda service, group, who, why: service.acknowledge_group(group, who=who, why=why),
    GroupState.RESOLVED: lambda service, group, who, why: service.resolve_group(group, who=who, why=why),
    GroupState.IGNORED: lambda service, group, who, why: service.ignore_group(group, who=who, why=why),
    GroupState.OPEN: lambda service, group, who, why: service.reopen_group(group, who=who, why=why),
}


_NEED_WHY = (GroupState.RESOLVED, GroupState.IGNORED)
_WITH_WHY = {
    True: click.option("--why", required=True, metavar="TEXT", help="Kept in the audit."),
    False: click.option("--why", default="", metavar="TEXT", help="Shown with the group, and kept in the audit."),
}


def _state_command(name: str, state: GroupState, says: str) -> None:
    @groups_command.command(name, help=f"{says}\n\n\b\nExample:\n  redrive dlq groups {name} ID --why '…'")
    @click.argument("group_ids", nargs=-1, required=True, metavar="ID...")
    @_WITH_WHY[state in _NEED_WHY]
    @with_who
    @with_connection
    def command(connection: ConnectionOptions, group_ids: tuple[str, ...], why: str, who: str) -> None:
        keep_result()

        async def work(store: Store) -> None:
            for text in group_ids:
                group = await _found(store, text)
                await _CHANGES[state](dead_letter_service(store), group.id, who, why)
                print_line(f"{group.id} is {state}.")

        on_store(connection, work)


_state_command("acknowledge", GroupState.ACKNOWLEDGED, "Mark as acknowledged: somebody works on it.")
_state_command("resolve", GroupState.RESOLVED, "Mark as resolved; a new dead letter makes it `regressed`.")
_state_command("ignore", GroupState.IGNORED, "Mark as ignored: nobody needs to look at it.")
_state_command("open", GroupState.OPEN, "Reopen: clear the state that somebody set.")


@groups_command.command("note")
@click.argument("group_id", metavar="ID")
@click.argument("text")
@with_who
@with_connection
def note_command(connection: ConnectionOptions, group_id: str, text: str, who: str) -> None:
    """Write TEXT beside a group.

    \b
    Example:
      redrive dlq groups note ID 'supplier ticket 4711'
    """

    keep_result()

    async def work(store: Store) -> None:
        group = await _found(store, group_id)
        await dead_letter_service(store).add_note(group.id, text, who=who)
        print_line(f"Noted beside {group.id}.")

    on_store(connection, work)


async def _found(store: Store, group_id: str) -> Group:
    group = await store.groups.get(group_id)
    if group is None:
        raise UnknownId(f"there is no group {group_id} in {store.address}; look for it with: redrive dlq groups")
    return group
