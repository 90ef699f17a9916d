"""The place where a worker waits: it says so through its pipe, and goes on when it is let go.

Between steps the parts of Redrive call `pause_at` themselves. Inside a transaction, and after a commit whose answer is
not to arrive, the database is wrapped: what is written is committed, or not, as ever.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any

from redrive.stores import Store, StoreUnavailable
from redrive.stores.database import Database, ReadTransaction, WriteTransaction
from redrive.stores.database_clock import Clock, ServerClock
from redrive.stores.database_urls import SqlitePlace, read_database_url
from redrive.stores.groups import read_group_key
from redrive.stores.postgres import connect_postgres
from redrive.stores.schema.dialect import Dialect
from redrive.stores.sqlite import SqliteDatabase

WRITES = {
    ("batches", "store"): "storing",
    ("batches", "close"): "owning",
    ("operations", "create_due"): "choosing",
    ("operations", "take"): "taking",
    ("operations", "record_and_take"): "exchanging",
    ("operations", "record"): "recording",
}
"""The store's methods whose transactions are windows."""
STEPS_AFTER = {("operations", "create_due"): "chosen"}
"""Checkpoints that no part calls by itself: the method has returned."""

_writing: ContextVar[str] = ContextVar("writing", default="")


class Gate:
    """Makes the worker wait at each of its places in turn, when that is reached for so many times."""

    def __init__(self, pipe: Any, places: Sequence[tuple[str, int]]) -> None:
        self._pipe = pipe
        self._places = list(places)
        self._seen: Counter[str] = Counter()

    async def pause_at(self, place: str) -> bool:
        """The checkpoint of the parts. Whether this was the place."""
        self._seen[place] += 1
        if not self._places or self._places[0] != (place, self._seen[place]):
            return False
        del self._places[0]
        self._pipe.send(place)
        await asyncio.to_thread(self._pipe.recv)
        return True


class GatedDatabase:
    """A database with a gate before the end of every write, and one after it."""

    def __init__(self, inner: Database, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate

    @property
    def dialect(self) -> Dialect:
        """As it is."""
        return self._inner.dialect

    @property
    def address(self) -> str:
        """As it is."""
        return self._inner.address

    @property
    def clock(self) -> Clock:
        """As it is."""
        return self._inner.clock

    def read(self) -> AbstractAsyncContextManager[ReadTransaction]:
        """As it is."""
        return self._inner.read()

    def autocommit(self) -> AbstractAsyncContextManager[ReadTransaction]:
        """As it is."""
        return self._inner.autocommit()

    async def migrate(self) -> int:
        """As it is."""
        return await self._inner.migrate()

    async def close(self) -> None:
        """As it is."""
        await self._inner.close()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[WriteTransaction]:
        """A transaction; its commit may be held up, and its answer lost."""
        async with self._inner.write() as tx:
            yield tx
            await self._gate.pause_at(f"inside {_writing.get()}")
        if await self._gate.pause_at(f"{_writing.get()} unanswered"):
            raise StoreUnavailable(self._inner.address, "the connection was lost", "the commit was not answered")


async def open_gated_store(url: str, gate: Gate, *, busy_timeout_ms: int) -> Store:
    """A store as `open_store` opens it, with gates in it, and less patience with a SQLite that is locked."""
    place = read_database_url(url)
    if isinstance(place, SqlitePlace):
        inner: Database = SqliteDatabase(place.path, place.address, busy_timeout_ms=busy_timeout_ms)
    else:
        inner = await connect_postgres(place.url, place.address, ServerClock())
    await inner.migrate()
    async with inner.autocommit() as tx:
        group_key = await read_group_key(tx)
    store = Store(GatedDatabase(inner, gate), group_key)
    for (room, method), writing in WRITES.items():
        part = getattr(store, room)
        setattr(part, method, _named(getattr(part, method), writing, gate, STEPS_AFTER.get((room, method))))
    return store


def _named(
    method: Callable[..., Awaitable[Any]], writing: str, gate: Gate, step: str | None
) -> Callable[..., Awaitable[Any]]:
    async def named(*arguments: Any, **options: Any) -> Any:
        # A batch is announced by storing nothing.
        is_announcing = writing == "storing" and not arguments[0] and not options["known"]
        token = _writing.set("announcing" if is_announcing else writing)
        try:
            answer = await method(*arguments, **options)
        finally:
            _writing.reset(token)
        if step is not None and answer is not None:
            await gate.pause_at(step)
        return answer

    return named
