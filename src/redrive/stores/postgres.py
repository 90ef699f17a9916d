"""The PostgreSQL adapter: a pool of asyncpg's connections.

A connection that is gone is replaced by the pool when it is next asked for, so a server may be restarted under us:
calls under way raise `StoreUnavailable`, later ones succeed. A commit whose answer was lost is raised like any other
failure. `synchronous_commit` is left as the server has it, but for `off`: an ack follows a commit, and what a server
forgets after that is nowhere.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redrive.stores.database import Deferred, DeferredWrites, ReadTransaction, Row, WriteTransaction
from redrive.stores.database_clock import Clock, ServerClock
from redrive.stores.errors import InvalidDatabaseUrl, StoreUnavailable
from redrive.stores.schema.dialect import POSTGRESQL, Dialect
from redrive.stores.schema.migrations import migrate_postgresql

if TYPE_CHECKING:
    from asyncpg import Connection, Pool, Record
    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.transaction import Transaction

    _Connection: TypeAlias = PoolConnectionProxy[Record]

CONNECTIONS = 8
CONNECT_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_S = 120.0

_TIME = f"SELECT {POSTGRESQL.now_ms}"
_AGAIN = "try again when the server answers; nothing was half done"


class PostgresDatabase:
    """A database of PostgreSQL."""

    def __init__(self, pool: "Pool[Record]", address: str, clock: ServerClock, *, is_lax: bool = False) -> None:
        self._pool = pool
        self._address = address
        self._is_lax = is_lax
        self._clock = clock

    @property
    def dialect(self) -> Dialect:
        """PostgreSQL."""
        return POSTGRESQL

    @property
    def address(self) -> str:
        """The server and the database's name."""
        return self._address

    @property
    def clock(self) -> Clock:
        """The server's."""
        return self._clock

    @asynccontextmanager
    async def write(self) -> AsyncIterator[WriteTransaction]:
        """A transaction at READ COMMITTED: what it decides on, it locks."""
        async with self._transaction(is_reading=False) as connection:
            transaction = _Transaction(connection, self._address)
            if self._is_lax:
                await transaction.run("SET LOCAL synchronous_commit = on")
            yield transaction
            await transaction.endings.run(transaction)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[ReadTransaction]:
        """A read-only transaction on one state of the database."""
        async with self._transaction(is_reading=True) as connection:
            yield _Transaction(connection, self._address)

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[ReadTransaction]:
        """Statements without a transaction around them."""
        with _translate_errors(self._address):
            connection = await self._pool.acquire(timeout=CONNECT_TIMEOUT_S)
        try:
            await self._ask_time(connection)
            yield _Transaction(connection, self._address)
        finally:
            await self._pool.release(connection, timeout=CONNECT_TIMEOUT_S)

    async def migrate(self) -> int:
        """Brings the schema up to date under an advisory lock."""
        async with self._transaction(is_reading=False) as connection:
            with _translate_errors(self._address):
                return await migrate_postgresql(connection, self._address)

    async def close(self) -> None:
        """Ends the pool; a connection that does not end in time is cut."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def _transaction(self, *, is_reading: bool) -> AsyncIterator["_Connection"]:
        with _translate_errors(self._address):
            connection = await self._pool.acquire(timeout=CONNECT_TIMEOUT_S)
        try:
            await self._ask_time(connection)
            transaction = connection.transaction(
                isolation="repeatable_read" if is_reading else "read_committed", readonly=is_reading
            )
            with _translate_errors(self._address):
                await transaction.start()
            try:
                yield connection
            except BaseException:
                await self._undo(transaction)
                raise
            with _translate_errors(self._address):
                await transaction.commit()
        finally:
            await self._pool.release(connection, timeout=CONNECT_TIMEOUT_S)

    async def _ask_time(self, connection: "_Connection") -> None:
        """Asks for the server's time now and then, with a connection that is in use anyway."""
        if self._clock.is_to_be_asked:
            with _translate_errors(self._address):
                begun_ms = self._clock.begin()
                self._clock.learn(await connection.fetchval(_TIME), begun_ms)

    async def _undo(self, transaction: "Transaction") -> None:
        """Rolls back; a server that is gone has done so itself, and the first error is the one to raise."""
        try:
            with _translate_errors(self._address):
                await transaction.rollback()
        except StoreUnavailable:
            pass


