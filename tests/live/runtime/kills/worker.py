"""A consumer that kills itself in a given place.

It writes `run ID` when a handler begins and `done ID` when it ends well into FOLDER/ledger; what was written survives
SIGKILL. The kill happens once, on account of the message `target`.
"""

import asyncio
import os
import signal
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

from redrive.client import Client, Delivery, Publisher
from redrive.core import Park, Requeue
from redrive.runtime import App, AppRunner, AppRunOptions, Message
from redrive.runtime.settlement.command_executor import ACKS_WRITTEN_S
from redrive.topology import Compiled, compile_declaration, read_declaration
from tests.live.runtime.kills.cells import WRITTEN, Cell

TARGET = "target"
TAKEN_S = 0.2
"""How long what is written to a socket may take to be read by the broker. Nothing of ours runs meanwhile."""


class Killer:
    """Ends the process in its place, without a word.

    Deliveries that simply return reach no place of the runtime, so all that is reached once the target has begun is the
    target's, also when the next delivery is in hand by then.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._has_begun = False

    @property
    def is_armed(self) -> bool:
        """Whether this process is to be killed, and its target has begun."""
        return bool(self._place) and self._has_begun

    def begin(self, name: str) -> None:
        """A handler begins."""
        self._has_begun = self._has_begun or name == TARGET

    def reach(self, place: str) -> None:
        """The runtime's checkpoint."""
        if place == self._place and self._has_begun:
            if place == WRITTEN:
                time.sleep(TAKEN_S)
            os.kill(os.getpid(), signal.SIGKILL)


class Ledger:
    """What has happened, in a file that a killed process leaves behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, word: str, name: str) -> None:
        """One line, in one write."""
        os.write(self._file, f"{word} {name}\n".encode())

    def count(self, word: str, name: str) -> int:
        """How often a line was written, by this process or one before it."""
        return self._path.read_text().splitlines().count(f"{word} {name}")


def make_app(declaration: Path, queue: str, ledger: Ledger, killer: Killer) -> App:
    """An app that does to the target what its body says, and handles everything else."""
    app = App(compile_declaration(read_declaration(declaration.read_text(), file=str(declaration))))

    async def watch(message: Message, proceed: Callable[[], Awaitable[Any]]) -> None:
        name = str(message.id)
        if killer.is_armed and name != TARGET:
            # The target is acked, and we are about to be killed. What begins now would end without its ack.
            await asyncio.Event().wait()
        killer.begin(name)
        ledger.write("run", name)
        try:
            await proceed()
            ledger.write("done", name)
        finally:
            if name == TARGET:
                killer.reach("handled, before commands")

    @app.consumer(queue, prefetch=1, middleware=[watch])
    async def handle(body: bytes, message: Message) -> None:
        flow = body.decode()
        if flow == "park":
            raise Park("as it was told")
        if flow == "retry" and message.attempt == 1:
            raise RuntimeError("the first run fails")
        if flow == "requeue" and ledger.count("returned", str(message.id)) == 0:
            if ledger.count("run", str(message.id)) > 1:
                ledger.write("returned", str(message.id))
            raise Requeue(0.05)

    return app


def watch_acks(killer: Killer) -> None:
    """A handler that simply returns is acked past all checkpoints, for speed: its ack is watched where it is said."""
    ack = Delivery.ack

    def watched(delivery: Delivery, *, multiple: bool = False) -> None:
        is_target = delivery.properties.message_id == TARGET
        if is_target:
            killer.reach("before settle")
        ack(delivery, multiple=multiple)
        if is_target:
            asyncio.get_running_loop().call_later(ACKS_WRITTEN_S, killer.reach, "after ack written")

    mock.patch.object(Delivery, "ack", watched).start()


def leave_no_room() -> None:
    """A publisher that is always busy: a copy has to wait for its place."""
    mock.patch.object(Publisher, "publish_now", return_value=False).start()


async def run(url: str, declaration: Path, queue: str, folder: Path, cell: Cell | None) -> None:
    """Consumes until SIGTERM, or until it is killed as the cell says."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    killer = Killer("" if cell is None else cell.place)
    if cell is not None and cell.flow == "ack":
        watch_acks(killer)
    if cell is not None and not cell.has_room:
        leave_no_room()
    app = make_app(declaration, queue, Ledger(folder / "ledger"), killer)
    assert isinstance(app.source, Compiled)
    async with AppRunner(
        app.consumptions(app.source),
        lambda name: Client(url, name=name),
        options=AppRunOptions(checkpoint=killer.reach),
    ):
        await stopping.wait()


def consume(url: str, declaration: Path, queue: str, folder: Path, cell: Cell | None) -> None:
    """The whole of a worker process. What goes wrong is left in FOLDER/said."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(run(url, declaration, queue, folder, cell))
    except BaseException:
        (folder / "said").write_text(traceback.format_exc())
        raise
