"""Whose turn it is: how many handlers of a queue may run at once, and who waits, in the order of arrival."""

import asyncio
from collections import deque

_UNLIMITED = 1 << 60


class Turns:
    """A turn is taken before a handler runs and passed on after it; None: as many as there are deliveries."""

    def __init__(self, limit: int | None) -> None:
        self.is_limited = limit is not None
        self._free = _UNLIMITED if limit is None else limit
        self._waiters: deque[asyncio.Future[bool]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def try_take(self) -> bool:
        """Takes a turn if there is one and nobody waits for it."""
        if self._free <= 0 or self._waiters:
            return False
        self._free -= 1
        return True

    def take(self) -> None:
        """Takes a turn in any case: for what runs alone."""
        self._free -= 1

    async def wait(self) -> bool:
        """True: a turn was taken. False: something has changed, look again."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not waiter.cancelled() and waiter.result():
                self.pass_on()
            raise

    def pass_on(self) -> None:
        """A turn is over: it is the next one's."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(True)
                return
        self._free += 1

    def put_back(self) -> None:
        """A turn could not be used, because nobody may begin now: it lies there until everybody is woken. Passing it
        on would send it round among those who wait, without end."""
        self._free += 1

    def wake(self) -> None:
        """Everybody who waits looks again, and waits again if need be."""
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(False)
