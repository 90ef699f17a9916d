"""One queue being consumed: its consumers come and go, its delivery handler stays.

Consuming stops and starts again without touching unsettled deliveries: for an exclusive run, and while the queue is
paused because a dependency is down. Then one message is let through now and then as a probe, until one succeeds.
"""

import asyncio
from collections.abc import Callable

from redrive.client import Client, ClientError, Consumer, ReconnectBackoff
from redrive.runtime.app import Consumption
from redrive.runtime.delivery_handler import DeliveryHandler
from redrive.runtime.process_context import ProcessContext
from redrive.runtime.queue_pause import QueuePause

PROBE_FIRST_S, PROBE_LONGEST_S = 1.0, 60.0
_RESTART_S = 1.0
_OWN_LOSS_S = 60.0
_REQUEUE_S = 5.0


class Subscription:
    """Consumes one queue, unless it is stopped or paused."""

    def __init__(
        self,
        client: Client,
        consumption: Consumption,
        process: ProcessContext,
        *,
        build_handler: Callable[[QueuePause, Callable[[], bool]], DeliveryHandler],
    ) -> None:
        """`build_handler` gets the queue's pause, and a function that says whether this process lost the queue's
        channel a moment ago."""
        options = consumption.options
        self.queue = consumption.plan.name
        self._client = client
        self._prefetch = options.prefetch
        self._observer = process.observer
        self._draw = process.draw
        self._consumer: Consumer | None = None
        self._retired: list[Consumer] = []
        self._holds = 0
        self._changing = asyncio.Lock()
        self._closed = False
        self._recovery: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[Consumer] | None = None
        self._tidying: set[asyncio.Task[None]] = set()
        self._pause = QueuePause(
            pause_after=options.pauses_after(consumption.plan.declared.pause_after),
            pause_on=options.pause_on,
            on_pause=self.pause,
        )
        self.handler = build_handler(self._pause, self._lost_lately)

    @property
    def unsettled(self) -> int:
        """Deliveries that are not settled yet."""
        return sum(one.in_progress for one in self._consumers)

    @property
    def _consumers(self) -> list[Consumer]:
        return [*self._retired, *([] if self._consumer is None else [self._consumer])]

    @property
    def at_work(self) -> int:
        """Those whose handlers have begun, and that are not merely held until the broker takes their copies."""
        return self.unsettled - self.handler.waiting - self.handler.held

    @property
    def unready(self) -> str | None:
        """Why no messages are consumed at the moment, None if they are."""
        if self._pause.is_paused:
            return "paused"
        if self._consumer is None or not self._consumer.is_consuming:
            return "not consuming"
        if self.handler.held >= self._prefetch:
            return "stopped: the broker takes no copies of unsettled messages"
        return None

    def _lost_lately(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        return any(one.lost_at_s is not None and now_s - one.lost_at_s < _OWN_LOSS_S for one in self._consumers)

    # Stopping for a while

    async def start(self) -> None:
        """Begins to consume. Raises the broker's refusal."""
        async with self._changing:
            self._consumer = await self._consume(self._prefetch)

    async def stop_consuming(self) -> None:
        """Stops new deliveries, until `start_consuming` was called as often."""
        # Before the lock: a restart that keeps failing, because the queue is gone, holds the lock until it sees this.
        self._holds += 1
        async with self._changing:
            await self._retire()

    async def start_consuming(self) -> None:
        """New deliveries again, unless something else stops them."""
        async with self._changing:
            self._holds -= 1
            await self._restart()

    @property
    def has_wait_queue(self) -> bool:
        """Whether deliveries that must not run now can go to a wait queue."""
        return self.handler.has_wait_queue

    async def flush(self) -> None:
        """Waits until the broker has read what was settled so far."""
        await asyncio.gather(*(one.flush() for one in self._consumers))

    def wake(self) -> None:
        """Deliveries that wait for a slot check again."""
        self.handler.wake()

    # A dependency is down

    def pause(self, why: str) -> None:
        """Pauses the queue; it is probed now and then."""
        if self._pause.is_paused or self._closed:
            return
        self._pause.is_paused = True
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
        self._pause.is_paused = False
        self._pause.failures = 0
        self.wake()
        await self.start_consuming()
        self._observer.note("runtime.resumed", queue=self.queue, why="a message was handled")

    async def _probe(self) -> bool:
        """Lets one message through and waits until it has ended, however long none comes."""
        result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def probed(well: bool) -> None:
            if not result.done():
                result.set_result(well)

        self._pause.probed = probed
        self._pause.is_probing = True
        try:
            async with self._changing:
                if self._closed:
                    return False
                if self._consumer is None:
                    self._consumer = await self._consume(1)
            well = await result
            self._pause.is_probing = False
            async with self._changing:
                await self._retire()
        except ClientError as error:
            self._observer.note("runtime.failed", queue=self.queue, error=str(error))
            return False
        finally:
            self._pause.is_probing = False
            self._pause.probed = None
        return well

    # The end

    async def stop(self) -> None:
        """Stops new deliveries for good; handlers that run go on."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        self._pause.is_paused = False
        self.wake()
        async with self._changing:
            await self._retire()

    async def close(self) -> int:
        """Cancels the handlers that still run and requeues their deliveries; returns how many."""
        requeued = self.unsettled
        # A stale delivery comes again, or was lost with its queue like every message that no handler had begun.
        waiting = [delivery for one in self._retired for delivery in one.take_waiting() if not delivery.is_stale]
        if waiting:
            await asyncio.wait(
                [asyncio.create_task(self.handler.requeue_unfinished(one)) for one in waiting], timeout=_REQUEUE_S
            )
        await asyncio.gather(*(one.close() for one in self._retired))
        await self.handler.close()
        self._retired.clear()
        if self._tidying:
            await asyncio.wait(self._tidying)
        return requeued

    # Consumers

    async def _consume(self, prefetch: int) -> Consumer:
        return await self._client.consume(self.queue, self.handler.handle, prefetch=prefetch)

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
        """Closes a stopped consumer's channel once all its deliveries are settled and the broker has read its acks."""
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
        return 1 if self._pause.is_probing else 0

    async def _restart(self) -> None:
        while self._consumer is None and (prefetch := self._wanted):
            # Without a connection this may take for ever, and `stop` must not wait for it.
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
