"""`redrive dlq stats`: how many dead letters there are, of what kinds, and when they came."""

import sys

import click

from redrive.cli.console import say
from redrive.cli.dlq.output import STATUS_COLOURS, print_json, print_line, print_table
from redrive.cli.dlq.selection import filter_of, on_store
from redrive.cli.dlq.shared_options import (
    ConnectionOptions,
    DurationOption,
    SelectionOptions,
    with_connection,
    with_format,
)
from redrive.cli.text_tables import TableCell, TableColumn, counted, duration_text, sparkline
from redrive.records import Status, moment_json
from redrive.stores import ActivityBucket, LetterStats, Store

_BUCKETS = 48
_SECTIONS = ("queue", "dlq", "topic", "service", "type", "group")


@click.command("stats")
@click.option("--queue", metavar="Q", help="Of one queue only: the failed one or the dead-letter queue.")
@click.option("--filter", "filter_text", default="", metavar="TEXT", help="See `redrive dlq list --help`.")
@click.option("--over", "over_ms", type=DurationOption(), default="1d", show_default=True, help="How far back in time.")
@click.option("--top", default=10, show_default=True, type=click.IntRange(1, 200), help="Rows of each table.")
@with_format
@with_connection
def stats_command(
    connection: ConnectionOptions, queue: str | None, filter_text: str, over_ms: int, top: int, form: str
) -> None:
    """Count dead letters by status, queue, topic, service, type and group, and over time.

    \b
    Examples:
      redrive dlq stats
      redrive dlq stats --queue orders --over 7d
      redrive dlq stats --format json
    """
    wanted = SelectionOptions(queue=queue, filter_text=filter_text)

    async def work(store: Store) -> tuple[LetterStats, tuple[ActivityBucket, ...]]:
        moment_ms = store.clock_ms()
        chosen = filter_of(wanted, moment_ms=moment_ms) if wanted.has_selection else None
        totals = await store.stats.totals(chosen, now_ms=moment_ms)
        series = await store.stats.series(
            from_ms=moment_ms - over_ms, until_ms=moment_ms, bucket_ms=max(over_ms // _BUCKETS, 1), queue=queue
        )
        return totals, tuple(series)

    totals, series = on_store(connection, work)
    if form == "json":
        print_json(_as_json(totals, series))
        return
    _print_statuses(totals)
    if totals.is_partial:
        say("Only the newest were counted: narrow it down by queue, status or time.")
    _print_series(series, over_ms)
    for section in _SECTIONS:
        _print_section(section, getattr(totals, f"by_{section}"), top)


def _as_json(totals: LetterStats, series: tuple[ActivityBucket, ...]) -> dict[str, object]:
    return {
        "total": totals.total,
        "partial": totals.is_partial,
        "by_status": {str(one): totals.by_status.get(one, 0) for one in Status},
        **{
            f"by_{section}": {
                key: {str(status): count for status, count in counts.items()}
                for key, counts in getattr(totals, f"by_{section}").items()
            }
            for section in _SECTIONS
        },
        "bucket_ms": series[1].at_ms - series[0].at_ms if len(series) > 1 else None,
        "over_time": [
            {
                "at": moment_json(one.at_ms),
                "dead": one.dead,
                "redriven": one.redriven,
                "returned": one.returned,
                "resolved": one.resolved,
            }
            for one in series
        ],
    }


def _print_statuses(totals: LetterStats) -> None:
    print_line(counted(totals.total, "dead letter"), bold=True)
    rows = [
        (TableCell(str(status), STATUS_COLOURS[status]), f"{totals.by_status.get(status, 0):,}") for status in Status
    ]
    print_table((TableColumn(title="status"), TableColumn(title="count", is_number=True)), rows)


def _print_series(series: tuple[ActivityBucket, ...], over_ms: int) -> None:
    if not any(one.dead or one.redriven or one.returned or one.resolved for one in series):
        return
    print_line("")
    print_line(f"the last {duration_text(over_ms)}, {duration_text(over_ms // max(len(series), 1))} each", bold=True)
    for name in ("dead", "redriven", "returned", "resolved"):
        values = [getattr(one, name) for one in series]
        if sys.stdout.isatty():
            print_line(f"{name:<9}{sparkline(values)}  {sum(values):,}")
        else:
            print_line(f"{name:<9}{sum(values):,}")


def _print_section(section: str, counts: dict[str, dict[str, int]], top: int) -> None:
    if not counts or set(counts) == {""}:
        return
    print_line("")
    columns = (
        TableColumn(title=section, shrinks=True),
        TableColumn(title="count", is_number=True),
        *(TableColumn(title=str(status), is_number=True) for status in Status),
    )
    ordered = sorted(counts.items(), key=lambda one: -sum(one[1].values()))
    rows = [
        (key or "(none)", f"{sum(by.values()):,}", *(f"{by[status]:,}" if by.get(status) else "" for status in Status))
        for key, by in ordered[:top]
    ]
    print_table(columns, rows)
    if len(ordered) > top:
        print_line(f"… and {len(ordered) - top} more")
