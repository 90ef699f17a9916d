"""Finds the dead letters that the options mean: ids by their beginnings or endings, filters with a caret."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click

from redrive.cli.console import EXIT_COULD_NOT
from redrive.cli.dlq.output import fail_line, warn_line
from redrive.cli.dlq.shared_options import ConnectionOptions, SelectionOptions
from redrive.core import RedriveError
from redrive.records import (
    Filter,
    InvalidFilter,
    NameTerm,
    Selection,
    Status,
    Term,
    TimeTerm,
    format_filter,
    parse_filter,
)
from redrive.stores import Store, exposed_mode
from redrive.wiring import ConnectionSettings, find_connection_settings, opened_store

_Result = TypeVar("_Result")


class UnknownId(RedriveError):
    """An id that names no dead letter, or several."""


def connection_settings_of(options: ConnectionOptions) -> ConnectionSettings:
    """Where broker and database are, by options, environment and file. Raises `InvalidUrl`, and what a file may."""
    return find_connection_settings(
        url=options.url, management_url=options.management_url, database=options.database, file=options.file
    )


def on_store(
    options: ConnectionOptions, work: Callable[[Store], Awaitable[_Result]], *, creates: bool = False
) -> _Result:
    """Runs `work` with the store open; an invalid filter ends the program with a caret under the mistake."""

    async def run() -> _Result:
        connection = connection_settings_of(options)
        mode = exposed_mode(connection.database.value)
        if mode is not None:
            warn_line(f"others than its owner may use the database (mode {mode}), which holds payloads; chmod 600 it")
        async with opened_store(connection, creates=creates) as store:
            return await work(store)

    return run_to_end(run)


def run_to_end(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Runs `work`; an invalid filter ends the program with a caret under the mistake, a silent broker with one
    sentence."""

    async def run() -> _Result:
        return await work()

    try:
        return asyncio.run(run())
    except InvalidFilter as error:
        show_invalid_filter(error)
        raise SystemExit(EXIT_COULD_NOT) from None
    except TimeoutError:
        fail_line("the broker did not answer in time; look at its log and its alarms, and try again")
        raise SystemExit(EXIT_COULD_NOT) from None


def show_invalid_filter(error: InvalidFilter) -> None:
    """What is wrong, a sentence each; the filter, and a caret under the first mistake."""
    for finding in error.findings:
        fail_line(finding.text)
    for line in error.pointer.splitlines():
        click.echo(f"  {line}", err=True)


def filter_of(wanted: SelectionOptions, *, moment_ms: int) -> Filter:
    """The filter that --queue, --group, --status and --filter make together. Raises `InvalidFilter`."""
    return Filter((*_flag_terms(wanted), *parse_filter(wanted.filter_text, now_ms=moment_ms).terms))


def filter_text_of(wanted: SelectionOptions) -> str:
    """The same as one text, with its moments as they were typed."""
    return f"{format_filter(Filter(_flag_terms(wanted)))} {wanted.filter_text.strip()}".strip()


async def selection_of(
    store: Store,
    wanted: SelectionOptions,
    *,
    moment_ms: int,
    includes_in_doubt: bool = False,
    freezes: bool = True,
    vhost: str | None = None,
) -> Selection:
    """What was typed, as a selection. With `freezes`, what is collected from now on is not in it.

    `vhost`: only what was collected there, because a connection leads to one vhost.

    Raises `UnknownId` and `InvalidFilter`, and a usage error where nothing says which.
    """
    if wanted.ids:
        if wanted.queue or wanted.group or wanted.status or wanted.filter_text.strip() or wanted.takes_all:
            raise click.UsageError("IDs say already which; leave out --queue, --group, --status, --filter and --all.")
        ids = tuple(dict.fromkeys([await letter_id(store, one) for one in wanted.ids]))
        return Selection(ids=ids, limit=wanted.limit, includes_in_doubt=True)
    if not wanted.has_selection and not wanted.takes_all:
        raise click.UsageError("Say which dead letters: IDs, --queue Q, --group ID, --filter 'TEXT', or --all.")
    chosen = filter_of(wanted, moment_ms=moment_ms)
    if freezes:
        bound = TimeTerm(field="collected", from_ms=None, until_ms=moment_ms + 1)
        chosen = Filter((*chosen.terms, bound))
    if vhost is not None:
        chosen = Filter((*chosen.terms, NameTerm(field="vhost", values=(vhost,))))
    doubtful = wanted.status is not None and wanted.status.lower() == Status.IN_DOUBT
    return Selection(
        filter=chosen,
        filter_text=filter_text_of(wanted) or "all",
        limit=wanted.limit,
        includes_in_doubt=includes_in_doubt or doubtful,
    )


async def letter_id(store: Store, text: str) -> str:
    """The one id that begins or ends so. Raises `UnknownId`."""
    found = await store.letters.find(text)
    return one_of(text, found, noun="dead letter", listing="redrive dlq list", address=store.address)


def one_of(text: str, found: Sequence[str], *, noun: str, listing: str, address: str) -> str:
    """The only one found, or the one that is the text itself. Raises `UnknownId`."""
    if text in found:
        return text
    if not found:
        raise UnknownId(f"there is no {noun} {text} in {address}; look for it with: {listing}")
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (" …" if len(found) > 5 else "")
        raise UnknownId(f"{text} is {noun} {shown}; give more of the id")
    return found[0]


def _flag_terms(wanted: SelectionOptions) -> tuple[Term, ...]:
    terms: list[Term] = []
    if wanted.queue is not None:
        terms.append(NameTerm(field="queue", values=(wanted.queue,)))
    if wanted.group is not None:
        terms.append(NameTerm(field="group", values=(wanted.group,)))
    if wanted.status is not None:
        terms.append(NameTerm(field="status", values=(wanted.status.lower(),)))
    return tuple(terms)
