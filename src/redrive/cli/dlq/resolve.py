"""`redrive dlq resolve`, `reopen` and `delete`: people change the status of dead letters without sending them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import click

from redrive.cli.console import EXIT_COULD_NOT, EXIT_FOUND, keep_result, say
from redrive.cli.dlq.output import is_confirmed, print_json, print_line, warn_line
from redrive.cli.dlq.selection import on_store, selection_of
from redrive.cli.dlq.shared_options import (
    ConnectionOptions,
    SelectionOptions,
    with_connection,
    with_format,
    with_selection,
    with_who,
)
from redrive.cli.text_tables import counted
from redrive.records import Filter, LetterEvent, Selection, TimeTerm
from redrive.stores import ChangeResult, Store
from redrive.wiring import dead_letter_service

_REFUSED_SHOWN = 20
_with_end_waiting = click.option(
    "--end-waiting",
    is_flag=True,
    help="Also those that are retrying or waiting: their copies were sent and have not come back.",
)
_ASKS_ABOVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What a command does to each dead letter, and how it speaks of it."""

    event: LetterEvent
    verb: str
    done: str
    apply: Callable[[Store, Selection], Awaitable[ChangeResult]]


@click.command("resolve")
@with_selection
@click.option("--by", "resolved_by", metavar="NAME", help="Who resolved it; the same as --as.")
@click.option("--resolution", "--why", "why", required=True, metavar="TEXT", help="What was done about it.")
@_with_end_waiting
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_connection
def resolve_command(
    connection: ConnectionOptions,
    wanted: SelectionOptions,
    resolved_by: str | None,
    why: str,
    end_waiting: bool,
    yes: bool,
    form: str,
    who: str,
) -> None:
    """Mark dead letters as resolved. They stay in the database and can be reopened.

    Resolve one in doubt if its copy did arrive. One that is retrying or waiting is left alone: its copy was sent and
    may come back; --end-waiting resolves it all the same. Asks first if there is more than one, unless --yes.

    \b
    Examples:
      redrive dlq resolve 1hv7 --by ada --resolution 'data corrected by hand'
      redrive dlq resolve --filter 'queue:orders dead:>30d' --resolution 'too old' --yes
    """
    who = resolved_by or who

    async def change(store: Store, selection: Selection) -> ChangeResult:
        return await dead_letter_service(store).resolve(selection, who=who, why=why)

    _apply(
        connection,
        wanted,
        _Change(event=LetterEvent.RESOLVED, verb="Resolve", done="resolved", apply=change),
        end_waiting=end_waiting,
        asks=_is_many(wanted) and not yes,
        form=form,
    )


@click.command("reopen")
@with_selection
@click.option("--why", default="", metavar="TEXT", help="For the audit.")
@_with_end_waiting
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_connection
def reopen_command(
    connection: ConnectionOptions, wanted: SelectionOptions, why: str, end_waiting: bool, yes: bool, form: str, who: str
) -> None:
    """Make resolved, failed or doubtful dead letters pending again.

    A doubtful one (in_doubt) is settled so when its copy did not arrive; redriving it may make a duplicate if it did.
    The same holds for one that is retrying or waiting, which is only reopened with --end-waiting.

    \b
    Examples:
      redrive dlq reopen 1hv7
      redrive dlq reopen --status in_doubt --queue orders --why 'the broker lost its disk' --yes
    """

    async def change(store: Store, selection: Selection) -> ChangeResult:
        return await dead_letter_service(store).reopen(selection, who=who, why=why)

    _apply(
        connection,
        wanted,
        _Change(event=LetterEvent.REOPENED, verb="Reopen", done="reopened", apply=change),
        end_waiting=end_waiting,
        asks=_is_many(wanted) and not yes,
        form=form,
    )


@click.command("delete")
@with_selection
@click.option("--why", default="", metavar="TEXT", help="For the audit; only its entry stays.")
@_with_end_waiting
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_connection
def delete_command(
    connection: ConnectionOptions, wanted: SelectionOptions, why: str, end_waiting: bool, yes: bool, form: str, who: str
) -> None:
    """Delete dead letters for good. It asks first, unless --yes; without a terminal nothing is deleted.

    One that is retrying or waiting is only deleted with --end-waiting; a copy that comes back all the same is a new
    dead letter.

    \b
    Examples:
      redrive dlq delete 1hv7 --yes
      redrive dlq delete --filter 'status:resolved updated:>90d' --why 'retention' --yes
    """

    async def change(store: Store, selection: Selection) -> ChangeResult:
        return await dead_letter_service(store).delete(selection, who=who, why=why)

    _apply(
        connection,
        wanted,
        _Change(event=LetterEvent.DELETED, verb="Delete for good", done="deleted", apply=change),
        end_waiting=end_waiting,
        asks=not yes,
        form=form,
    )


def _is_many(wanted: SelectionOptions) -> bool:
    return not wanted.ids or len(wanted.ids) > _ASKS_ABOVE


def _apply(
    options: ConnectionOptions,
    wanted: SelectionOptions,
    change: _Change,
    *,
    end_waiting: bool,
    asks: bool,
    form: str,
) -> None:
    keep_result()
    said: dict[str, int] = {}

    async def work(store: Store) -> ChangeResult | None:
        moment_ms = store.clock_ms()
        selection = await selection_of(store, wanted, moment_ms=moment_ms)
        selection = replace(selection, ends_waiting=end_waiting)
        if asks:
            if selection.filter is not None:
                # Leave out what changes while the person thinks: the question was not about it.
                unchanged = TimeTerm(field="updated", from_ms=None, until_ms=moment_ms + 1)
                selection = replace(selection, filter=Filter((*selection.filter.terms, unchanged)))
            found = await store.letters.preview_change(selection, change.event, now_ms=moment_ms)
            _say_left(found.not_able, "would be left")
            said.update(found.not_able)
            if found.able and not is_confirmed(f"{change.verb} {counted(found.able, 'dead letter')}?", yes=False):
                return None
        return await change.apply(store, selection)

    changed = on_store(options, work)
    if changed is None:
        raise SystemExit(EXIT_COULD_NOT)
    if form == "json":
        print_json({"done": changed.done, "refused": changed.refused, "not_done": changed.not_done})
    else:
        _print(changed, change.done, said)
    if changed.not_done:
        raise SystemExit(EXIT_FOUND)


def _print(changed: ChangeResult, done: str, said: dict[str, int]) -> None:
    """`said` was printed before the question: it is not printed twice."""
    if changed.done or not changed.refused:
        print_line(f"{counted(changed.done, 'dead letter')} {done}.")
    if not changed.refused:
        _say_left({reason: n for reason, n in changed.not_done.items() if said.get(reason) != n}, "left")
    for letter, reason in list(changed.refused.items())[:_REFUSED_SHOWN]:
        warn_line(f"{letter}: {reason}")
    if len(changed.refused) > _REFUSED_SHOWN:
        say(f"… and {len(changed.refused) - _REFUSED_SHOWN:,} more were refused")


def _say_left(not_done: dict[str, int], left: str) -> None:
    for reason, count in not_done.items():
        warn_line(f"{counted(count, 'dead letter')} {left}: {reason}")
