"""The consumer: gives deliveries to a coroutine, a callback or an iterator, and restores itself.

A consumer has a channel of its own, with its own prefetch. When the broker cancels it, or the channel or the connection
is lost, the consumer reports that to its observer, drops the deliveries that no handler has begun with (the broker
delivers them again) and consumes on a new channel.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from redrive.client.consume_session import ConsumeSession, Delivery, HeldCount
from redrive.client.errors import ClientError, ConnectionClosed, NotFound, PreconditionFailed
from redrive.client.worker_pool import WorkerPool
from redrive.core import RedriveError
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.client import Client

Handler = Callable[[Delivery], Awaitable[None] | None]
"""A callback for each delivery: a coroutine function runs in a task (see `worker_pool`), a plain one is called at once.

A handler that raises leaves its delivery unsettled until the consumer or its channel is closed; the observer gets
`consumer.handler_failed`. A handler that wants something else catches everything itself.
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
        self._workers: WorkerPool[Delivery] = WorkerPool(
            cast(Callable[[Delivery], Awaitable[None]], handler) if is_coroutine else self._await_result,
            workers_max=prefetch or _WORKERS_MAX,
            on_failure=self._note_failure,
            loop=asyncio.get_running_loop(),
        )
        self._held = HeldCount()
        self._results: dict[int, Awaitable[None]] = {}
        self._dispatch = self._workers.put if is_coroutine else self._call_handler
        self._session: ConsumeSession | None = None
        self._closing = False
        self._consumer_tag = ""
        self.lost_at_s: float | None = None
        """When, by the event loop's clock, the channel was last lost for a reason other than a consumer timeout."""
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when no more deliveries can come."""
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_consuming(), name=f"redrive consumer of {queue}")

    @property
    def is_consuming(self) -> bool:
        """Whether deliveries are coming in right now."""
        return self._session is not None and not self._closing

    @property
    def in_progress(self) -> int:
        """How many deliveries wait for a coroutine handler, are in one, or are held (`Delivery.hold`)."""
        return self._workers.running + self._workers.waiting + self._held.count

    def take_waiting(self) -> list[Delivery]:
        """Removes and returns the deliveries that no handler has begun with; the caller settles them."""
        return self._workers.clear()

    async def wait_started(self) -> None:
        """Waits until the broker has accepted the first basic.consume. Raises what it was refused with."""
        await asyncio.shield(self._started)

    async def stop(self) -> None:
        """Cancels the consumer: no new deliveries, and those that came can still be settled.

        Returns when the broker has stopped sending. If it does not answer within a moment, the channel is closed, and
        its deliveries are stale.
        """
        self._closing = True
        session = self._session
        if session is None:
            # It may be starting, for the first time or again: that must not succeed any more.
            await self._end_task()
        elif session.usable and not self.stopped.done():
            try:
                async with asyncio.timeout(session.connection.close_timeout_s):
                    await session.call(methods.BasicCancel(consumer_tag=self._consumer_tag), methods.BasicCancelOk)
            except TimeoutError:
                session.end_unanswered()
            except ClientError:
                pass
        self._set_stopped()

    async def flush(self) -> bool:
        """Waits until the broker has read every ack, nack and reject so far; whether it has answered in time.

        The broker reads a channel in order, so its answer to any later call proves that. False at once if the channel
        is gone, and after a moment without an answer.
        """
        session = self._session
        if session is None or not session.usable:
            return False
        session.acks.write(stragglers=True)
        try:
            async with asyncio.timeout(session.connection.close_timeout_s):
                await session.call(methods.BasicQos(prefetch_count=self._prefetch), methods.BasicQosOk)
        except (TimeoutError, ClientError):
            return False
        return True

    async def close(self) -> None:
        """Stops, cancels the running handlers and closes the channel: the broker requeues what is not settled.

        A handler that does not end within a moment runs on; its delivery is stale then. A handler may close its own
        consumer.
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

    def _call_handler(self, delivery: Delivery) -> None:
        try:
            result = self._handler(delivery)
        except Exception as error:  # noqa: BLE001 - the handler boundary: one bad callback must not stop the connection
            self._note_failure(delivery, error)
            return
        if result is not None:  # a callable that did not look like a coroutine function and returns an awaitable
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
                # After a lost connection the broker had requeued the messages before the queue went.
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
                self._drop_waiting()  # the broker delivers them again
            lost = session
            if await self._is_cancelled(session):
                await asyncio.sleep(backoff.next_s())
        self._set_stopped()

    async def _start(self) -> ConsumeSession:
        connection = await self._client.connection()
        session = await connection.open_session(
            lambda connection, number: ConsumeSession(
                connection,
                number,
                queue=self.queue,
                prefetch=self._prefetch,
                handle=self._dispatch,
                no_ack=self._consume.no_ack,
                held=self._held,
            )
        )
        try:
            self._consumer_tag = await session.start(self._consume)
        except BaseException:
            # Deliveries may be on their way already: a channel left open would hold them.
            session.abandon()
            raise
        return session

    async def _is_cancelled(self, session: ConsumeSession) -> bool:
        """Reports how consuming ended; true if by the broker's basic.cancel.

        The queue is then about to be deleted or moved. RabbitMQ 4.3 answers a basic.consume on a quorum queue just then
        with 541, which closes the whole connection and puts every publish in flight in doubt: so the caller waits.
        """
        if session.closed.done():
            if not self._closing:
                reason = str(session.closed.result())
                self._client.observer.note("consumer.channel_lost", queue=self.queue, reason=reason)
            return False
        reason = "the broker cancelled the consumer"
        self._client.observer.note("consumer.cancelled", queue=self.queue, reason=reason)
        # Its deliveries may have gone to another consumer already, so its channel goes too: settling them fails then.
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
    """Whether the connection or the broker failed, and not the handler: one that takes longer than the consumer timeout
    loses its channel too (from 4.3 on its consumer), and would lose it again with the same message."""
    if not session.closed.done():
        return False
    error = session.closed.result()
    return not (isinstance(error, PreconditionFailed) and "timed out" in str(error))


class Deliveries:
    """A consumer as an async iterator, at most `prefetch` deliveries ahead: `async for delivery in deliveries`.

    `consume` makes the consumer, given its handler. The iterator ends when the consumer has stopped and everything that
    can still be settled was taken.
    """

    def __init__(self, consume: Callable[[Handler], Consumer]) -> None:
        self._ready: deque[Delivery] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.consumer = consume(self._put)
        self.consumer.stopped.add_done_callback(lambda _: self._wake(len(self._waiters)))

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            while self._ready:
                delivery = self._ready.popleft()
                if not delivery.is_stale:  # else the broker delivers it again
                    return delivery
            if self.consumer.stopped.done():
                raise StopAsyncIteration
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)  # another waiter can take the delivery
                raise

    async def close(self) -> None:
        """Stops consuming; the broker requeues what was not taken."""
        await self.consumer.close()

    def _put(self, delivery: Delivery) -> None:
        self._ready.append(delivery)
        self._wake(1)

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
