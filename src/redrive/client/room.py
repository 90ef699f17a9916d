"""Publishers that wait their turn: first come, first served, and no turn is ever lost.

Room is what the window and the socket leave; it is counted by whoever made the queue. A waiter that is woken has been
promised a place, so that nobody who comes later takes it before the waiter's task runs.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class RoomQueue:
    """`release` whenever there may be room: it wakes as many as there is room for and does no harm otherwise."""

    __slots__ = ("_room", "_waiters", "promised", "waiting")

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.waiting = 0
        """How many have not had their turn yet. Whoever comes while there are any must wait too."""
        self.promised = 0
        """How many of them have been woken."""

    async def wait(self, *, again: bool = False) -> None:
        """Until it is our turn. With `again`, because the promise could not be kept: before all others."""
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
                self.release()  # our turn had come, and someone else can use it
            raise
        self.waiting -= 1
        self.promised -= 1

    def release(self) -> None:
        """Wakes as many as there is room for."""
        room = self._room() - self.promised
        while room > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self.promised += 1
                room -= 1
