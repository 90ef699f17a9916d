"""Who is at work in this process, and how one delivery gets it for itself.

A process that dies takes everything it has in hand with it, and the broker can't say whose fault it was. So a message
that may have killed its consumers before has its last run alone: nothing else is handled, no other such message is in
hand, and if the process dies now, it was this one.

What the crash cap n promises. A copy is run at most once: a death in its run marks it as redelivered, and it is
replaced by a copy that counts one more. From n - 1 on it runs alone, and only a death in a run alone can park it: at
once where the process is known to have ended by itself or to have stood still, after three where it was killed, after
six where nothing is known of it (`admission` has the weights, `run_records` the knowledge). So a message that always
kills is run N times, n to n + 5, and parked once, as long as no death falls between a copy's confirm and the ack of
what it replaces. One that does leaves both, as everywhere where a message is copied, and each goes on with a count of
its own: with p parked copies N to 1 + (N - 1) * p runs. Beside others that kill N may be less, down to one run alone:
their deaths bring it there as its own would. Who only was in hand when others died is never parked for it, however
often. A connection that is lost by a living process looks like a death to the others: it may cost a run.

It can't be exact. Copy and ack are two steps on two channels, and RabbitMQ has no transaction over both. A consumer
that gets the original again sees neither whether its copy was confirmed nor where that is now; the process that knew is
dead, and an id on both does not help whoever has only one in hand. To ack it on a guess could lose the message. What
can be done is to make the window small: a message that has killed before waits for the replacements of its own process
(`wait_replaced`). What is left are acks that the broker has read and not yet carried out, and deaths of other causes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

WAIT_S_FIRST, WAIT_S_MAX = 60.0, 960.0
"""How long the others may take to end; after that the run is put off, and next time they may take twice as long, up to
well below the broker's consumer timeout."""
_ARRIVING_S = 0.01
_LOOK_S = 0.005
_LOOKS_MAX = 1_000
_ACKS_TAKEN_S = 0.05
"""A busy quorum queue may keep acks back for a moment after they were read."""


class Member(Protocol):
    """Something that takes deliveries."""

    @property
    def at_work(self) -> int:
        """Deliveries that have begun and are not settled; not those that only wait until the broker takes a copy."""

    @property
    def can_step_aside(self) -> bool:
        """Whether what must not be in hand now can go to a wait queue; else consuming has to stop."""

    async def stop_consuming(self) -> None:
        """No new deliveries."""

    async def flush(self) -> None:
        """Until the broker has read what was settled so far."""

    async def start_consuming(self) -> None:
        """Deliveries again, unless something else holds it."""

    def wake(self) -> None:
        """Those who wait for their turn look again."""


class Solitude:
    """One of these for each process."""

    def __init__(self, *, wait_s_first: float = WAIT_S_FIRST) -> None:
        self.members: list[Member] = []
        self.is_wanted = False
        """Someone wants to be alone or is: nothing may begin."""
        self.replacing = 0
        """Deliveries whose copies are on their way."""
        self._wait_s_first = self._wait_s = wait_s_first
        self._starting: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[bool]:
        """Within it nothing runs but the delivery that asks, which is at work itself; False if the others did not end
        in time. Only one may want it at a time."""
        assert not self.is_wanted
        self.is_wanted = True
        # Not where it can be helped: a quorum queue takes back what is on its way to a consumer that is cancelled, and
        # marks it as redelivered, as if we had died (seen on 3.10, 4.0 and 4.3).
        stopped: list[Member] = []
        try:
            for one in self.members:
                one.wake()
            for one in self.members:
                if not one.can_step_aside:
                    stopped.append(one)
                    await one.stop_consuming()
            await asyncio.sleep(_ARRIVING_S)  # what came before the broker's last word reaches its handler
            yield await self._wait_others()
        finally:
            self.is_wanted = False
            for one in self.members:
                one.wake()
            # Not waited for: one whose queue has gone meanwhile must keep neither the others nor this one.
            for one in stopped:
                task = asyncio.create_task(one.start_consuming())
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)

    async def wait_replaced(self) -> None:
        """Until the originals of copies that were made here are acked, and the broker knows.

        A message that may kill waits for this: else its death would double everything that is just being replaced.
        """
        for _ in range(_LOOKS_MAX):
            if not self.replacing:
                break
            await asyncio.sleep(_LOOK_S)
        await self._flush()

    async def _flush(self) -> None:
        """What was settled must be with the broker: else it would come again, as if its consumer had died on it."""
        await asyncio.gather(*(one.flush() for one in self.members))
        await asyncio.sleep(_ACKS_TAKEN_S)

    async def _wait_others(self) -> bool:
        try:
            async with asyncio.timeout(self._wait_s):
                while sum(one.at_work for one in self.members) > 1:  # noqa: ASYNC110 - rare, and bounded
                    await asyncio.sleep(_LOOK_S)
                await self._flush()
        except TimeoutError:
            # Where handlers take longer than that, others have begun before it comes again: it would never run.
            self._wait_s = min(2 * self._wait_s, WAIT_S_MAX)
            return False
        self._wait_s = self._wait_s_first
        return True
