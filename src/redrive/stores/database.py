"""The port to a database: transactions, and statements in them. Adapters are `sqlite` and `postgres`.

A transaction that is left by an error, also by a cancellation, has changed nothing. Drivers' errors come out as
`StoreUnavailable` when trying again may help, and as they are when the statement is at fault: a mistake of ours.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from redrive.stores.database_clock import Clock
from redrive.stores.schema.dialect import Dialect

Row: TypeAlias = tuple[Any, ...]
"""A row's values in the order of the statement's columns. Only to be taken apart: a driver's rows are no tuples."""


class ReadTransaction(Protocol):
    """A transaction that sees one state of the database throughout."""

    @property
    def dialect(self) -> Dialect:
        """How this database differs from the other."""

    async def rows(self, sql: str, *arguments: Any) -> list[Row]:
        """All rows of a query, or of a statement with RETURNING."""

    async def rows_within(self, seconds: float, sql: str, *arguments: Any) -> list[Row] | None:
        """All rows of a query, or None if that takes longer. Only in `look`: a transaction would be lost too."""

    async def row(self, sql: str, *arguments: Any) -> Row | None:
        """The first row, or None."""

    async def value(self, sql: str, *arguments: Any) -> Any:
        """The first column of the first row, or None."""


class WriteTransaction(ReadTransaction, Protocol):
    """A transaction that may change things; they are seen by others after its end, all at once."""

    async def run(self, sql: str, *arguments: Any) -> int:
        """A statement; the rows it touched."""

    async def many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """One statement for every row of arguments, in their order."""

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """New rows for a table, in the fastest way the database has. Names are ours, never from outside."""

    def defer(self, value: Any, write: "Deferred") -> None:
        """Gives `write` this value, with all others deferred to it, after everything else and just before the commit.

        For what every transaction needs a lock for that is held until its end: taken last, it is held for the commit
        alone, and nobody who holds it waits for another lock.
        """


Deferred: TypeAlias = Callable[[WriteTransaction, list[Any]], Awaitable[None]]


class DeferredWrites:
    """What a transaction has deferred, in its order."""

    def __init__(self) -> None:
        self._values: dict[Deferred, list[Any]] = {}

    def add(self, value: Any, write: Deferred) -> None:
        """One value more."""
        self._values.setdefault(write, []).append(value)

    async def run(self, tx: WriteTransaction) -> None:
        """Writes it all; afterwards there is nothing deferred."""
        values, self._values = self._values, {}
        for write, some in values.items():
            await write(tx, some)


class Database(Protocol):
    """A database that is open."""

    @property
    def dialect(self) -> Dialect:
        """Which kind it is."""

    @property
    def address(self) -> str:
        """Where it is, without a password."""

    @property
    def clock(self) -> Clock:
        """Its time, as this process knows it."""

    def read(self) -> AbstractAsyncContextManager[ReadTransaction]:
        """A transaction that only reads; it neither waits for writers nor makes them wait."""

    def autocommit(self) -> AbstractAsyncContextManager[ReadTransaction]:
        """Like `read`, but each statement sees a state of its own: for one that says all, two round trips less."""

    def write(self) -> AbstractAsyncContextManager[WriteTransaction]:
        """A transaction that writes; it is committed when the block ends, undone when the block raises."""

    async def migrate(self) -> int:
        """Brings the schema up to date, alone; the version it has now. Raises `StoreTooNew`."""

    async def close(self) -> None:
        """Ends it; transactions under way are undone."""
