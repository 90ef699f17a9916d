"""The consumer: deliveries to a coroutine, a callback or an iterator; acks coalesced; comes back by itself.

A consumer has a channel of its own, with its own prefetch. When the broker cancels it, the channel or the connection
goes, the consumer says so to its observer, forgets what was in hand (the broker delivers it again) and starts anew.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from redrive.client.consuming import ConsumeSession, Delivery, Held
from redrive.client.errors import ClientError, ConnectionClosed, NotFound, PreconditionFailed
from redrive.client.workers import Workers
from redrive.core import RedriveError
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.client import Client

Handler = Callable[[Delivery], Awaitable[None] | None]
"""A callback for each delivery: a coroutine function runs in a task (see `workers`), a plain one is called at once.

One that raises leaves its delivery unsettled, in hand until the consumer or its channel is closed; the observer is told
(`consumer.handler_failed`). Whoever wants something else catches everything in the handler.
"""

_HANDLERS_END_S = 5.0
_WORKERS_MAX = 65_535


class Consumer:
    """Consumes one queue for as long as it is open. `Client.consume` makes one."""

    def __init__(
        self,
        client: "Client",
        queue: str,
        handler: Handler,
        *,
        prefetch: int,
        no_ack: bool,
        exclusive: bool,
        arguments: Mapping[str, Any] | None,
    ) -> None:
        self.queue = queue
        self._client = client
        self._handler = handler
        self._prefetch = prefetch
        self._consume = methods.BasicConsume(
            queue=queue, no_ack=no_ack, exclusive=exclusive, arguments=dict(arguments or {})
        )
        is_coroutine = inspect.iscoroutinefunction(handler)
        self._workers: Workers[Delivery] = Workers(
            cast(Callable[[Delivery], Awaitable[None]], handler) if is_coroutine else self._await_result,
            workers_max=prefetch or _WORKERS_MAX,
            on_failure=self._note_failure,
            loop=asyncio.get_running_loop(),
        )
        self._held = Held()
        self._results: dict[int, Awaitable[None]] = {}
        self._dispatch = self._workers.put if is_coroutine else self._at_once
        self._session: ConsumeSession | None = None
        self._closing = False
        self._consumer_tag = ""
        self.lost_at_s: float | None = None
        """When, by the event loop's clock, the channel was last lost, and it was not for being slow."""
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when no more deliveries can come."""
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_consuming(), name=f"redrive consumer of {queue}")

    @property
    def is_consuming(self) -> bool:
        """Whether deliveries are coming in right now."""
        return self._session is not None and not self._closing

    @property
    def in_hand(self) -> int:
        """How many deliveries a coroutine handler has not ended with, or has left on hold."""
        return self._workers.in_hand + self._workers.waiting + self._held.count

    def take_waiting(self) -> list[Delivery]:
        """The deliveries no handler has begun with; whoever takes them settles them."""
        return self._workers.clear()

    async def wait_started(self) -> None:
        """Until the first basic.consume was accepted. Raises what it was refused with."""
        await asyncio.shield(self._started)

    async def stop(self) -> None:
        """No new deliveries; what is in hand can still be settled. Returns when the broker has stopped sending.

        A broker that does not answer within a moment loses the channel, and with it what was in hand.
        """
        self._closing = True
        session = self._session
        if session is None:
            # It may be starting, again or for the first time: that must not succeed any more.
            await self._end_task()
        elif session.usable and not self.stopped.done():
            try:
                async with asyncio.timeout(session.connection.patience_s):
                    await session.call(methods.BasicCancel(consumer_tag=self._consumer_tag), methods.BasicCancelOk)
            except TimeoutError:
                session.end_unanswered()
            except ClientError:
                pass
        self._set_stopped()

    async def flush(self) -> bool:
        """Until the broker has read every ack, nack and reject said so far; at once if the channel is gone.

        A channel is read in order, so the answer to any call on it says so. One that does not come is not waited for.
        Returns whether the broker was seen to answer.
        """
        session = self._session
        if session is None or not session.usable:
            return False
        session.settling.write(stragglers=True)
        try:
            async with asyncio.timeout(session.connection.patience_s):
                await session.call(methods.BasicQos(prefetch_count=self._prefetch), methods.BasicQosOk)
        except (TimeoutError, ClientError):
            return False
        return True

    async def close(self) -> None:
        """Stops and closes the channel: what is not settled goes back to the queue. Running handlers are cancelled.

        A handler that does not end within a moment is left to itself; its delivery is stale then. A handler may close
        its own consumer.
        """
        try:
            await self.stop()
            self._drop_waiting()
            await self._workers.close(_HANDLERS_END_S)
            if self._session is not None:
                await self._session.close()
        finally:
            if self._session is not None:
                self._session.abandon()
            await self._end_task()
            self._fail_start(ConnectionClosed("the consumer was closed"))
            self._client.forget(self)

    def _at_once(self, delivery: Delivery) -> None:
        try:
            result = self._handler(delivery)
        except Exception as error:  # noqa: BLE001 - the handler boundary: one bad callback must not stop the connection
            self._note_failure(delivery, error)
            return
        if result is not None:  # a callable that looked like a plain one and is not
            self._results[id(delivery)] = result
            self._workers.put(delivery)

    async def _await_result(self, delivery: Delivery) -> None:
        await self._results.pop(id(delivery))

    def _drop_waiting(self) -> None:
        for delivery in self._workers.clear():
            result = self._results.pop(id(delivery), None)
            if inspect.iscoroutine(result):
                result.close()  # or Python would complain that nobody awaited it

    def _note_failure(self, delivery: Delivery, error: BaseException) -> None:
        self._client.observer.note(
            "consumer.handler_failed", queue=self.queue, delivery_tag=delivery.delivery_tag, error=repr(error)
        )

    async def _keep_consuming(self) -> None:
        """Consumes, and when that ends for any reason but `stop`, consumes again."""
        backoff = self._client.new_backoff()
        lost: ConsumeSession | None = None
        while not self._closing:
            try:
                session = await self._start()
            except RedriveError as error:
                # Where the line was lost, the broker had the messages back before the queue went.
                if lost is not None and lost.cancelled.done() and isinstance(error, NotFound):
                    lost.queue_is_gone = not error.is_out_of_reach
                refused = not self._started.done() and not isinstance(error, ConnectionClosed)
                if refused or self._client.is_closed:
                    self._fail_start(error)
                    break
                self._client.observer.note("consumer.failed", queue=self.queue, reason=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self._session = session
            if self._started.done():
                self._client.observer.note("consumer.resumed", queue=self.queue)
            else:
                self._started.set_result(None)
            ends: tuple[asyncio.Future[Any], ...] = (session.closed, session.cancelled)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self._session = None
            if _is_lost(session):
                self.lost_at_s = asyncio.get_running_loop().time()
            if not self._consume.no_ack:
                self._drop_waiting()  # not begun, and the broker has them back: they come again
            lost = session
            if await self._is_cancelled(session):
                await asyncio.sleep(backoff.next_s())
        self._set_stopped()

    async def _start(self) -> ConsumeSession:
        connection = await self._client.connection()
        session = ConsumeSession(
            self.queue, self._prefetch, self._dispatch, no_ack=self._consume.no_ack, held=self._held
        )
        try:
            await connection.open_session(session)
            await session.call(methods.BasicQos(prefetch_count=self._prefetch), methods.BasicQosOk)
            answer = await session.call(self._consume, methods.BasicConsumeOk)
        except BaseException:
            # Deliveries may be on their way already: a channel left open would hold them.
            session.abandon()
            raise
        self._consumer_tag = answer.consumer_tag
        return session

    async def _is_cancelled(self, session: ConsumeSession) -> bool:
        """Notes how consuming ended; true if by the broker's basic.cancel.

        The queue is then about to go or to move. RabbitMQ 4.3 answers who consumes from a quorum queue just then with
        541, which closes the whole connection, and every publish in flight is in doubt: so give it a moment.
        """
        if session.closed.done():
            if not self._closing:
                reason = str(session.closed.result())
                self._client.observer.note("consumer.channel_lost", queue=self.queue, reason=reason)
            return False
        reason = "the broker cancelled the consumer"
        self._client.observer.note("consumer.cancelled", queue=self.queue, reason=reason)
        # What is in hand may have been given to someone else already, so its channel goes too: settling says so.
        await session.close()
        return True

    async def _end_task(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._set_stopped()

    def _set_stopped(self) -> None:
        if not self.stopped.done():
            self.stopped.set_result(None)

    def _fail_start(self, error: RedriveError) -> None:
        if not self._started.done():
            self._started.set_exception(error)
            self._started.exception()  # nobody may be waiting


def _is_lost(session: ConsumeSession) -> bool:
    """Whether the line or the broker has failed us, and not we it: who takes longer than its consumer timeout loses his
    channel too, and from 4.3 on his consumer, and would lose it again with the same message."""
    if not session.closed.done():
        return False
    error = session.closed.result()
    return not (isinstance(error, PreconditionFailed) and "timed out" in str(error))


class Deliveries:
    """A consumer as an async iterator, at most `prefetch` deliveries ahead: `async for delivery in deliveries`.

    It ends when the consumer was stopped and everything that can still be settled was taken.
    """

    def __init__(self) -> None:
        self._ready: deque[Delivery] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.consumer: Consumer

    def follow(self, consumer: Consumer) -> None:
        """The consumer whose deliveries `take` gets."""
        self.consumer = consumer
        consumer.stopped.add_done_callback(lambda _: self._wake(len(self._waiters)))

    def take(self, delivery: Delivery) -> None:
        """The consumer's handler."""
        self._ready.append(delivery)
        self._wake(1)

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            while self._ready:
                delivery = self._ready.popleft()
                if not delivery.is_stale:  # else the broker has it back, and it comes again
                    return delivery
            if self.consumer.stopped.done():
                raise StopAsyncIteration
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)  # what we were woken for is someone else's now
                raise

    async def close(self) -> None:
        """Stops consuming; what was not taken goes back to the queue."""
        await self.consumer.close()

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
