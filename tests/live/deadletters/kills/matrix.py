"""Cells played on one broker and its databases: several at once, and those that need a server killed in waves."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

from rig.node import Node
from rig.postgres import Postgres

from tests.live.deadletters.kills.cells import Cell, Flow, Store, Victim
from tests.live.deadletters.kills.crashes import SharedCrash, crash_of_broker, crash_of_postgres
from tests.live.deadletters.kills.ledger import Account
from tests.live.deadletters.kills.scene import Place, play

AT_ONCE = 8
WAVE = 30
"""So many cells wait for one kill of a server."""


class House:
    """A broker and where databases come from. `node` and `postgres` may be None where nobody kills them."""

    def __init__(self, amqp_url: str, *, node: Node | None, postgres: Postgres | None, at_once: int = AT_ONCE) -> None:
        self._amqp_url = amqp_url
        self._node = node
        self._postgres = postgres
        self._places = asyncio.Semaphore(at_once)
        self._numbers = count(1)

    async def play(self, cells: Sequence[Cell]) -> list[Account]:
        """The accounts of all, in the order of the cells."""
        accounts: dict[Cell, Account] = {}
        alone = [cell for cell in cells if not _needs_server_killed(cell)]
        for account in await asyncio.gather(*(self._play(cell, None) for cell in alone)):
            accounts[account.cell] = account
        for wave in _waves(cells):
            crash = self._crash(wave)
            for account in await asyncio.gather(*(self._play(cell, crash) for cell in wave)):
                accounts[account.cell] = account
        return [accounts[cell] for cell in cells]

    async def _play(self, cell: Cell, crash: SharedCrash | None) -> Account:
        name = f"k{next(self._numbers)}"
        if crash is not None:
            # All must stand in their windows at the same time.
            return await self._play_in(cell, name, crash)
        async with self._places:
            return await self._play_in(cell, name, None)

    async def _play_in(self, cell: Cell, name: str, crash: SharedCrash | None) -> Account:
        async with self._database(cell.store, name) as url:
            place = Place(amqp_url=self._amqp_url, database_url=url, name=name)
            party = None if crash is None else crash.party()
            try:
                return await play(cell, place, crash=party)
            except Exception as error:  # noqa: BLE001 - one cell that fails must not take the others with it
                failed = Account(cell=cell, published=0)
                failed.notes.append(f"it could not be played: {type(error).__name__}: {error}")
                return failed
            finally:
                if party is not None:
                    party.leave()

    @asynccontextmanager
    async def _database(self, store: Store, name: str) -> AsyncIterator[str]:
        if store == "sqlite":
            with _folder() as folder:
                yield f"sqlite:///{folder}/letters.db"
            return
        assert self._postgres is not None
        database = await asyncio.to_thread(self._postgres.create_database, name)
        try:
            yield self._postgres.url(database)
        finally:
            if self._postgres.is_running:
                await asyncio.to_thread(self._postgres.drop_database, database)

    def _crash(self, wave: Sequence[Cell]) -> SharedCrash:
        if wave[0].kills_broker:
            assert self._node is not None
            return crash_of_broker(self._node, len(wave), is_late=wave[0].flow is Flow.COLLECT_TWINS)
        assert self._postgres is not None
        return crash_of_postgres(self._postgres, len(wave))


def _needs_server_killed(cell: Cell) -> bool:
    return cell.kills_broker or (cell.victim is Victim.DATABASE and cell.store == "postgresql")


def _waves(cells: Sequence[Cell]) -> Iterator[Sequence[Cell]]:
    """Cells that can share one kill."""
    kinds: dict[tuple[bool, bool], list[Cell]] = {}
    for cell in cells:
        if _needs_server_killed(cell):
            kinds.setdefault((cell.kills_broker, cell.flow is Flow.COLLECT_TWINS), []).append(cell)
    for chosen in kinds.values():
        for start in range(0, len(chosen), WAVE):
            yield chosen[start : start + WAVE]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="redrive-kill-") as folder:
        yield Path(folder)