class _Transaction:
    """Statements on one connection."""

    def __init__(self, connection: "_Connection", address: str) -> None:
        self._connection = connection
        self._address = address
        self.endings = DeferredWrites()

    @property
    def dialect(self) -> Dialect:
        """PostgreSQL."""
        return POSTGRESQL

    def defer(self, value: Any, write: Deferred) -> None:
        """Written just before the commit."""
        self.endings.add(value, write)

    async def rows(self, sql: str, *arguments: Any) -> list[Row]:
        """All rows."""
        with _translate_errors(self._address):
            return cast(list[Row], await self._connection.fetch(sql, *arguments))

    async def rows_within(self, seconds: float, sql: str, *arguments: Any) -> list[Row] | None:
        """All rows, unless it takes longer: then the server is told to stop."""
        with _translate_errors(self._address):
            try:
                return cast(list[Row], await self._connection.fetch(sql, *arguments, timeout=seconds))
            except TimeoutError:
                # The server can't stop everything at once. The caller, who measures the time, waits until it has.
                await self._connection.fetchval("SELECT 1")
                return None

    async def row(self, sql: str, *arguments: Any) -> Row | None:
        """The first row."""
        with _translate_errors(self._address):
            return cast(Row | None, await self._connection.fetchrow(sql, *arguments))

    async def value(self, sql: str, *arguments: Any) -> Any:
        """The first value."""
        with _translate_errors(self._address):
            return await self._connection.fetchval(sql, *arguments)

    async def run(self, sql: str, *arguments: Any) -> int:
        """The rows touched, as the server's command tag says: `UPDATE 5`."""
        with _translate_errors(self._address):
            tag = await self._connection.execute(sql, *arguments)
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """One prepared statement, its arguments sent in a pipeline."""
        with _translate_errors(self._address):
            await self._connection.executemany(sql, rows)

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """By COPY: the server plans and starts once, not for every row."""
        with _translate_errors(self._address):
            await self._connection.copy_records_to_table(table, records=rows, columns=columns)


async def connect_postgres(url: str, address: str, clock: ServerClock) -> PostgresDatabase:
    """Opens a pool. Raises `StoreUnavailable` if nobody answers, `InvalidDatabaseUrl` if the driver can't read it."""
    try:
        import asyncpg
    except ImportError:
        raise StoreUnavailable(
            address, "the PostgreSQL driver is not installed", "pip install 'redrive[postgres]'"
        ) from None
    # Its pool logs every connection that went. Without a logging setup that would go to stderr; our error says it once.
    logging.getLogger("asyncpg").addHandler(logging.NullHandler())
    try:
        with _translate_errors(address):
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=CONNECTIONS,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=STATEMENT_TIMEOUT_S,
                reset=_leave,
                server_settings={"application_name": "redrive"},
            )
            is_lax = await pool.fetchval("SHOW synchronous_commit") == "off"
    except (ValueError, asyncpg.ClientConfigurationError) as error:
        raise InvalidDatabaseUrl(f"{address}: {error}; check the database URL") from None
    return PostgresDatabase(pool, address, clock, is_lax=is_lax)


async def _leave(connection: "Connection[Record]") -> None:
    """Does nothing. No session state survives a transaction here, so the driver's own reset statements, a round trip
    after every transaction, are not needed."""


@contextmanager
def _translate_errors(address: str) -> Iterator[None]:
    """Raises what may be tried again as `StoreUnavailable`; a mistake of ours as it is."""
    import asyncpg

    gone = (
        OSError,
        TimeoutError,
        asyncpg.PostgresConnectionError,
        asyncpg.OperatorInterventionError,
        asyncpg.InternalClientError,
    )
    refused = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
    short = (asyncpg.InsufficientResourcesError, asyncpg.PostgresSystemError, asyncpg.ReadOnlySQLTransactionError)
    raced = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)
    try:
        yield
    except gone as error:
        raise StoreUnavailable(address, _sentence(error), _AGAIN) from error
    except refused as error:
        raise StoreUnavailable(address, _sentence(error), "check the user, the password and the name") from error
    except short as error:
        raise StoreUnavailable(address, _sentence(error), "make room on the server or let it write") from error
    except raced as error:
        raise StoreUnavailable(address, _sentence(error), "try again; nothing was half done") from error
    except asyncpg.InterfaceError as error:
        # The driver says so of connections that went between two calls; of wrong arguments it says DataError.
        if isinstance(error, asyncpg.DataError):
            raise
        raise StoreUnavailable(address, _sentence(error), _AGAIN) from error


def _sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else "it does not answer"
