"""Leases: the right to do what only one process may do at a time, across machines.

A lease ends by time, and a holder that was asleep then can't know. So every new holder gets a higher `fence`, and
whatever is done under a lease checks it in its own transaction (`check_lease`): a stale holder changes nothing. When a
lease ends the database's clock alone decides: an instance whose own is ahead would take what was just renewed. Rows
stay when a lease ends, because the fence must go on growing.
"""

from dataclasses import dataclass, replace

from redrive.stores.database import Database, ReadTransaction, WriteTransaction
from redrive.stores.errors import LeaseLost

_FIND = "SELECT owner, fence, until_ms FROM leases WHERE name = $1 FOR UPDATE"
_FIRST = "INSERT INTO leases (name, owner, fence, until_ms) VALUES ($1, '', 0, 0) ON CONFLICT (name) DO NOTHING"
_TAKE = """
UPDATE leases SET owner = $2, fence = fence + 1, until_ms = {now_ms} + CAST($3 AS BIGINT)
WHERE name = $1 AND (owner = $2 OR until_ms <= {now_ms}) RETURNING fence, until_ms
"""
_RENEW = """
UPDATE leases SET until_ms = {now_ms} + CAST($4 AS BIGINT)
WHERE name = $1 AND owner = $2 AND fence = $3 AND until_ms > 0 RETURNING until_ms
"""
_RELEASE = "UPDATE leases SET until_ms = 0 WHERE name = $1 AND owner = $2 AND fence = $3"
_HELD = "SELECT name, owner, fence, until_ms FROM leases WHERE until_ms > {now_ms} ORDER BY name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A right of `owner` until `until_ms`, by the database's clock. `fence` is higher than any earlier holder's."""

    name: str
    owner: str
    fence: int
    until_ms: int


class Leases:
    """Acquiring, renewing and releasing leases."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, name: str, owner: str, *, ttl_ms: int) -> Lease | None:
        """The lease if it is free, or already this owner's: then with a new fence, and the old one is no longer valid.
        None if somebody else has it."""
        async with self._database.write() as tx:
            await tx.run(_FIRST, name)
            await tx.row(_FIND, name)  # waits for a holder that is about to renew it
            row = await tx.row(_by_its_clock(tx, _TAKE), name, owner, ttl_ms)
            if row is None:
                return None
            fence, until_ms = row
            return Lease(name=name, owner=owner, fence=fence, until_ms=until_ms)

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Lease:
        """The lease for `ttl_ms` from now; also when it has run out, as long as nobody took it. Raises `LeaseLost`."""
        async with self._database.write() as tx:
            row = await tx.row(_by_its_clock(tx, _RENEW), lease.name, lease.owner, lease.fence, ttl_ms)
            if row is None:
                raise LeaseLost(lease.name, lease.owner)
        return replace(lease, until_ms=row[0])

    async def release(self, lease: Lease) -> None:
        """Ends it, unless somebody else has it already."""
        async with self._database.write() as tx:
            await tx.run(_RELEASE, lease.name, lease.owner, lease.fence)

    async def held(self) -> tuple[Lease, ...]:
        """The leases that have not run out."""
        async with self._database.read() as tx:
            rows = await tx.rows(_by_its_clock(tx, _HELD))
        return tuple(Lease(name=name, owner=owner, fence=fence, until_ms=until) for name, owner, fence, until in rows)


def _by_its_clock(tx: ReadTransaction, sql: str) -> str:
    return sql.replace("{now_ms}", tx.dialect.now_ms)


async def check_lease(tx: WriteTransaction, lease: Lease) -> None:
    """Raises `LeaseLost` unless the lease is still its holder's. Nobody can take it before the transaction ends.

    Time plays no part: a lease that ran out and that nobody took protects as before. After `release` it counts no more.
    """
    row = await tx.row(_FIND, lease.name)
    if row is None or (row[0], row[1]) != (lease.owner, lease.fence) or row[2] == 0:
        raise LeaseLost(lease.name, lease.owner)
