"""A lease held while somebody works: taken, renewed in the background, given back at the end.

Two that hold the same lease at once would send twice. The database refuses the writes of the one whose lease was taken
over (its fence is old); here is only said in time that this has happened.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

from redrive.client import Backoff
from redrive.core import Observer
from redrive.stores import Lease, LeaseLost, Store, StoreError, StoreUnavailable

_Result = TypeVar("_Result")
_turns = count(1)


class HeldLease:
    """A lease that is being renewed. `lost` is set once somebody else has it."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        *,
        until_ms: int,
        ttl_ms: int,
        patience_s: float,
        clock_ms: Callable[[], int],
        observer: Observer,
    ) -> None:
        self.lease = lease
        self.lost = asyncio.Event()
        self._store = store
        # By this process's clock, counted from before the question was sent: two clocks are never compared.
        self._until_ms = until_ms
        self._ttl_ms = ttl_ms
        self._patience_s = patience_s
        self._clock_ms = clock_ms
        self._observer = observer

    async def renew(self) -> None:
        """Holds it for its whole time from now on. Raises LeaseLost, StoreUnavailable."""
        try:
            until_ms = self._clock_ms() + self._ttl_ms
            self.lease = await self._store.leases.renew(self.lease, ttl_ms=self._ttl_ms)
            self._until_ms = until_ms
        except LeaseLost as error:
            self.lost.set()
            self._observer.note("deadletters.lease_lost", lease=self.lease.name, reason=str(error))
            raise

    async def assure(self) -> None:
        """Before something that can't be undone: a process that slept over its lease finds out here, and not after.

        Raises LeaseLost, StoreUnavailable.
        """
        self.require()
        if self._clock_ms() >= self._until_ms:
            await self.persist(self.renew)

    async def persist(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """The store's answer, as soon as it gives one: repeated while the database is away, for `patience_s`.

        Raises what the store raises, LeaseLost and StoreUnavailable among it.
        """
        loop = asyncio.get_running_loop()
        backoff = Backoff(first_s=0.05, longest_s=5.0)
        until_s = loop.time() + self._patience_s
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                if loop.time() >= until_s:
                    raise
                self._observer.note("deadletters.store_unavailable", reason=str(error))
                self.require()
                await asyncio.sleep(backoff.next_s())

    def require(self) -> None:
        """Raises LeaseLost if it is known to be lost."""
        if self.lost.is_set():
            raise LeaseLost(self.lease.name, self.lease.owner)


@asynccontextmanager
async def hold_lease(
    store: Store,
    name: str,
    owner: str,
    *,
    ttl_s: float,
    patience_s: float,
    clock_ms: Callable[[], int],
    observer: Observer,
) -> AsyncIterator[HeldLease | None]:
    """Holds the lease for as long as the block runs; None if somebody else has it. Raises StoreUnavailable."""
    ttl_ms = round(ttl_s * 1000)
    # An owner may take its own lease again, so two that work in one process must not have one name.
    owner = f"{owner}/{next(_turns)}"
    until_ms = clock_ms() + ttl_ms
    lease = await store.leases.acquire(name, owner, ttl_ms=ttl_ms)
    if lease is None:
        yield None
        return
    held = HeldLease(
        store, lease, until_ms=until_ms, ttl_ms=ttl_ms, patience_s=patience_s, clock_ms=clock_ms, observer=observer
    )
    renewing = asyncio.create_task(_keep(held, ttl_s, observer), name=f"redrive lease {name}")
    try:
        yield held
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        if not held.lost.is_set():
            await _release(store, held.lease, observer)


async def _keep(held: HeldLease, ttl_s: float, observer: Observer) -> None:
    pause_s = ttl_s / 3
    while True:
        await asyncio.sleep(pause_s)
        try:
            await held.renew()
            pause_s = ttl_s / 3
        except LeaseLost:
            return
        except StoreUnavailable as error:
            # It may have run out when the database is back; then the renewal, or a write, says whether it is lost.
            pause_s = max(ttl_s / 30, 0.01)
            observer.note("deadletters.store_unavailable", reason=str(error))


async def _release(store: Store, lease: Lease, observer: Observer) -> None:
    """Lets others have it at once. If that can't be, they have it when it runs out."""
    try:
        await store.leases.release(lease)
    except StoreError as error:
        observer.note("deadletters.lease_not_released", lease=lease.name, reason=str(error))
