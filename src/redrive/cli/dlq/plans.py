"""What would be sent where: the plan of a redrive, before anybody is asked and anything is sent."""

from redrive.cli.console import say
from redrive.cli.dlq.output import print_json, print_line, print_table
from redrive.cli.text_tables import TableCell, TableColumn, counted
from redrive.deadletters import Preflight
from redrive.records import Preview

_TARGET_COLUMNS = (
    TableColumn(title="target", shrinks=True),
    TableColumn(title="copies", is_number=True),
    TableColumn(title="consumers", is_number=True),
    TableColumn(title="waiting there", is_number=True),
)


def report_nothing_to_send(preview: Preview, *, form: str) -> None:
    """Why there is nothing to send."""
    if form == "json":
        print_json({"operation": None, "not_sent": [], "left_alone": preview.left_alone})
        return
    left = ", ".join(f"{count:,} {status}" for status, count in preview.left_alone.items() if count)
    say(f"Nothing to send: {left} left alone." if left else "Nothing to send: no dead letters match.")
    if preview.left_alone.get("in_doubt"):
        say("Doubtful ones are sent when their IDs are given, or with --include-in-doubt.")
    if preview.left_alone.get("resolved"):
        say("Resolved ones are sent after `redrive dlq reopen`.")


def say_elsewhere(preview: Preview, vhost: str) -> None:
    """That the same would match elsewhere, if it would."""
    if preview.total:
        noun = counted(preview.total, "dead letter")
        say(f"{noun} would match in other vhosts than {vhost}; name the vhost in --url.")


def print_plan(preview: Preview, preflight: Preflight | None) -> None:
    """For people: the targets as a table, and how many are left alone."""
    rows = [
        (
            one.address if one.exists else TableCell(f"{one.address} (missing)", "red"),
            f"{one.copies:,}",
            "" if one.consumers is None else str(one.consumers) if one.consumers else TableCell("0", "yellow"),
            "" if one.messages_ready is None else f"{one.messages_ready:,}",
        )
        for one in (() if preflight is None else preflight.targets)
    ]
    if rows:
        print_table(_TARGET_COLUMNS, rows)
    left = ", ".join(f"{count:,} {status}" for status, count in preview.left_alone.items() if count)
    print_line(f"{counted(preview.total, 'dead letter')}; left alone: {left or 'none'}.")


def plan_json(preview: Preview, preflight: Preflight | None) -> dict[str, object]:
    """For machines."""
    return {
        "dry_run": True,
        "total": preview.total,
        "by_queue": preview.by_queue,
        "left_alone": preview.left_alone,
        "targets": [
            {
                "exchange": one.exchange,
                "routing_key": one.routing_key,
                "copies": one.copies,
                "exists": one.exists,
                "consumers": one.consumers,
                "messages_ready": one.messages_ready,
            }
            for one in (() if preflight is None else preflight.targets)
        ],
        "findings": [
            {"code": one.code, "severity": str(one.severity), "address": one.address, "text": one.text}
            for one in (() if preflight is None else preflight.findings)
        ],
    }
