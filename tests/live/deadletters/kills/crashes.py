"""What is killed besides workers, and how it comes back: a broker, a PostgreSQL, a SQLite file that is locked.

A server is killed once for many cells: when each of them waits in its window.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from rig.errors import RigError
from rig.node import Node
from rig.postgres import Postgres

WITHOUT_S = 0.5
"""How long workers have to do without what was killed before it is started again."""
ON_DISK_S = 3.0
"""A classic queue has written an ack to its disk after so long (measured: after 1 s)."""
BUSY_TIMEOUT_MS = 250
"""SQLite's patience in the workers."""
LOCKED_S = 1.0
"""How long a SQLite file is locked: longer than that patience."""


class SharedCrash:
    """Strikes once, when all `parties` have come or left; then all go on."""

    def __init__(
        self,
        parties: int,
        strike: Callable[[], Awaitable[None]],
        mend: Callable[[], Awaitable[None]],
        *,
        delay_s: float = 0.0,
    ) -> None:
        self._delay_s = delay_s
        self._missing = parties
        self._unmet = parties
        self._met = asyncio.Event()
        self._strike = strike
        self._mend = mend
        self._waiting: list[Callable[[], None]] = []
        self._mended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._striking: asyncio.Task[None] | None = None

    def party(self) -> "Party":
        """One of those it waits for."""
        return Party(self)

    async def meet(self) -> None:
        """For a party."""
        self.one_less_to_meet()
        await self._met.wait()

    def one_less_to_meet(self) -> None:
        """For a party."""
        self._unmet -= 1
        if self._unmet == 0:
            self._met.set()

    async def arrive(self, go_on: Callable[[], None]) -> None:
        """For a party."""
        self._waiting.append(go_on)
        self.one_less()
        await asyncio.shield(self._mended)

    def one_less(self) -> None:
        """For a party."""
        self._missing -= 1
        if self._missing == 0 and self._waiting:
            self._striking = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await asyncio.sleep(self._delay_s)
            await self._strike()
            for go_on in self._waiting:
                go_on()
            await asyncio.sleep(WITHOUT_S)
            await self._mend()
            self._mended.set_result(None)
        except RigError as error:
            self._mended.set_exception(error)


class Party:
    """A cell that waits for a crash, or does not come to it."""

    def __init__(self, crash: SharedCrash) -> None:
        self._crash = crash
        self._has_met = False
        self._has_arrived = False

    async def meet(self) -> None:
        """Waits until all are about to begin."""
        self._has_met = True
        await self._crash.meet()

    async def arrive(self, go_on: Callable[[], None]) -> None:
        """Waits for the others and the crash; `go_on` is called while what was killed is away. Returns when it is
        back."""
        self._has_arrived = True
        await self._crash.arrive(go_on)

    def leave(self) -> None:
        """It will not come any more; the others need not wait."""
        if not self._has_met:
            self._has_met = True
            self._crash.one_less_to_meet()
        if not self._has_arrived:
            self._has_arrived = True
            self._crash.one_less()


def crash_of_broker(node: Node, parties: int, *, is_late: bool) -> SharedCrash:
    """SIGKILL of the node; then it is started with its data. `is_late`: when all that it received is on its disk."""
    delay_s = ON_DISK_S if is_late else 0.0
    return SharedCrash(
        parties, lambda: asyncio.to_thread(node.kill), lambda: asyncio.to_thread(node.start), delay_s=delay_s
    )


def crash_of_postgres(server: Postgres, parties: int) -> SharedCrash:
    """SIGKILL of the postmaster; then it is started and recovers from its log."""
    return SharedCrash(parties, lambda: asyncio.to_thread(server.kill), lambda: asyncio.to_thread(server.start))


@asynccontextmanager
async def locked(file: Path) -> AsyncIterator[None]:
    """A SQLite file that nobody can write to. We are another process than its users."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=30, check_same_thread=False)
    try:
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()
