"""`redrive dlq auto-retry`: rules that redrive dead letters automatically, and the loop that follows them."""

import asyncio

import click

from redrive.cli.console import SuggestingGroup, keep_result, say
from redrive.cli.dlq.foreground_run import stopping_on_signals
from redrive.cli.dlq.output import print_json, print_line, print_table, warn_line
from redrive.cli.dlq.selection import connection_settings_of, on_store, run_to_end
from redrive.cli.dlq.shared_options import ConnectionOptions, DurationOption, with_connection, with_format, with_who
from redrive.cli.text_tables import TableCell, TableColumn, counted
from redrive.core import RedriveError, format_duration_ms
from redrive.deadletters import AUTO_RETRY_INTERVAL_S, AutoRetryReport
from redrive.records import RetryRule, rule_json
from redrive.stores import Store
from redrive.wiring import RedriveBroker, declare_rules, opened_broker, opened_store

_EVERYTHING = "*"
_DEFAULT = RetryRule(scope=_EVERYTHING)
_COLUMNS = (
    TableColumn(title="scope", shrinks=True),
    TableColumn(title="auto-retry"),
    TableColumn(title="attempts", is_number=True),
    TableColumn(title="first", is_number=True),
    TableColumn(title="max", is_number=True),
    TableColumn(title="settle", is_number=True),
)


@click.group("auto-retry", cls=SuggestingGroup)
def auto_retry_command() -> None:
    """Redrive dead letters automatically, by rules.

    A rule is for everything, a queue, or a group; the most specific wins, and without one auto-retry is off. Attempt n
    is due --first after the death, doubled each time up to --max. A dead letter whose attempts are spent is failed, and
    has them all again once a person redrives it; one that has not come back for --settle is resolved. A file may say
    `auto_retry:` for its queues; a rule set here wins.

    `redrive serve`, `redrive collect --auto-retry` or `redrive dlq auto-retry run` does the work: they check every 30s
    what is due, so an attempt may be that much later than its rule says.

    \b
    Examples:
      redrive dlq auto-retry on --queue orders --attempts 3 --first 1s --max 1m
      redrive dlq auto-retry off --group ID
      redrive dlq auto-retry run
    """


@auto_retry_command.command("show")
@with_format
@with_connection
def show_command(connection: ConnectionOptions, form: str) -> None:
    """Show the rules.

    \b
    Example:
      redrive dlq auto-retry show
    """

    async def work(store: Store) -> tuple[RetryRule, ...]:
        return tuple(await store.rules.all())

    rules = on_store(connection, work, creates=True)
    if form == "json":
        print_json({"rules": [rule_json(one) for one in rules]})
        return
    if not rules:
        say("No rules: auto-retry is off. Turn it on with: redrive dlq auto-retry on")
        return
    rows = [
        (
            "everything" if one.scope == _EVERYTHING else one.scope,
            TableCell("on", "green") if one.enabled else TableCell("off", "red"),
            str(one.attempts),
            format_duration_ms(one.first_ms),
            format_duration_ms(one.ceiling_ms),
            format_duration_ms(one.settle_ms),
        )
        for one in rules
    ]
    print_table(_COLUMNS, rows)


@auto_retry_command.command("on")
@click.option("--queue", metavar="Q", help="For dead letters of one failed queue.")
@click.option("--group", metavar="ID", help="For one group.")
@click.option("--attempts", type=click.IntRange(1, 1000), help="Redrives before it is failed; 3 by default.")
@click.option(
    "--first",
    "first_ms",
    type=DurationOption(),
    help="Before the first attempt, doubled each time; 1s. Checked every 30s.",
)
@click.option("--max", "ceiling_ms", type=DurationOption(), help="The longest pause; 1m.")
@click.option("--settle", "settle_ms", type=DurationOption(), help="Resolve what has not come back for so long; 10m.")
@with_who
@with_connection
def on_command(
    connection: ConnectionOptions,
    queue: str | None,
    group: str | None,
    attempts: int | None,
    first_ms: int | None,
    ceiling_ms: int | None,
    settle_ms: int | None,
    who: str,
) -> None:
    """Turn it on for everything, a queue or a group; options that are not given keep their values.

    \b
    Example:
      redrive dlq auto-retry on --queue orders --attempts 5 --first 10s --max 10m
    """
    scope = _scope(queue, group)

    keep_result()

    async def work(store: Store) -> RetryRule:
        found = {one.scope: one for one in await store.rules.all()}
        old = found.get(scope, found.get(_EVERYTHING, _DEFAULT))
        rule = RetryRule(
            scope=scope,
            enabled=True,
            attempts=old.attempts if attempts is None else attempts,
            first_ms=old.first_ms if first_ms is None else first_ms,
            ceiling_ms=old.ceiling_ms if ceiling_ms is None else ceiling_ms,
            settle_ms=old.settle_ms if settle_ms is None else settle_ms,
        )
        await store.rules.set(rule, who=who, now_ms=store.clock_ms())
        return rule

    rule = on_store(connection, work, creates=True)
    print_line(
        f"Auto-retry is on for {_named(scope)}: {counted(rule.attempts, 'attempt')}, the first after "
        f"{format_duration_ms(rule.first_ms)}, at most {format_duration_ms(rule.ceiling_ms)} apart; "
        f"checked every {AUTO_RETRY_INTERVAL_S:g}s by `redrive serve` or `redrive collect --auto-retry`."
    )


