"""`redrive dlq resolve`, `reopen` and `delete`: what a person decides about dead letters without sending them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import click

from redrive.cli.console import EXIT_COULD_NOT, EXIT_FOUND, say
from redrive.cli.dlq.options import PlaceOptions, Wanted, with_format, with_place, with_wanted, with_who
from redrive.cli.dlq.output import is_confirmed, print_json, print_line, warn_line
from redrive.cli.dlq.selecting import on_store, selection_of
from redrive.cli.tables import counted
from redrive.dlq import Changed, Store, desk_on
from redrive.records import Between, Filter, Selection

_REFUSED_SHOWN = 20
_ASKS_ABOVE = 1


@click.command("resolve")
@with_wanted
@click.option("--by", "resolved_by", metavar="NAME", help="Who resolved it; the same as --as.")
@click.option("--resolution", "--why", "why", required=True, metavar="TEXT", help="What was done about it.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_place
def resolve_command(
    place: PlaceOptions, wanted: Wanted, resolved_by: str | None, why: str, yes: bool, form: str, who: str
) -> None:
    """Say that dead letters need nothing more. They stay in the database and can be reopened.

    A doubtful one (in_doubt) is settled so when its copy did arrive. One that is being retried can't be resolved: its
    copy is on the way. More than one asks first, unless --yes.

    \b
    Examples:
      redrive dlq resolve 1hv7 --by ada --resolution 'data corrected by hand'
      redrive dlq resolve --filter 'queue:orders dead:>30d' --resolution 'too old' --yes
    """
    who = resolved_by or who

    async def change(store: Store, selection: Selection) -> Changed:
        return await desk_on(store).resolve(selection, who=who, why=why)

    _change(place, wanted, change, verb="Resolve", done="resolved", asks=_is_many(wanted) and not yes, form=form)


@click.command("reopen")
@with_wanted
@click.option("--why", default="", metavar="TEXT", help="For the audit.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_place
def reopen_command(place: PlaceOptions, wanted: Wanted, why: str, yes: bool, form: str, who: str) -> None:
    """Make resolved, failed or doubtful dead letters pending again.

    A doubtful one (in_doubt) is settled so when its copy did not arrive; redriving it may make a duplicate if it did.

    \b
    Examples:
      redrive dlq reopen 1hv7
      redrive dlq reopen --status in_doubt --queue orders --why 'the broker lost its disk' --yes
    """

    async def change(store: Store, selection: Selection) -> Changed:
        return await desk_on(store).reopen(selection, who=who, why=why)

    _change(place, wanted, change, verb="Reopen", done="reopened", asks=_is_many(wanted) and not yes, form=form)


@click.command("delete")
@with_wanted
@click.option("--why", default="", metavar="TEXT", help="For the audit, which is all that stays.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_place
def delete_command(place: PlaceOptions, wanted: Wanted, why: str, yes: bool, form: str, who: str) -> None:
    """Throw dead letters away for good. It asks first, unless --yes; with nobody to ask nothing is deleted.

    \b
    Examples:
      redrive dlq delete 1hv7 --yes
      redrive dlq delete --filter 'status:resolved updated:>90d' --why 'retention' --yes
    """

    async def change(store: Store, selection: Selection) -> Changed:
        return await desk_on(store).delete(selection, who=who, why=why)

    _change(place, wanted, change, verb="Delete for good", done="deleted", asks=not yes, form=form)


def _is_many(wanted: Wanted) -> bool:
    return not wanted.ids or len(wanted.ids) > _ASKS_ABOVE


def _change(
    options: PlaceOptions,
    wanted: Wanted,
    change: Callable[[Store, Selection], Awaitable[Changed]],
    *,
    verb: str,
    done: str,
    asks: bool,
    form: str,
) -> None:
    async def work(store: Store) -> Changed | None:
        moment_ms = store.clock_ms()
        selection = await selection_of(store, wanted, moment_ms=moment_ms)
        if asks:
            count = len(selection.ids)
            if selection.filter is not None:
                # What changes while somebody thinks about the answer was not asked about.
                unchanged = Between(field="updated", from_ms=None, until_ms=moment_ms + 1)
                chosen = Filter((*selection.filter.terms, unchanged))
                selection = replace(selection, filter=chosen)
                count = await store.letters.count(chosen, now_ms=moment_ms)
                count = count if selection.limit is None else min(count, selection.limit)
            if count and not is_confirmed(f"{verb} {counted(count, 'dead letter')}?", yes=False):
                return None
        return await change(store, selection)

    changed = on_store(options, work)
    if changed is None:
        raise SystemExit(EXIT_COULD_NOT)
    if form == "json":
        print_json({"done": changed.done, "refused": changed.refused})
    else:
        _print(changed, done)
    if changed.refused:
        raise SystemExit(EXIT_FOUND)


def _print(changed: Changed, done: str) -> None:
    if changed.done or not changed.refused:
        print_line(f"{counted(changed.done, 'dead letter')} {done}.")
    for letter, reason in list(changed.refused.items())[:_REFUSED_SHOWN]:
        warn_line(f"{letter}: {reason}")
    if len(changed.refused) > _REFUSED_SHOWN:
        say(f"… and {len(changed.refused) - _REFUSED_SHOWN:,} more were refused")
