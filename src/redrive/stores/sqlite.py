"""The SQLite adapter: one writer connection and a few readers, each in a thread of its own, so that the event loop
never waits for a disk.

WAL lets readers go on while somebody writes. `synchronous = FULL`: a commit is on the disk when it returns, because an
ack follows it. Writers of one process take turns at a lock of the event loop; writers of several processes at
SQLite's own, for as long as the busy timeout. A file that was removed or replaced takes no commit any more: SQLite
would go on writing to what nobody finds again.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from redrive.stores.database import Deferred, DeferredWrites, ReadTransaction, Row, WriteTransaction
from redrive.stores.database_clock import Clock, MachineClock
from redrive.stores.errors import StoreUnavailable
from redrive.stores.schema.dialect import SQLITE, Dialect, for_sqlite, insert_statement, sqlite_arguments
from redrive.stores.schema.migrations import migrate_sqlite
from redrive.stores.search.full_text import unpack_words

BUSY_TIMEOUT_MS = 10_000
READERS = 3
TURN_S_MAX = 60.0
"""How long a transaction waits for those of its own process."""
CHECKPOINT_PAGES = 8_000
"""Pages of the log (4 kB) after which it is folded into the file: a thousand letters write some two thousand of them,
many of them again and again."""
WRITER_CACHE_KB, READER_CACHE_KB = 32 * 1024, 64 * 1024
"""What each connection keeps of the file. Collecting gains nothing above this and loses below; a connection grows to it
and no further."""
OLDEST_SQLITE = (3, 35, 0)
"""RETURNING came with it."""

_STEPS_UNSEEN = 50
"""SQLite's full-text index looks up from its work once in so many steps."""
_VALUES_AT_ONCE = 1_600
"""Of one statement. With more, preparing it costs what it saves."""

_Result = TypeVar("_Result")

_HINTS = {
    sqlite3.SQLITE_BUSY: "another process writes for too long; try again, or use PostgreSQL for several writers",
    sqlite3.SQLITE_LOCKED: "another process writes for too long; try again, or use PostgreSQL for several writers",
    sqlite3.SQLITE_FULL: "make room on the disk; nothing was half done",
    sqlite3.SQLITE_IOERR: "check the disk; nothing was half done",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable, or name another database",
    sqlite3.SQLITE_CANTOPEN: "make its folder, or name another database",
    sqlite3.SQLITE_NOTADB: "name another file, this one is something else",
    sqlite3.SQLITE_CORRUPT: "restore a copy of the file, or export what can be read",
}


