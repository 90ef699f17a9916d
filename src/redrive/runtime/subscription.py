"""One queue being consumed: its consumers come and go, its handling stays.

Consuming stops and starts again without touching what is in hand: when a delivery wants to be alone in the process, and
when the queue is paused because a dependency is down. Then one message is let through now and then, until one fares
better.
"""

import asyncio
from collections.abc import Callable

from redrive.client import Client, ClientError, Consumer, ReconnectBackoff
from redrive.core import Observer
from redrive.runtime.handling import Handling
from redrive.runtime.pausing import Pausing

PROBE_FIRST_S, PROBE_LONGEST_S = 1.0, 60.0
_RESTART_S = 1.0
_OWN_LOSS_S = 60.0
_HAND_BACK_S = 5.0


class Subscription:
    """Consumes one queue, as long as nothing holds it."""

    def __init__(
        self,
        client: Client,
        queue: str,
        handling: Handling,
        pausing: Pausing,
        *,
        prefetch: int,
        observer: Observer,
        draw: Callable[[], float],
    ) -> None:
        self.queue = queue
        self.handling = handling
        self._client = client
        self._pausing = pausing
        self._prefetch = prefetch
        self._observer = observer
        self._draw = draw
        self._consumer: Consumer | None = None
        self._retired: list[Consumer] = []
        self._holds = 0
        self._changing = asyncio.Lock()
        self._closed = False
        self._recovery: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[Consumer] | None = None
        self._tidying: set[asyncio.Task[None]] = set()
        handling.lost_lately = self._lost_lately

    @property
    def in_hand(self) -> int:
        """Deliveries that are not settled yet."""
        return sum(one.in_progress for one in self._consumers)

    @property
    def _consumers(self) -> list[Consumer]:
        return [*self._retired, *([] if self._consumer is None else [self._consumer])]

    @property
    def at_work(self) -> int:
        """Those of them that have begun, and are not merely held until the broker takes their copies."""
        return self.in_hand - self.handling.waiting - self.handling.held

    @property
    def unready(self) -> str | None:
        """Why no messages are taken at the moment, None if they are."""
        if self._pausing.is_paused:
            return "paused"
        if self._consumer is None or not self._consumer.is_consuming:
            return "not consuming"
        if self.handling.held >= self._prefetch:
            return "stopped: the broker takes no copies of what is in hand"
        return None

    def _lost_lately(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        return any(one.lost_at_s is not None and now_s - one.lost_at_s < _OWN_LOSS_S for one in self._consumers)

    # What holds it

    async def start(self) -> None:
        """Begins to consume. Raises what the broker refuses it with."""
        async with self._changing:
            self._consumer = await self._consume(self._prefetch)

    async def stop_consuming(self) -> None:
        """No new deliveries, until `start_consuming` was called as often."""
        # Before the lock: whoever tries again and again to start, because the queue is gone, has it until it sees this.
        self._holds += 1
        async with self._changing:
            await self._retire()

    async def start_consuming(self) -> None:
        """Deliveries again, unless something else holds it."""
        async with self._changing:
            self._holds -= 1
            await self._restart()

    @property
    def can_step_aside(self) -> bool:
        """Whether what must not be in hand now can go to a wait queue."""
        return self.handling.can_step_aside

    async def flush(self) -> None:
        """Until the broker has read what was settled so far."""
        await asyncio.gather(*(one.flush() for one in self._consumers))

    def wake(self) -> None:
        """Those who wait for their turn look again."""
        self.handling.wake()

    # A dependency is down

    def pause(self, why: str) -> None:
        """The queue is paused, and probed from now and then."""
        if self._pausing.is_paused or self._closed:
            return
        self._pausing.is_paused = True
        self.wake()
        self._recovery = asyncio.create_task(self._recover(why), name=f"redrive pause of {self.queue}")

    async def _recover(self, why: str) -> None:
        pauses = ReconnectBackoff(first_s=PROBE_FIRST_S, longest_s=PROBE_LONGEST_S, random=self._draw)
        await self.stop_consuming()
        pause_s = pauses.next_s()
        self._observer.note("runtime.paused", queue=self.queue, why=why, probe_in_ms=round(pause_s * 1000))
        while True:
            await asyncio.sleep(pause_s)
            self._observer.note("runtime.probing", queue=self.queue, why=why)
            if await self._probe():
                break
            pause_s = pauses.next_s()
            self._observer.note("runtime.paused", queue=self.queue, why=why, probe_in_ms=round(pause_s * 1000))
        self._pausing.is_paused = False
        self._pausing.failures = 0
        self.wake()
        await self.start_consuming()
        self._observer.note("runtime.resumed", queue=self.queue, why="a message was handled")

    async def _probe(self) -> bool:
        """Lets one message through and waits for its end, however long there is none."""
        result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def probed(well: bool) -> None:
            if not result.done():
                result.set_result(well)

        self._pausing.probed = probed
        self._pausing.is_probing = True
        try:
            async with self._changing:
                if self._closed:
                    return False
                if self._consumer is None:
                    self._consumer = await self._consume(1)
            well = await result
            self._pausing.is_probing = False
            async with self._changing:
                await self._retire()
        except ClientError as error:
            self._observer.note("runtime.failed", queue=self.queue, error=str(error))
            return False
        finally:
            self._pausing.is_probing = False
            self._pausing.probed = None
        return well

    # The end

    async def stop(self) -> None:
        """No new deliveries, for good; what is in hand goes on."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        self._pausing.is_paused = False
        self.wake()
        async with self._changing:
            await self._retire()

    async def close(self) -> int:
        """Gives back what is still in hand, its handlers cancelled; how many that were."""
        given_back = self.in_hand
        # What is stale comes again, or went with its queue like everything that no handler had begun with.
        waiting = [delivery for one in self._retired for delivery in one.take_waiting() if not delivery.is_stale]
        if waiting:
            await asyncio.wait(
                [asyncio.create_task(self.handling.hand_back(one)) for one in waiting], timeout=_HAND_BACK_S
            )
        await asyncio.gather(*(one.close() for one in self._retired))
        await self.handling.close()
        self._retired.clear()
        if self._tidying:
            await asyncio.wait(self._tidying)
        return given_back

    # Consumers

    async def _consume(self, prefetch: int) -> Consumer:
        return await self._client.consume(self.queue, self.handling.handle, prefetch=prefetch)

    async def _retire(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        self._retired.append(consumer)
        await consumer.stop()
        task = asyncio.create_task(self._tidy(consumer))
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)

    async def _tidy(self, consumer: Consumer) -> None:
        """Closes a stopped consumer's channel when nothing of it is in hand any more, and its acks are known."""
        while consumer.in_progress:
            await asyncio.sleep(0.05)
            if self._closed:
                return
        await asyncio.sleep(0.1)
        if not self._closed and consumer in self._retired:
            self._retired.remove(consumer)
            await consumer.close()

    @property
    def _wanted(self) -> int:
        """The prefetch of the consumer there should be, 0 if there should be none."""
        if self._closed or self._holds > 1:
            return 0
        if self._holds == 0:
            return self._prefetch
        return 1 if self._pausing.is_probing else 0

    async def _restart(self) -> None:
        while self._consumer is None and (prefetch := self._wanted):
            # While there is no connection this takes as long as it likes, and `stop` must not wait for that.
            starting = self._starting = asyncio.create_task(self._consume(prefetch))
            try:
                await asyncio.wait([starting])
                if not starting.cancelled():
                    self._consumer = starting.result()
            except ClientError as error:
                self._observer.note("consumer.failed", queue=self.queue, reason=str(error))
                await asyncio.sleep(_RESTART_S)
            finally:
                starting.cancel()
