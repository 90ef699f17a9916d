"""`redrive dlq export` and `import`: dead letters as JSON lines, nothing lost."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from redrive.cli.console import drop_closed_stdout, keep_result, say
from redrive.cli.dlq.output import print_json, print_line
from redrive.cli.dlq.selection import filter_of, letter_id, on_store
from redrive.cli.dlq.shared_options import (
    ConnectionOptions,
    SelectionOptions,
    with_connection,
    with_format,
    with_selection,
    with_who,
)
from redrive.cli.private_files import writing_private
from redrive.cli.text_tables import counted, printable
from redrive.core import UnreadableFile
from redrive.deadletters import export_lines, import_lines
from redrive.records import Filter, NameTerm
from redrive.stores import ImportResult, Store


@click.command("export")
@with_selection
@click.option("--output", "-o", metavar="FILE", default="-", show_default=True, help="Where to; - is stdout.")
@with_connection
def export_command(connection: ConnectionOptions, wanted: SelectionOptions, output: str) -> None:
    """Write dead letters as JSON lines: bodies and typed headers byte for byte, history, edits, life.

    Without IDs, --queue, --filter … all are written. A file is for its owner alone, and appears under its name
    when it is whole.

    \b
    Examples:
      redrive dlq export --queue orders -o orders.jsonl
      redrive dlq export --all | gzip > all.jsonl.gz
    """

    async def work(store: Store) -> tuple[int, bool]:
        moment_ms = store.clock_ms()
        chosen = filter_of(wanted, moment_ms=moment_ms)
        if wanted.ids:
            ids = tuple([await letter_id(store, one) for one in wanted.ids])
            chosen = Filter((NameTerm(field="id", values=ids), *chosen.terms))
        written = 0
        try:
            with _writing(output) as file:
                async for line in export_lines(store, chosen, now_ms=moment_ms):
                    if wanted.limit is not None and written >= wanted.limit:
                        break
                    file.write(line)
                    written += 1
        except BrokenPipeError:  # `| head` has seen enough
            drop_closed_stdout()
            return written, False
        return written, True

    written, is_read = on_store(connection, work)
    if is_read:
        say(f"{counted(written, 'dead letter')} written.")
    else:
        say("The reader has closed the pipe; not everything was written.")


@click.command("import")
@click.argument("file_name", default="-", metavar="[FILE]")
@with_format
@with_who
@with_connection
def import_command(connection: ConnectionOptions, file_name: str, form: str, who: str) -> None:
    """Import what `export` wrote, from FILE or stdin. Ids stay; what exists already is skipped.

    \b
    Examples:
      redrive dlq import orders.jsonl
      gunzip -c all.jsonl.gz | redrive dlq import
    """

    keep_result()

    async def work(store: Store) -> ImportResult:
        with _reading(file_name) as lines:
            return await import_lines(store, lines, who=who, now_ms=store.clock_ms())

    imported = on_store(connection, work, creates=True)
    if form == "json":
        print_json({"imported": imported.inserted, "skipped": imported.skipped})
    else:
        print_line(f"{counted(imported.inserted, 'dead letter')} taken in, {imported.skipped:,} there already.")


@contextmanager
def _writing(output: str) -> Iterator[BinaryIO]:
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with writing_private(output) as file:
        yield file


@contextmanager
def _reading(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as opened:
            yield opened
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
        raise UnreadableFile(path=printable(file), reason=reason, hint="name what export wrote") from None
