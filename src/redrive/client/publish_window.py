"""The publish window: calls of `publish` that wait until another message may be in flight, first come, first served.

The owner counts the free slots: what the window's size, the socket and the broker's alarms leave. A waiter that is
woken has been promised a slot, so that no later caller takes it before the waiter's task runs.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class PublishWindow:
    """Call `release` whenever slots may have become free: it wakes one waiter for each, and none otherwise."""

    __slots__ = ("_free_slots", "_waiters", "promised", "waiting")

    def __init__(self, free_slots: Callable[[], int]) -> None:
        self._free_slots = free_slots
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.waiting = 0
        """How many wait for a slot, the woken ones included. While there are any, a new caller must wait too."""
        self.promised = 0
        """How many of them have been woken and have not run yet."""

    async def wait(self, *, again: bool = False) -> None:
        """Waits for a slot. With `again`, before all others: the slot promised to this caller was gone when it ran."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if again:
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)
        self.waiting += 1
        self.release()
        try:
            await waiter
        except asyncio.CancelledError:
            self.waiting -= 1
            if waiter.done() and not waiter.cancelled():
                self.promised -= 1
                self.release()  # another waiter can use the slot
            raise
        self.waiting -= 1
        self.promised -= 1

    def release(self) -> None:
        """Wakes as many waiters as there are free slots."""
        free = self._free_slots() - self.promised
        while free > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self.promised += 1
                free -= 1