class SqliteDatabase:
    """A file of SQLite."""

    def __init__(self, path: str, address: str, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._path = os.path.abspath(path)
        self._address = address
        self._busy_timeout_ms = busy_timeout_ms
        self._clock = MachineClock()
        self._writer = _Connection(lambda: self._connect(WRITER_CACHE_KB), self._path, address)
        self._writing = asyncio.Lock()
        self._readers: asyncio.LifoQueue[_Connection] = asyncio.LifoQueue()
        self._all = [self._writer]
        for _ in range(READERS):
            reader = _Connection(lambda: self._connect(READER_CACHE_KB), self._path, address)
            self._all.append(reader)
            self._readers.put_nowait(reader)

    @property
    def dialect(self) -> Dialect:
        """SQLite."""
        return SQLITE

    @property
    def address(self) -> str:
        """The file."""
        return self._address

    @property
    def clock(self) -> Clock:
        """This machine's: the file is on it."""
        return self._clock

    @asynccontextmanager
    async def write(self) -> AsyncIterator[WriteTransaction]:
        """A transaction that holds SQLite's write lock from its beginning, so that it can't fail for it later."""
        await self._in_time(self._writing.acquire())
        try:
            async with self._writer.transaction("BEGIN IMMEDIATE"):
                writing = _Transaction(self._writer)
                yield writing
                await writing.endings.run(writing)
        finally:
            self._writing.release()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[ReadTransaction]:
        """A transaction on one state of the file."""
        reader = await self._in_time(self._readers.get())
        try:
            async with reader.transaction("BEGIN"):
                yield reader
        finally:
            self._readers.put_nowait(reader)

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[ReadTransaction]:
        """Statements without a transaction around them."""
        reader = await self._in_time(self._readers.get())
        try:
            async with reader.alone():
                yield reader
        finally:
            self._readers.put_nowait(reader)

    async def migrate(self) -> int:
        """Brings the schema up to date under SQLite's exclusive lock."""
        async with self._writing:
            return await self._writer.call(lambda connection: migrate_sqlite(connection, self._address))

    async def close(self) -> None:
        """Closes every connection; the last one folds the log into the file."""
        for connection in self._all:
            await connection.close()

    async def _in_time(self, turn: Coroutine[Any, Any, _Result]) -> _Result:
        try:
            async with asyncio.timeout(TURN_S_MAX):
                return await turn
        except TimeoutError:
            raise StoreUnavailable(
                self._address, "others in this process used it for too long", "try again, or ask for less at once"
            ) from None

    def _connect(self, cache_kb: int) -> sqlite3.Connection:
        """A new connection; runs in its thread."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnavailable(
                self._address,
                f"Python has SQLite {sqlite3.sqlite_version}",
                "use a Python with SQLite 3.35 or newer, or PostgreSQL",
            )
        _make_private(self._path)
        connection = sqlite3.connect(
            Path(self._path),
            timeout=self._busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            self._use_log(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA cache_size = -{cache_kb}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.create_function("unpacked", 1, unpack_words, deterministic=True)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Switches to WAL. Of processes that open a new file at the same moment one can be refused at once, whatever
        the busy timeout: SQLite does not wait for this. So we do."""
        until_s = time.monotonic() + self._busy_timeout_ms / 1000
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not is_busy or time.monotonic() > until_s:
                    raise
                time.sleep(0.01)


class _Connection:
    """One connection and the thread that alone uses it: calls run one after another."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: str, address: str) -> None:
        self._connect = connect
        self._path = path
        self._file: tuple[int, int] | None = None
        self._address = address
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redrive-sqlite")

    @property
    def dialect(self) -> Dialect:
        """SQLite."""
        return SQLITE

    @asynccontextmanager
    async def transaction(self, begin: str) -> AsyncIterator[None]:
        """Begins; commits at the end of the block, undoes it when the block raises."""
        ended = False
        try:
            await self.call(lambda connection: connection.execute(begin))
            yield
            # From here on nobody may interrupt: the commit is done or it failed, whether or not anybody still waits.
            ended = True
            await self._finish(_commit)
        finally:
            if not ended:
                self._interrupt()
                await self._finish(_undo)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nothing is begun, so nothing is to be ended but a statement that nobody waits for any more."""
        ended = False
        try:
            yield
            ended = True
        finally:
            if not ended:
                self._interrupt()

    async def rows(self, sql: str, *arguments: Any) -> list[Row]:
        """All rows."""
        text, values = for_sqlite(sql), sqlite_arguments(arguments)
        rows: list[Row] = await self.call(lambda connection: connection.execute(text, values).fetchall())
        return rows

    async def rows_within(self, seconds: float, sql: str, *arguments: Any) -> list[Row] | None:
        """All rows, unless it takes longer."""
        text, values = for_sqlite(sql), sqlite_arguments(arguments)
        return await self.call(lambda connection: _rows_within(connection, seconds, text, values))

    async def row(self, sql: str, *arguments: Any) -> Row | None:
        """The first row."""
        rows = await self.rows(sql, *arguments)
        return rows[0] if rows else None

    async def value(self, sql: str, *arguments: Any) -> Any:
        """The first value."""
        row = await self.row(sql, *arguments)
        return None if row is None else row[0]

    async def run(self, sql: str, *arguments: Any) -> int:
        """The rows touched."""
        text, values = for_sqlite(sql), sqlite_arguments(arguments)
        return await self.call(lambda connection: connection.execute(text, values).rowcount)

    async def many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """One statement for every row."""
        text = for_sqlite(sql)
        await self.call(lambda connection: connection.executemany(text, rows))

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Many rows with each statement: between two statements this thread needs Python's lock, and waits for it while
        the event loop's thread is at work."""
        await self.call(lambda connection: _insert(connection, table, tuple(columns), rows))

    async def call(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Runs something in the thread; connects first where there is no connection."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._with_connection, work)

    async def close(self) -> None:
        """Closes the connection in its thread, and ends the thread."""
        await self._finish(None)
        self._thread.shutdown(wait=False)

    def _with_connection(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        try:
            if self._connection is None:
                self._connection = self._connect()
                self._file = _file_at(self._path)
            return work(self._connection)
        except sqlite3.Error as error:
            raise _as_store_error(error, self._address) from error

    async def _finish(self, work: Callable[[sqlite3.Connection], None] | None) -> None:
        """Runs the end of a transaction. It is run to its end even if the caller is cancelled meanwhile; what is called
        later runs after it."""
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, self._end, work))

    def _end(self, work: Callable[[sqlite3.Connection], None] | None) -> None:
        if self._connection is None:
            return
        if work is None:
            self._connection.close()
            self._connection = None
            return
        if work is _commit and _file_at(self._path) != self._file:
            _undo(self._connection)
            raise StoreUnavailable(
                self._address, "its file was removed or replaced", "put it back and restart; nothing was half done"
            )
        try:
            work(self._connection)
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise _as_store_error(error, self._address) from error

    def _interrupt(self) -> None:
        """Stops a long statement whose caller is gone; harmless when none runs."""
        if self._connection is not None:
            self._connection.interrupt()


class _Transaction:
    """The writer's connection in one transaction, with what that has deferred."""

    def __init__(self, connection: _Connection) -> None:
        self.endings = DeferredWrites()
        self.dialect = connection.dialect
        self.rows = connection.rows
        self.rows_within = connection.rows_within
        self.row = connection.row
        self.value = connection.value
        self.run = connection.run
        self.many = connection.many
        self.insert = connection.insert

    def defer(self, value: Any, write: Deferred) -> None:
        """Written just before the commit."""
        self.endings.add(value, write)


def _make_private(path: str) -> None:
    """Makes the file, where there is none, for its owner alone: it will hold payloads. What SQLite puts beside it has
    the same mode; a file that is there keeps its own."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError:
        pass  # it is there, or can't be made: then SQLite says why


def _file_at(path: str) -> tuple[int, int] | None:
    """Which file a path names."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _rows_within(
    connection: sqlite3.Connection, seconds: float, text: str, values: tuple[Any, ...]
) -> list[Row] | None:
    until_s = time.monotonic() + seconds
    is_late = False

    def end() -> bool:
        nonlocal is_late
        is_late = time.monotonic() > until_s
        return is_late

    connection.set_progress_handler(end, _STEPS_UNSEEN)
    try:
        return connection.execute(text, values).fetchall()
    except sqlite3.OperationalError:
        # Somebody else may have interrupted it, or something be wrong with it.
        if is_late:
            return None
        raise
    finally:
        connection.set_progress_handler(None, 0)


def _commit(connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")


def _undo(connection: sqlite3.Connection) -> None:
    # SQLite may have undone it by itself: a full disk, an I/O error.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _as_store_error(error: sqlite3.Error, address: str) -> Exception:
    """What callers may try again, as `StoreUnavailable`; a mistake of ours as it is."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return error
    hint = _HINTS.get(code & 0xFF)
    if hint is None:
        return error
    return StoreUnavailable(address, str(error), hint)


def _insert(
    connection: sqlite3.Connection, table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    at_once = max(1, _VALUES_AT_ONCE // len(columns))
    whole = len(rows) - len(rows) % at_once
    text = insert_statement(table, columns, rows=at_once)
    for start in range(0, whole, at_once):
        connection.execute(text, tuple(chain.from_iterable(rows[start : start + at_once])))
    connection.executemany(insert_statement(table, columns), rows[whole:])
