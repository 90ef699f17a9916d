"""`redrive audit`: who did what, and whether anybody has changed what is written about it."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from redrive.cli.console import EXIT_FOUND, SuggestingGroup, say
from redrive.cli.dlq.audit import audit_command as list_command
from redrive.cli.dlq.output import fail_line, print_json, print_line
from redrive.cli.dlq.selection import on_store
from redrive.cli.dlq.shared_options import ConnectionOptions, with_connection, with_format
from redrive.cli.private_files import writing_private
from redrive.cli.text_tables import counted, printable
from redrive.core import UnreadableFile
from redrive.records import ChainHead, ChainReport, InvalidHead, audit_json, read_head
from redrive.stores import Store

_FORMAT = "redrive-audit/1"


@click.group("audit", cls=SuggestingGroup)
def audit_command() -> None:
    """Read the audit, prove that nobody changed it, and export it.

    Each entry has a hash over itself and the one before it. Whoever can write the whole database could write a new
    chain: keep the head that `verify` prints, or an export, somewhere else, and compare.

    \b
    Exit codes: 0 the chain is whole; 1 it is not; 2 could not.

    \b
    Examples:
      redrive audit list --by ada
      redrive audit verify --head 412:9f86d081…
      redrive audit export -o audit.jsonl
    """


audit_command.add_command(list_command, "list")


@audit_command.command("verify")
@click.option("--head", "heads", multiple=True, metavar="PLACE:HASH", help="A head that was written down. Repeatable.")
@click.option("--export", "file_name", metavar="FILE", help="What `redrive audit export` wrote before.")
@with_format
@with_connection
def verify_command(connection: ConnectionOptions, heads: tuple[str, ...], file_name: str | None, form: str) -> None:
    """Find entries that were changed, removed, moved or added by hand; with a head also that the newest are gone.

    \b
    Examples:
      redrive audit verify
      redrive audit verify --export /backup/audit.jsonl
    """
    anchors = [read_head(one) for one in heads]
    if file_name is not None:
        anchors += _heads_of(file_name)

    async def work(store: Store) -> ChainReport:
        return await store.audit.verify(anchors)

    report = on_store(connection, work)
    if form == "json":
        findings = [{"code": one.code, "place": one.place, "text": one.text} for one in report.findings]
        summary = {"entries": report.entries, "head": str(report.head), "findings": findings, "more": report.is_cut}
        print_json({"is_whole": not report.findings, **summary})
    else:
        for finding in report.findings:
            fail_line(finding.text)
        if report.is_cut:
            say("… and more.")
        if not report.findings:
            print_line(f"The chain is whole: {counted(report.entries, 'entry', 'entries')}.")
        print_line(f"head {report.head}")
    if report.findings:
        raise SystemExit(EXIT_FOUND)


@audit_command.command("export")
@click.option("--output", "-o", metavar="FILE", default="-", show_default=True, help="Where to; - is stdout.")
@with_connection
def export_command(connection: ConnectionOptions, output: str) -> None:
    """Write the whole audit as JSON lines, the oldest first, with the hashes. A file is for its owner alone.

    \b
    Example:
      redrive audit export -o audit.jsonl
    """

    async def work(store: Store) -> ChainHead:
        head = ChainHead()
        with _writing(output) as file:
            async for entry in store.audit.all():
                line = json.dumps({"format": _FORMAT, **audit_json(entry), "at_ms": entry.at_ms})
                file.write(line.encode() + b"\n")
                if entry.place is not None and entry.hash is not None:
                    head = ChainHead(place=entry.place, hash=entry.hash)
        return head

    say(f"head {on_store(connection, work)}")


@contextmanager
def _writing(output: str) -> Iterator[BinaryIO]:
    if output != "-":
        with writing_private(output) as file:
            yield file
        return
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _heads_of(file_name: str) -> list[ChainHead]:
    """Every entry of an export is a head of its time. Raises `UnreadableFile`."""
    heads = []
    try:
        with Path(file_name).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    read = json.loads(line)
                    if read["place"] is not None:
                        heads.append(read_head(f"{read['place']}:{read['hash']}"))
                except (ValueError, KeyError, TypeError, InvalidHead):
                    raise UnreadableFile(
                        path=printable(file_name),
                        reason=f"line {number} is no entry of an audit",
                        hint="name what `redrive audit export` wrote",
                    ) from None
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
        raise UnreadableFile(path=printable(file_name), reason=reason, hint="name another file") from None
    return heads
