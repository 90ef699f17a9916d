"""An operation in the foreground: progress while it runs, a clean pause on Ctrl-C, and how it ended.

The first Ctrl-C (or SIGTERM) pauses: copies in flight are confirmed and recorded, the rest stays queued.
"""

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redrive.cli.console import EXIT_FOUND, say
from redrive.cli.dlq.output import print_json, print_line, warn_line
from redrive.cli.progress_bar import ProgressBar
from redrive.cli.text_tables import counted
from redrive.core import RedriveError
from redrive.records import ItemState, Operation, OperationItem, OperationState, item_json, operation_json
from redrive.stores import Store
from redrive.wiring import RedriveBroker, stop_signals_handled

_POLL_INTERVAL_S = 0.2
_STOP_S_MAX = 60.0
_SHOWN = 10
_ENDS = (OperationState.DONE, OperationState.CANCELLED, OperationState.PAUSED)


@contextmanager
def stopping_on_signals(said: str = "Stopping …") -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set, for as long as the block runs."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if not stop.is_set():
            say(f"\n{said}")
        stop.set()

    with stop_signals_handled(on_signal):
        yield stop


async def run_in_foreground(store: Store, broker: RedriveBroker, operation: Operation) -> Operation:
    """Runs an operation to its end, its pause, or Ctrl-C. If another process runs it already, this one follows it."""
    is_terminal = sys.stderr.isatty()
    progress = ProgressBar(
        stream=sys.stderr,
        total=operation.total,
        now_s=time.monotonic,
        is_terminal=is_terminal,
        width=shutil.get_terminal_size().columns,
        noun="returned" if operation.kind == "return" else "sent",
    )
    current = operation
    with stopping_on_signals("Pausing: what is on its way is ended first …") as stop:
        running = asyncio.create_task(broker.run(operation.id, stop=stop))
        try:
            while not running.done():
                await asyncio.wait([running], timeout=_POLL_INTERVAL_S)
                current = await _latest(store, current)
                progress.update(current.total - current.left, _note(current))
            current = running.result()
        finally:
            if not running.done():
                stop.set()
                await asyncio.wait([running], timeout=_STOP_S_MAX)
            progress.end(current.total - current.left, _note(current))
    return current


def report(operation: Operation, items: list[OperationItem], *, form: str) -> None:
    """Prints how an operation ended, and ends the program with 1 if not all of it was sent."""
    if form == "json":
        not_sent = [item_json(one) for one in items]
        print_json({"operation": operation_json(operation), "not_sent": not_sent})
    else:
        _print(operation, items)
    if operation.sent < operation.total or operation.state is not OperationState.DONE:
        raise SystemExit(EXIT_FOUND)


async def items_not_sent(store: Store, operation: Operation) -> list[OperationItem]:
    """The first items that were not sent, with their reasons."""
    found: list[OperationItem] = []
    for state in (ItemState.REFUSED, ItemState.IN_DOUBT, ItemState.SKIPPED):
        items, _ = await store.operations.items(operation.id, _SHOWN, state=state)
        found.extend(items)
    return found


async def _latest(store: Store, operation: Operation) -> Operation:
    try:
        found = await store.operations.get(operation.id)
    except RedriveError:
        return operation  # the database is away: the runner knows how long to wait for it
    return operation if found is None else found


def _note(operation: Operation) -> str:
    parts = [
        f"{count:,} {word}"
        for count, word in (
            (operation.refused, "refused"),
            (operation.in_doubt, "in doubt"),
            (operation.skipped, "skipped"),
        )
        if count
    ]
    return ", ".join(parts)


def _print(operation: Operation, items: list[OperationItem]) -> None:
    verb = "returned" if operation.kind == "return" else "sent"
    text = f"{operation.sent:,} of {counted(operation.total, 'dead letter')} {verb}"
    note = _note(operation)
    print_line(f"{text}, {note}." if note else f"{text}.", bold=True)
    for one in items:
        warn_line(f"{one.letter_id} ({one.queue}) {one.state}: {one.reason}")
    if operation.in_doubt:
        say(
            "In doubt: the connection went before the broker's answer. Look whether they arrived, then say so with"
            " `redrive dlq resolve ID --resolution TEXT`, or send them again with `redrive dlq retry ID`, which may"
            " make a duplicate."
        )
    if operation.state not in _ENDS or operation.state is OperationState.PAUSED:
        why = f" ({operation.note})" if operation.note else ""
        say(f"Operation {operation.id} is {operation.state}{why}, {operation.left:,} are left.")
        say(f"Go on with: redrive dlq operations resume {operation.id}")
