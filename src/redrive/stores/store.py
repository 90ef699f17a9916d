"""A store: one open database, and the parts that read and write it."""

import asyncio
import os
import stat
from types import TracebackType
from typing import Self

from redrive.core import NULL_OBSERVER, Observer
from redrive.stores.audit import Audit, adopt_older
from redrive.stores.database import Database
from redrive.stores.database_clock import OFF_MS, ServerClock
from redrive.stores.database_urls import SqlitePlace, read_database_url
from redrive.stores.errors import StoreUnavailable
from redrive.stores.groups import Groups, read_group_key
from redrive.stores.idempotent_responses import IdempotentResponses
from redrive.stores.leases import Leases
from redrive.stores.letters.letters import Letters
from redrive.stores.letters.stored_batches import Batches
from redrive.stores.operations.operations import Operations
from redrive.stores.postgres import connect_postgres
from redrive.stores.redactions import Redactions
from redrive.stores.retry_rules import Rules
from redrive.stores.schema.dialect import DatabaseKind
from redrive.stores.sqlite import SqliteDatabase
from redrive.stores.statistics import Statistics
from redrive.stores.tokens import Tokens, adopt_names

_IS_ADOPTED = "SELECT is_adopted FROM audit_head WHERE id = 1"


class Store:
    """Dead letters and all that belongs to them. Made by `open_store`; its parts are its attributes."""

    def __init__(self, database: Database, group_key: bytes) -> None:
        self._database = database
        self.group_key = group_key
        """The secret that group ids are made with: the same for all instances that share the database."""
        self.leases = Leases(database)
        self.batches = Batches(database)
        self.operations = Operations(database)
        self.rules = Rules(database)
        self.letters = Letters(database)
        self.groups = Groups(database)
        self.stats = Statistics(database)
        self.audit = Audit(database)
        self.tokens = Tokens(database)
        self.redactions = Redactions(database)
        self.answers = IdempotentResponses(database)

    @property
    def kind(self) -> DatabaseKind:
        """`sqlite` or `postgresql`."""
        return self._database.dialect.kind

    @property
    def address(self) -> str:
        """Where it is, without a password."""
        return self._database.address

    def clock_ms(self) -> int:
        """The database's time, in milliseconds since 1970: by it everything is decided that several instances share."""
        return self._database.clock.now_ms()

    @property
    def clock_off_ms(self) -> int:
        """How far this machine's clock is ahead of the database's; negative where it is behind."""
        return self._database.clock.off_ms

    async def close(self) -> None:
        """Ends it; transactions under way are undone."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def open_store(url: str, observer: Observer = NULL_OBSERVER, *, creates: bool = True) -> Store:
    """Opens the store at a URL, and makes or updates its tables, alone. Without `creates` a file must be there:
    somebody who wants to see what is kept and gets a new, empty store would think that nothing had failed.

    Raises `InvalidDatabaseUrl`, `StoreUnavailable`, `StoreTooNew`.
    """
    database = await _connect(url, observer, creates=creates)
    try:
        version = await database.migrate()
        await _adopt(database)
        group_key = await _group_key_of(database)
    except BaseException:
        await database.close()
        raise
    observer.note("store.opened", address=database.address, kind=database.dialect.kind, version=version)
    return Store(database, group_key)


async def _group_key_of(database: Database) -> bytes:
    async with database.autocommit() as tx:
        return await read_group_key(tx)


async def _adopt(database: Database) -> None:
    """What the schema's steps can't do in SQL, once for each store: the chain over older entries of the audit, and the
    names of older tokens."""
    async with database.autocommit() as looking:
        if await looking.value(_IS_ADOPTED):
            return
    async with database.write() as tx:
        await adopt_names(tx)
        await adopt_older(tx)


def exposed_mode(url: str) -> str | None:
    """The mode of a SQLite file that others than its owner may read or write, like `0644`; None where all is well, or
    it is no file. Raises `InvalidDatabaseUrl`."""
    place = read_database_url(url)
    if not isinstance(place, SqlitePlace) or os.name != "posix":
        return None
    try:
        mode = stat.S_IMODE(os.stat(place.path).st_mode)
    except OSError:
        return None
    return f"{mode:04o}" if mode & 0o077 else None


async def _connect(url: str, observer: Observer, *, creates: bool) -> Database:
    place = read_database_url(url)
    if isinstance(place, SqlitePlace):
        if not creates and not await asyncio.to_thread(os.path.exists, place.path):
            hint = "say where it is with --database (redrive serve, collect and token create make a new one)"
            raise StoreUnavailable(place.address, "there is no such database", hint)
        return SqliteDatabase(place.path, place.address)

    def report_clock(off_ms: int) -> None:
        event = "store.clock_off" if abs(off_ms) >= OFF_MS else "store.clock_right"
        observer.note(event, address=place.address, off_ms=off_ms)

    return await connect_postgres(place.url, place.address, ServerClock(report=report_clock))
