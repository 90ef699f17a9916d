"""A consumer that kills itself in a given place.

It writes `run ID` when a handler begins and `done ID` when it ends well into FOLDER/ledger; what was written survives
SIGKILL. The kill happens once, while the message `target` is in hand.
"""

import asyncio
import os
import signal
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from redrive.client import Client
from redrive.core import Park, Requeue, Returned
from redrive.runtime import App, Message, Runner, RunOptions
from redrive.topology import Compiled, compile_declaration, read_declaration


class Killer:
    """Ends the process in its place, without a word."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.in_hand = ""

    def reach(self, place: str) -> None:
        """The runtime's checkpoint."""
        if place == self._place and self.in_hand == "target":
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

    async def watch(message: Message, proceed: Callable[[], Awaitable[Any]]) -> Returned:
        name = str(message.id)
        killer.in_hand = name
        ledger.write("run", name)
        try:
            await proceed()
            ledger.write("done", name)
            return Returned()  # said aloud, it goes the way of all outcomes, past every checkpoint
        finally:
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


async def run(url: str, declaration: Path, queue: str, folder: Path, place: str) -> None:
    """Consumes until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    killer = Killer(place)
    app = make_app(declaration, queue, Ledger(folder / "ledger"), killer)
    assert isinstance(app.source, Compiled)
    async with Runner(
        app.consumptions(app.source),
        lambda name: Client(url, name=name),
        options=RunOptions(checkpoint=killer.reach),
    ):
        await stopping.wait()


def consume(url: str, declaration: Path, queue: str, folder: Path, place: str) -> None:
    """The whole of a worker process. What goes wrong is left in FOLDER/said."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(run(url, declaration, queue, folder, place))
    except BaseException:
        (folder / "said").write_text(traceback.format_exc())
        raise
