"""`redrive collect`: dead letters out of their queues, into the database."""

from typing import Literal, cast

import click

from redrive.cli.console import EXIT_COULD_NOT, EXIT_FOUND, announce_start, keep_result, say
from redrive.cli.dlq.output import fail_line, is_confirmed, print_json, print_line, warn_line
from redrive.cli.dlq.shared_options import with_who
from redrive.cli.secret_files import with_secret_files
from redrive.cli.text_tables import counted, printable
from redrive.core import Finding, Severity
from redrive.deadletters import CollectReport, SourceSelection
from redrive.wiring import CollectRequest, ConnectionSettings, TelemetryOptions, find_connection_settings, run_collect

_QUEUES_SHOWN = 50


@click.command("collect")
@click.argument("file", required=False)
@click.option("--match", "patterns", multiple=True, metavar="GLOB", help="Queues by name, '*.dlq'; repeatable.")
@with_secret_files
@click.option("--url", help="The broker: amqp(s)://user:password@host:port/vhost.")
@click.option("--management-url", metavar="URL", help="Its management API; guessed from --url.")
@click.option("--database", metavar="DB", help="sqlite:///redrive.db, sqlite:////var/lib/… or postgresql://…")
@click.option("--once", is_flag=True, help="Until the queues are empty, then end.")
@click.option("--auto-retry", is_flag=True, help="Also send back what is due: see `redrive dlq auto-retry`.")
@click.option("--observe", multiple=True, metavar="GLOB", help="Queues that are never taken from; repeatable.")
@click.option("--resume-queue", "resumed", multiple=True, metavar="Q", help="A stopped queue that may go on.")
@click.option(
    "--force", is_flag=True, help="Collect what looks like a main or wait queue, if --match names it exactly."
)
@click.option(
    "--yes", is_flag=True, help="Without FILE and --match: take from all whose names say dead letters, unasked."
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics, /healthz and /readyz there.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True)
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), help="info; with --once, warning."
)
@click.option("--log-format", type=click.Choice(("json", "text")), help="By default text on a terminal, else json.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", help="Of --once's result.")
@with_who
def collect_command(
    who: str,
    file: str | None,
    patterns: tuple[str, ...],
    url: str | None,
    management_url: str | None,
    database: str | None,
    once: bool,
    auto_retry: bool,
    observe: tuple[str, ...],
    resumed: tuple[str, ...],
    force: bool,
    yes: bool,
    metrics_port: int | None,
    metrics_host: str,
    log_level: str | None,
    log_format: str | None,
    form: str,
) -> None:
    """Take dead letters out of their queues into the database, until Ctrl-C.

    The queues are FILE's parking queues (with --match: those of them that match), or without FILE the broker's that
    match. With neither, those whose names say dead letters are shown and asked about. It first prints the queues and
    their depths. A message is acked only when it is stored. Any number of collectors may share a
    database: each queue has one at a time. What looks like a main or wait queue is refused.

    \b
    Exit codes: 0 fine; 1 with --once, a queue was refused or could not be emptied; 2 could not.

    \b
    Examples:
      redrive collect redrive.yaml --database sqlite:///redrive.db
      redrive collect --match '*.dlq' --url amqp://guest:guest@localhost:5672/ --once
      redrive collect redrive.yaml --database postgresql://redrive@db/redrive --auto-retry --metrics-port 9103
    """
    keep_result()
    connection = find_connection_settings(url=url, management_url=management_url, database=database, file=file)
    request = CollectRequest(
        patterns=patterns, observe=observe, resumed=resumed, once=once, auto_retry=auto_retry, forced=force, who=who
    )
    telemetry_options = TelemetryOptions(
        log_level=log_level or ("warning" if once else "info"),
        log_format=cast(Literal["json", "text"] | None, log_format),
        metrics_host=metrics_host,
        metrics_port=metrics_port,
    )

    refusals: list[Finding] = []

    def confirm(selected: SourceSelection) -> None:
        _say_findings(selected)
        refusals.extend(selected.refusals)
        if file is not None or patterns or yes:
            return
        say(printable(f"Would collect from {_queues_text(selected, connection)}"))
        if not is_confirmed("You did not name these queues. Collect from them?", yes=False):
            raise SystemExit(EXIT_COULD_NOT)

    def started(selected: SourceSelection) -> None:
        text = printable(f"Collecting from {_queues_text(selected, connection)}")
        if once:
            say(text)
        else:
            announce_start(f"{text}; Ctrl-C ends it", log_format=log_format)

    report = run_collect(connection, request, telemetry_options=telemetry_options, confirm=confirm, started=started)
    if report is None:  # ended before it began
        raise SystemExit(EXIT_FOUND if once else 0)
    if once:
        _report(report, form=form)
        if refusals:
            raise SystemExit(EXIT_FOUND)


def _say_findings(selected: SourceSelection) -> None:
    for finding in selected.findings:
        (fail_line if finding.severity is Severity.ERROR else warn_line)(finding.text)


def _queues_text(selected: SourceSelection, connection: ConnectionSettings) -> str:
    """The queues that are collected, and their depths."""
    sources = [one for one in selected.sources if not one.observe_only]
    shown = [_with_depth(one.dlq, selected.depths.get(one.dlq)) for one in sources[:_QUEUES_SHOWN]]
    more = "" if len(sources) <= _QUEUES_SHOWN else f" and {len(sources) - _QUEUES_SHOWN} more"
    return f"{', '.join(shown)}{more} of {connection.target.address}"


def _with_depth(name: str, depth: int | None) -> str:
    return name if depth is None else f"{name} ({counted(depth, 'message')})"


def _report(report: CollectReport, *, form: str) -> None:
    total = report.total
    if form == "json":
        print_json(
            {
                "stored": total.inserted,
                "came_back": total.came_back,
                "copies": total.copies,
                "queues": {name: one.inserted + one.came_back for name, one in report.tallies.items()},
                "problems": report.left,
            }
        )
    else:
        came_back = f", {total.came_back:,} of them came back" if total.came_back else ""
        print_line(f"{counted(total.inserted + total.came_back, 'dead letter')} collected{came_back}.")
        for queue, problem in report.left.items():
            warn_line(f"{queue}: {problem}")
    if report.left:
        raise SystemExit(EXIT_FOUND)
