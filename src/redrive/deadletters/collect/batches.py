"""One hand of messages: taken from a queue, held, and settled all at once.

A hand is exactly what the broker has given us: it is looked at only after the consumer was stopped, so nothing more can
arrive, and it is whole only if all of it came on one channel that still lives. Then one ack settles all of it, or one
nack gives all of it back; nack and not a closed channel, because 4.3 counts the latter towards the delivery limit.
"""

import asyncio
from collections.abc import Awaitable, Callable

from redrive.client import AccessRefused, Channel, Client, ClientError, Consumer, Delivery, NotFound, QueueState
from redrive.core import RedriveError

PREFETCH_FIRST = 20
PREFETCH_MAX = 4_000
BATCH_BYTES = 32 * 1024 * 1024
QUIET_S = 0.05
"""Nothing more for so long, and the hand is closed; what comes later is in the next one."""
HAND_S_MAX = 1.0
"""A hand that fills slowly is closed after so long: what is in it should be stored soon."""
CONSUME_S_MAX = 30.0
RECOVERING_S_MAX = 30.0
"""The same while open batches may come back: then the hand should be complete."""


class BatchLost(RedriveError):
    """The channel went while messages were in hand: the broker has them back, and nothing here owns them."""


class QueueBusy(RedriveError):
    """Somebody else consumes from the queue."""

    def __init__(self, queue: str, consumers: int) -> None:
        self.queue = queue
        self.consumers = consumers
        named = "a consumer" if consumers == 1 else f"{consumers} consumers"
        super().__init__(f"{queue} has {named} already; it is collected when we have it alone")


class CollectBatch:
    """Messages of one queue, held by one consumer that has stopped."""

    def __init__(self, consumer: Consumer, deliveries: list[Delivery], *, is_full: bool) -> None:
        self.deliveries = deliveries
        self.is_full = is_full
        """Whether it holds all it may: there can be more in the queue."""
        self._consumer = consumer

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def size_bytes(self) -> int:
        """Of all bodies and headers."""
        return sum(len(one.body) + len(one.header) for one in self.deliveries)

    def ack(self) -> None:
        """All of it is done. Raises `BatchLost` if nothing could be said."""
        try:
            self.deliveries[-1].ack(multiple=True)
        except ClientError as error:
            raise BatchLost(str(error)) from None

    async def wait_settled(self) -> None:
        """Until the broker was seen to have read what was said. Raises `BatchLost` if it was not."""
        if not await self._consumer.flush():
            raise BatchLost("the broker did not confirm that it read the ack")

    async def give_back(self) -> None:
        """All of it goes back to the queue. If the channel is gone it is there already."""
        try:
            if self.deliveries and not self.deliveries[-1].is_stale:
                self.deliveries[-1].nack(requeue=True, multiple=True)
                await self._consumer.flush()
        except ClientError:
            pass
        await self.close()

    async def close(self) -> None:
        """Closes the channel: what is not settled goes back to the queue. The hand is empty then."""
        await self._consumer.close()
        # Messages know their channel, and that knows what fills the hand: a circle, which would be found late.
        self.deliveries.clear()


class BatchTaker:
    """Takes hands from one queue."""

    def __init__(self, client: Client, queue: str, *, hand_bytes: int = BATCH_BYTES) -> None:
        self._client = client
        self._queue = queue
        self._hand_bytes = hand_bytes
        self.prefetch = PREFETCH_FIRST
        self._is_exclusive = True
        self._asking: Channel | None = None

    async def take(
        self,
        *,
        at_least: int,
        idle_s: float,
        stop: asyncio.Event,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> CollectBatch:
        """The next hand; an empty one if nothing came for `idle_s`, or when it is to stop.

        `at_least` is how many it must be able to hold; 0 unless open batches may come back. `on_delivery` is called
        with each as it comes, for work that can be done while the broker sends the next; it must not raise, and the
        hand may yet be lost. Raises what the broker refuses to let us consume with (`NotFound`, `AccessRefused` …), and
        `BatchLost`.
        """
        prefetch = max(self.prefetch, at_least)
        # What comes back was two hands before, and they may have been a little larger than they should.
        taking = _Taking(prefetch, self._hand_bytes * 3 if at_least else self._hand_bytes, on_delivery)
        try:
            async with asyncio.timeout(CONSUME_S_MAX):
                consumer = await self._consume(taking, prefetch)
        except TimeoutError:
            raise BatchLost(f"no connection, or no answer, in {CONSUME_S_MAX:.0f} s") from None
        try:
            await taking.wait_first(idle_s, stop)
            if taking.deliveries:
                if at_least:
                    await taking.wait_closed(RECOVERING_S_MAX, self._has_more)
                else:
                    await taking.wait_closed(HAND_S_MAX, None)
            await consumer.stop()
        except BaseException:
            await consumer.close()
            raise
        hand = CollectBatch(consumer, taking.deliveries, is_full=taking.is_full)
        if any(one.is_stale for one in hand.deliveries):
            await hand.give_back()
            raise BatchLost("the connection or the channel went while messages were in hand; they come again")
        if hand.deliveries:
            average = max(1, hand.size_bytes // len(hand))
            self.prefetch = max(1, min(self._hand_bytes // average, PREFETCH_MAX))
        return hand

    async def check_alone(self) -> None:
        """Raises `QueueBusy` if the queue has consumers: quorum queues take no notice of `exclusive` (3.10 to 4.3)."""
        state = await self._state()
        if state.consumers:
            raise QueueBusy(self._queue, state.consumers)

    async def is_drained(self) -> bool:
        """Whether nothing is ready in the queue: what there is, is in hands. Raises `ClientError`.

        Ask only after `take`: a quorum queue without a leader, as after a crash, says 0 to a passive declare whatever
        it holds (observed on 4.3), and lets nobody consume.
        """
        return (await self._state()).messages_ready == 0

    async def close(self) -> None:
        """Closes the channel it asks on."""
        if self._asking is not None:
            await self._asking.close()

    async def _consume(self, taking: "_Taking", prefetch: int) -> Consumer:
        """Exclusively, or where the queue itself has a single active consumer (classic ones then refuse) as that."""
        if self._is_exclusive:
            try:
                return await self._client.consume(self._queue, taking.put, prefetch=prefetch, exclusive=True)
            except AccessRefused as error:
                if "exclusive use" not in error.text or (await self._state()).consumers:
                    raise
                self._is_exclusive = False
        return await self._client.consume(self._queue, taking.put, prefetch=prefetch)

    async def _state(self) -> QueueState:
        if self._asking is None or not self._asking.is_open:
            self._asking = await self._client.channel()
        return await self._asking.declare_queue(self._queue, passive=True)

    async def _has_more(self) -> bool:
        try:
            return not await self.is_drained()
        except NotFound:
            return False


class _Taking:
    """A hand being filled."""

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
        """Whether it holds all it may."""
        return len(self.deliveries) >= self._prefetch or self._bytes >= self._bytes_max

    async def wait_first(self, idle_s: float, stop: asyncio.Event) -> None:
        """Until something came, or it is to stop, or `idle_s` have passed."""
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
