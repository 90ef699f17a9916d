"""One batch of messages: taken from a dead-letter queue, held, and settled all at once.

A batch is exactly what the broker has delivered to one consumer. It is looked at only after the consumer was stopped,
so that nothing more can arrive, and it is complete only if all of it came on one channel that is still open. Then one
ack settles all of it, or one nack requeues all of it. It is a nack and not a closed channel, because RabbitMQ 4.3
counts the latter towards the delivery limit.
"""

import asyncio
from collections.abc import Awaitable, Callable

from redrive.client import AccessRefused, Channel, Client, ClientError, Consumer, Delivery, NotFound, QueueState
from redrive.core import RedriveError

PREFETCH_FIRST = 20
PREFETCH_MAX = 4_000
BATCH_BYTES = 32 * 1024 * 1024
QUIET_S = 0.05
"""If nothing more arrives for so long, the batch is closed; what comes later is in the next one."""
BATCH_S_MAX = 1.0
"""A batch that fills slowly is closed after so long: its messages should be stored soon."""
RECOVERING_S_MAX = 30.0
"""The same while open batches may be redelivered: then the batch should be complete."""
CONSUME_S_MAX = 30.0


class BatchLost(RedriveError):
    """The channel closed while a batch was held: the broker has requeued its messages, and none of them is ours."""


class QueueBusy(RedriveError):
    """Somebody else consumes from the queue."""

    def __init__(self, queue: str, consumers: int) -> None:
        self.queue = queue
        self.consumers = consumers
        named = "a consumer" if consumers == 1 else f"{consumers} consumers"
        super().__init__(f"{queue} has {named} already; it is collected when we are its only consumer")


class CollectBatch:
    """Messages of one queue, held by a consumer that has stopped."""

    def __init__(self, consumer: Consumer, deliveries: list[Delivery], *, is_full: bool) -> None:
        self.deliveries = deliveries
        self.is_full = is_full
        """Whether it holds as much as it may: there can be more in the queue."""
        self._consumer = consumer

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def size_bytes(self) -> int:
        """Of all bodies and headers."""
        return sum(len(one.body) + len(one.header) for one in self.deliveries)

    def ack(self) -> None:
        """Acks all of it. Raises `BatchLost` if the channel is closed."""
        try:
            self.deliveries[-1].ack(multiple=True)
        except ClientError as error:
            raise BatchLost(str(error)) from None

    async def wait_settled(self) -> None:
        """Until the broker has read the ack. Raises `BatchLost` if it has not."""
        if not await self._consumer.flush():
            raise BatchLost("the broker did not confirm that it read the ack")

    async def requeue(self) -> None:
        """Requeues all of it. If the channel is closed, the broker has done so already."""
        try:
            if self.deliveries and not self.deliveries[-1].is_stale:
                self.deliveries[-1].nack(requeue=True, multiple=True)
                await self._consumer.flush()
        except ClientError:
            pass
        await self.close()

    async def close(self) -> None:
        """Closes the channel: the broker requeues what is not settled. The batch is empty then."""
        await self._consumer.close()
        # A delivery refers to its channel, and the channel to what fills the batch: a cycle, which the garbage
        # collector would find late.
        self.deliveries.clear()