@auto_retry_command.command("off")
@click.option("--queue", metavar="Q", help="For dead letters of one failed queue.")
@click.option("--group", metavar="ID", help="For one group.")
@click.option("--forget", is_flag=True, help="Remove the rule, so that the next wider one holds again.")
@with_who
@with_connection
def off_command(connection: ConnectionOptions, queue: str | None, group: str | None, forget: bool, who: str) -> None:
    """Turn it off for everything without a rule of its own, for a queue or a group.

    \b
    Example:
      redrive dlq auto-retry off --queue orders
    """
    scope = _scope(queue, group)

    keep_result()

    async def work(store: Store) -> None:
        if forget:
            await store.rules.remove(scope, who=who, now_ms=store.clock_ms())
            return
        await store.rules.set(RetryRule(scope=scope, enabled=False), who=who, now_ms=store.clock_ms())

    on_store(connection, work)
    print_line(f"The rule for {_named(scope)} is forgotten." if forget else f"Auto-retry is off for {_named(scope)}.")


@auto_retry_command.command("run")
@click.option("--once", is_flag=True, help="Redrive what is due now, then end.")
@click.option("--every", "every_ms", type=DurationOption(), default="30s", show_default=True)
@with_connection
def run_command(connection: ConnectionOptions, once: bool, every_ms: int) -> None:
    """Redrive what is due, every --every, until Ctrl-C. Any number may run: one works at a time.

    \b
    Examples:
      redrive dlq auto-retry run
      redrive dlq auto-retry run --once
    """

    keep_result()

    async def work() -> None:
        found = connection_settings_of(connection)
        async with opened_store(found) as store, opened_broker(found, store) as broker:
            for scope in await declare_rules(found, store):
                warn_line(f"the rule for {_named(scope)} was set by a person, and wins over the file")
            if once:
                _print_report(await broker.auto_retry.once(), is_once=True)
                return
            say("Auto-retry runs; Ctrl-C ends it.")
            with stopping_on_signals() as stop:
                await _run_until_stopped(broker, every_ms / 1000, stop)

    run_to_end(work)


async def _run_until_stopped(broker: RedriveBroker, every_s: float, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            _print_report(await broker.auto_retry.once(stop=stop), is_once=False)
        except (RedriveError, TimeoutError) as error:
            warn_line(f"{error}; it is tried again")
        try:
            async with asyncio.timeout(every_s):
                await stop.wait()
        except TimeoutError:
            pass


def _print_report(round: AutoRetryReport, *, is_once: bool) -> None:
    if round.is_elsewhere:
        if is_once:
            say("Another instance does it at the moment.")
        return
    sent = sum(one.sent for one in round.operations)
    left = sum(one.refused + one.in_doubt for one in round.operations)
    if is_once or sent or left or round.resolved:
        doubts = f", {left:,} refused or in doubt" if left else ""
        print_line(f"{sent:,} sent back{doubts}; {round.resolved:,} resolved: they have not come back.")


def _scope(queue: str | None, group: str | None) -> str:
    if queue is not None and group is not None:
        raise click.UsageError("A rule is for a queue or for a group; say one of them.")
    if queue is not None:
        return f"queue:{queue}"
    return _EVERYTHING if group is None else f"group:{group}"


def _named(scope: str) -> str:
    return "everything" if scope == _EVERYTHING else scope.replace(":", " ", 1)
