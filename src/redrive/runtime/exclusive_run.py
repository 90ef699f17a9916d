"""Exclusive runs: one delivery is handled while no other handler of the process runs.

A process that crashes takes all its unsettled deliveries with it, and the broker can't say which of them was at fault.
So a message that may have crashed its consumers before gets its last run exclusively: nothing else is handled, no other
such message is unsettled here, and if the process crashes now, it was this one.

What the crash limit n (`crashes_max`) promises. A copy is run at most once: a crash during its run marks it as
redelivered, and it is replaced by a copy that counts one more. From n - 1 on it runs exclusively, and only a crash
during an exclusive run can park it: at once where the process is known to have ended by itself or to have blocked its
event loop, after three where it was killed, after six where nothing is known of it (`admission` has the weights,
`run_records` the knowledge). So a message that always crashes its consumer is run N times, n to n + 5, and parked once,
as long as no crash falls between a copy's confirm and the ack of the original. One that does leaves both, as wherever a
message is copied, and each goes on with a count of its own: with p parked copies N to 1 + (N - 1) * p runs. Beside
other messages that crash consumers N may be less, down to one exclusive run: their crashes count for it like its own. A
message that was only unsettled when others crashed the process is never parked for it, however often. A connection that
is lost by a living process looks like a crash to the others: it may cost a run.

It can't be exact. Copy and ack are two steps on two channels, and RabbitMQ has no transaction over both. A consumer
that gets the original again sees neither whether its copy was confirmed nor where that is now; the process that knew is
dead, and an id on both does not help a consumer that has only one of them. Acking it on a guess could lose the message.
What can be done is to make the window small: a message that has crashed a consumer waits for the replacements of its
own process (`wait_replaced`). What remains are acks that the broker has read and not yet carried out, and crashes of
other causes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

WAIT_S_FIRST, WAIT_S_MAX = 60.0, 960.0
"""How long the other handlers may take to end. After that the run is put off, and next time they may take twice as
long, up to well below the broker's consumer timeout."""
_ARRIVING_S = 0.01
_LOOK_S = 0.005
_LOOKS_MAX = 1_000
_ACKS_TAKEN_S = 0.05
"""A busy quorum queue may keep acks back for a moment after they were read."""


class ConsumedQueue(Protocol):
    """A consumer of a queue that takes part in exclusive runs."""

    @property
    def at_work(self) -> int:
        """Deliveries whose handlers have begun and that are not settled; not those that only wait for a copy's
        confirm."""

    @property
    def has_wait_queue(self) -> bool:
        """Whether deliveries that must not run now can go to a wait queue; else consuming has to stop."""

    async def stop_consuming(self) -> None:
        """No new deliveries."""

    async def flush(self) -> None:
        """Waits until the broker has read what was settled so far."""

    async def start_consuming(self) -> None:
        """New deliveries again, unless something else stops them."""

    def wake(self) -> None:
        """Deliveries that wait for a slot check again."""


class ExclusiveRuns:
    """The exclusive runs of one process; at most one at a time."""

    def __init__(self, *, wait_s_first: float = WAIT_S_FIRST) -> None:
        self.queues: list[ConsumedQueue] = []
        self.is_wanted = False
        """A delivery has an exclusive run or waits for it: no handler may begin."""
        self.replacing = 0
        """Deliveries that are being replaced by copies."""
        self._wait_s_first = self._wait_s = wait_s_first
        self._starting: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[bool]:
        """Inside, no handler runs but the caller's, whose delivery counts as at work itself. Yields False if the others
        did not end in time. Only one caller at a time."""
        assert not self.is_wanted
        self.is_wanted = True
        # Consuming stops only where it must: a quorum queue takes back what is on its way to a cancelled consumer, and
        # marks it as redelivered, as if we had crashed (seen on 3.10, 4.0 and 4.3).
        stopped: list[ConsumedQueue] = []
        try:
            for one in self.queues:
                one.wake()
            for one in self.queues:
                if not one.has_wait_queue:
                    stopped.append(one)
                    await one.stop_consuming()
            await asyncio.sleep(_ARRIVING_S)  # deliveries that are already here reach their handlers
            yield await self._wait_others()
        finally:
            self.is_wanted = False
            for one in self.queues:
                one.wake()
            # Not awaited: a member whose queue is gone meanwhile must block neither the others nor this one.
            for one in stopped:
                task = asyncio.create_task(one.start_consuming())
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)

    async def wait_replaced(self) -> None:
        """Waits until the originals of copies that were made here are acked, and the broker has read the acks.

        A message that may crash the process waits for this: a crash would double every message that is being replaced.
        """
        for _ in range(_LOOKS_MAX):
            if not self.replacing:
                break
            await asyncio.sleep(_LOOK_S)
        await self._flush()

    async def _flush(self) -> None:
        """The broker must have read what was settled: else it would come again, as if its consumer had crashed on
        it."""
        await asyncio.gather(*(one.flush() for one in self.queues))
        await asyncio.sleep(_ACKS_TAKEN_S)

    async def _wait_others(self) -> bool:
        try:
            async with asyncio.timeout(self._wait_s):
                while sum(one.at_work for one in self.queues) > 1:  # noqa: ASYNC110 - rare, and bounded
                    await asyncio.sleep(_LOOK_S)
                await self._flush()
        except TimeoutError:
            # Where handlers always take longer than that, others have begun before it comes again: it would never run.
            self._wait_s = min(2 * self._wait_s, WAIT_S_MAX)
            return False
        self._wait_s = self._wait_s_first
        return True