class BatchTaker:
    """Takes batches from one queue."""

    def __init__(self, client: Client, queue: str, *, batch_bytes: int = BATCH_BYTES) -> None:
        self._client = client
        self._queue = queue
        self._batch_bytes = batch_bytes
        self.prefetch = PREFETCH_FIRST
        self._is_exclusive = True
        self._inspecting: Channel | None = None

    async def take(
        self,
        *,
        at_least: int,
        idle_s: float,
        stop: asyncio.Event,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> CollectBatch:
        """The next batch; an empty one if nothing came for `idle_s`, or once `stop` is set.

        `at_least` is how many messages it must be able to hold; 0 unless open batches may be redelivered. `on_delivery`
        is called with each message as it arrives, for work that can be done while the broker sends the next. It must
        not raise, and the batch may still be lost afterwards. Raises what the broker refuses to let us consume with
        (`NotFound`, `AccessRefused` …), and `BatchLost`.
        """
        prefetch = max(self.prefetch, at_least)
        # What is redelivered was in two batches before, and they may have been a little larger than they should.
        filling = _FillingBatch(prefetch, self._batch_bytes * 3 if at_least else self._batch_bytes, on_delivery)
        try:
            async with asyncio.timeout(CONSUME_S_MAX):
                consumer = await self._consume(filling, prefetch)
        except TimeoutError:
            raise BatchLost(f"no connection, or no answer, in {CONSUME_S_MAX:.0f} s") from None
        try:
            await filling.wait_first(idle_s, stop)
            if filling.deliveries:
                if at_least:
                    await filling.wait_closed(RECOVERING_S_MAX, self._has_more)
                else:
                    await filling.wait_closed(BATCH_S_MAX, None)
            await consumer.stop()
        except BaseException:
            await consumer.close()
            raise
        batch = CollectBatch(consumer, filling.deliveries, is_full=filling.is_full)
        if any(one.is_stale for one in batch.deliveries):
            await batch.requeue()
            raise BatchLost("the connection or the channel closed while a batch was held; its messages come again")
        if batch.deliveries:
            average = max(1, batch.size_bytes // len(batch))
            self.prefetch = max(1, min(self._batch_bytes // average, PREFETCH_MAX))
        return batch

    async def check_alone(self) -> None:
        """Raises `QueueBusy` if the queue has consumers: quorum queues ignore `exclusive` (3.10 to 4.3)."""
        state = await self._state()
        if state.consumers:
            raise QueueBusy(self._queue, state.consumers)

    async def is_drained(self) -> bool:
        """Whether nothing is ready in the queue: all its messages are in batches. Raises `ClientError`.

        Ask only after `take`: a quorum queue without a leader, as after a crash, answers 0 to a passive declare
        whatever it holds (observed on 4.3), and lets nobody consume.
        """
        return (await self._state()).messages_ready == 0

    async def close(self) -> None:
        """Closes the channel that it inspects the queue on."""
        if self._inspecting is not None:
            await self._inspecting.close()

    async def _consume(self, filling: "_FillingBatch", prefetch: int) -> Consumer:
        """Exclusively; but a classic queue with a single active consumer refuses that, so there as that consumer."""
        if self._is_exclusive:
            try:
                return await self._client.consume(self._queue, filling.put, prefetch=prefetch, exclusive=True)
            except AccessRefused as error:
                if "exclusive use" not in error.text or (await self._state()).consumers:
                    raise
                self._is_exclusive = False
        return await self._client.consume(self._queue, filling.put, prefetch=prefetch)

    async def _state(self) -> QueueState:
        if self._inspecting is None or not self._inspecting.is_open:
            self._inspecting = await self._client.channel()
        return await self._inspecting.declare_queue(self._queue, passive=True)

    async def _has_more(self) -> bool:
        try:
            return not await self.is_drained()
        except NotFound:
            return False


class _FillingBatch:
    """A batch that is being filled."""

    def __init__(self, prefetch: int, bytes_max: int, on_delivery: Callable[[Delivery], None] | None) -> None:
        self.deliveries: list[Delivery] = []
        self._prefetch = prefetch
        self._bytes_max = bytes_max
        self._bytes = 0
        self._on_delivery = on_delivery
        self._came = asyncio.Event()

    def put(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self._bytes += len(delivery.body)
        if self._on_delivery is not None:
            self._on_delivery(delivery)
        self._came.set()

    @property
    def is_full(self) -> bool:
        """Whether it holds as much as it may."""
        return len(self.deliveries) >= self._prefetch or self._bytes >= self._bytes_max

    async def wait_first(self, idle_s: float, stop: asyncio.Event) -> None:
        """Until a message came, `stop` is set, or `idle_s` have passed."""
        waits = [asyncio.ensure_future(self._came.wait()), asyncio.ensure_future(stop.wait())]
        try:
            await asyncio.wait(waits, timeout=idle_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def wait_closed(self, longest_s: float, has_more: Callable[[], Awaitable[bool]] | None) -> None:
        """Until it is full, or nothing more came for a moment."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + longest_s
        while not self.is_full and loop.time() < until_s:
            self._came.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._came.wait()
            except TimeoutError:
                if has_more is None or not await has_more():
                    return
