"""A lease held while a process works: acquired, renewed in the background, released at the end.

Two processes that hold one lease at the same time would send dead letters twice. The database refuses the writes of the
one whose lease was taken over (its fence is old). This module only notices in time that the lease was taken over.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from redrive.client import ReconnectBackoff
from redrive.core import Observer
from redrive.stores import Lease, LeaseLost, Store, StoreError, StoreUnavailable

_Result = TypeVar("_Result")
_owner_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """A process that holds leases. `owner` names it among all processes that share the store.

    A lease is free `ttl_s` after its holder's death. `patience_s` is how long a call to the store is repeated while the
    database is away.
    """

    store: Store
    owner: str
    clock_ms: Callable[[], int]
    observer: Observer
    ttl_s: float = 60.0
    patience_s: float = 60.0

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator["HeldLease | None"]:
        """Holds the lease while the block runs; None if another owner has it. Raises StoreUnavailable."""
        ttl_ms = round(self.ttl_s * 1000)
        # An owner may acquire its own lease again, so two tasks of one process must not have the same name.
        owner = f"{self.owner}/{next(_owner_numbers)}"
        until_ms = self.clock_ms() + ttl_ms
        lease = await self.store.leases.acquire(name, owner, ttl_ms=ttl_ms)
        if lease is None:
            yield None
            return
        held = HeldLease(self, lease, until_ms=until_ms)
        renewing = asyncio.create_task(self._keep_renewing(held), name=f"redrive lease {name}")
        try:
            yield held
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            if not held.lost.is_set():
                await self._release(held.lease)

    async def _keep_renewing(self, held: "HeldLease") -> None:
        pause_s = self.ttl_s / 3
        while True:
            await asyncio.sleep(pause_s)
            try:
                await held.renew()
                pause_s = self.ttl_s / 3
            except LeaseLost:
                return
            except StoreUnavailable as error:
                # It may have run out when the database is back; then the renewal, or a write, says whether it is lost.
                pause_s = max(self.ttl_s / 30, 0.01)
                self.observer.note("deadletters.store_unavailable", reason=str(error))

    async def _release(self, lease: Lease) -> None:
        """Lets others have it at once. If that fails, they have it when it runs out."""
        try:
            await self.store.leases.release(lease)
        except StoreError as error:
            self.observer.note("deadletters.lease_not_released", lease=lease.name, reason=str(error))


class HeldLease:
    """A lease that is being renewed. `lost` is set once another owner has it."""

    def __init__(self, holder: LeaseHolder, lease: Lease, *, until_ms: int) -> None:
        self.lease = lease
        self.lost = asyncio.Event()
        self._holder = holder
        # By this process's clock, counted from before the request was sent: two clocks are never compared.
        self._until_ms = until_ms
        self._clock_ms = holder.clock_ms

    async def renew(self) -> None:
        """Holds it for its whole time from now on. Raises LeaseLost, StoreUnavailable."""
        holder = self._holder
        ttl_ms = round(holder.ttl_s * 1000)
        try:
            until_ms = self._clock_ms() + ttl_ms
            self.lease = await holder.store.leases.renew(self.lease, ttl_ms=ttl_ms)
            self._until_ms = until_ms
        except LeaseLost as error:
            self.lost.set()
            holder.observer.note("deadletters.lease_lost", lease=self.lease.name, reason=str(error))
            raise

    async def check_still_held(self) -> None:
        """Called before what can't be undone: a process that was suspended for longer than its lease finds out here.

        Raises LeaseLost, StoreUnavailable.
        """
        self.require()
        if self._clock_ms() >= self._until_ms:
            await self.retry_while_unavailable(self.renew)

    async def retry_while_unavailable(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """Calls the store, again and again while the database is away, for the holder's `patience_s`.

        Raises what the store raises, LeaseLost and StoreUnavailable among it.
        """
        holder = self._holder
        loop = asyncio.get_running_loop()
        backoff = ReconnectBackoff(first_s=0.05, longest_s=5.0)
        until_s = loop.time() + holder.patience_s
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                if loop.time() >= until_s:
                    raise
                holder.observer.note("deadletters.store_unavailable", reason=str(error))
                self.require()
                await asyncio.sleep(backoff.next_s())

    def require(self) -> None:
        """Raises LeaseLost if it is known to be lost."""
        if self.lost.is_set():
            raise LeaseLost(self.lease.name, self.lease.owner)
