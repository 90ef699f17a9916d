"""Who is at work in this process, and how one delivery gets it for itself.

A process that dies takes everything it has in hand with it, and the broker can't say whose fault it was. So a message
that may have killed its consumers before has its last run alone: nothing else is handled, no other such message is in
hand, and if the process dies now, it was this one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

WAIT_S_MAX = 60.0
"""How long the others may take to end; after that the run is put off."""
_ARRIVING_S = 0.01
_LOOK_S = 0.005


class Member(Protocol):
    """Something that takes deliveries."""

    @property
    def at_work(self) -> int:
        """Deliveries that have begun and are not settled."""

    async def stop_consuming(self) -> None:
        """No new deliveries."""

    async def start_consuming(self) -> None:
        """Deliveries again, unless something else holds it."""

    def wake(self) -> None:
        """Those who wait for their turn look again."""


class Solitude:
    """One of these for each process."""

    def __init__(self, *, wait_s_max: float = WAIT_S_MAX) -> None:
        self.members: list[Member] = []
        self.is_wanted = False
        """Someone wants to be alone or is: nothing may begin."""
        self._wait_s_max = wait_s_max

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[bool]:
        """Within it nothing runs but the delivery that asks, which is at work itself; False if the others did not end
        in time. Only one may want it at a time."""
        assert not self.is_wanted
        self.is_wanted = True
        try:
            for one in self.members:
                one.wake()
            for one in self.members:
                await one.stop_consuming()
            await asyncio.sleep(_ARRIVING_S)  # what came before the broker's last word reaches its handler
            yield await self._wait_others()
        finally:
            self.is_wanted = False
            for one in self.members:
                one.wake()
            for one in self.members:
                await one.start_consuming()

    async def _wait_others(self) -> bool:
        try:
            async with asyncio.timeout(self._wait_s_max):
                while sum(one.at_work for one in self.members) > 1:  # noqa: ASYNC110 - rare, and bounded
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            return False
        return True
