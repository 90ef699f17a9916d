"""How many handlers of a queue run at once, and which deliveries wait for a free slot, in the order of arrival."""

import asyncio
from collections import deque

_UNLIMITED = 1 << 60


class ConcurrencyLimit:
    """A slot is taken before a handler runs and released after it. A limit of None is as many as there are
    deliveries."""

    def __init__(self, limit: int | None) -> None:
        self.is_limited = limit is not None
        self._free = _UNLIMITED if limit is None else limit
        self._waiters: deque[asyncio.Future[bool]] = deque()

    @property
    def waiting(self) -> int:
        """How many deliveries wait for a slot."""
        return len(self._waiters)

    def try_take(self) -> bool:
        """Takes a slot if one is free and nobody waits for it."""
        if self._free <= 0 or self._waiters:
            return False
        self._free -= 1
        return True

    def take(self) -> None:
        """Takes a slot, free or not: for an exclusive run."""
        self._free -= 1

    async def wait(self) -> bool:
        """True: a slot was taken. False: something has changed, check again."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not waiter.cancelled() and waiter.result():
                self.release()
            raise

    def release(self) -> None:
        """A run has ended: its slot goes to the first that waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(True)
                return
        self._free += 1

    def put_back(self) -> None:
        """A slot could not be used, because nobody may begin now: it stays free until everybody is woken. Releasing it
        would pass it round among those who wait, without end."""
        self._free += 1

    def wake(self) -> None:
        """Everybody who waits checks again, and waits again if need be."""
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(False)
