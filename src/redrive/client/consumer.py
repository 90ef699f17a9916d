"""The consumer: deliveries to a callback, a task each or an iterator; acks coalesced; comes back by itself.

A consumer has a channel of its own, with its own prefetch. When the broker cancels it, the channel or the connection
goes, the consumer says so to its observer, forgets what was in hand (the broker delivers it again) and starts anew.
Settling a delivery of a channel that is gone raises `StaleDelivery`: nothing was sent, and the message comes again.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from redrive import wire
from redrive.client.backoff import Backoff
from redrive.client.errors import AlreadySettled, ChannelClosed, ClientError, ConnectionClosed, StaleDelivery
from redrive.client.session import ChannelSession
from redrive.client.settling import STRAGGLERS_S, Settling
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.client import Client
    from redrive.client.connection import Connection

Handler = Callable[["Delivery"], Awaitable[None] | None]
"""A callback for each delivery: a coroutine function gets a task each, a plain one is called at once."""


class Delivery(wire.Delivery):
    """A message in hand. Settle it once: `ack`, `nack` or `reject`."""

    __slots__ = ("session",)
    session: "ConsumeSession"

    @property
    def queue(self) -> str:
        """The queue it was consumed from."""
        return self.session.queue

    @property
    def is_stale(self) -> bool:
        """Whether its channel is gone, so that it can't be settled any more and comes again."""
        return self.session.closed.done()

    def ack(self, *, multiple: bool = False) -> None:
        """Done. Raises `StaleDelivery` if its channel is gone, `AlreadySettled` the second time."""
        session = self.session
        if session.closed.done():
            raise StaleDelivery(self.delivery_tag, session.queue)
        settling = session.settling
        tag = self.delivery_tag
        if tag != settling.floor + 1 and settling.is_settled(tag):
            raise AlreadySettled(tag, session.queue)
        if multiple:
            settling.ack_up_to(tag)
        else:
            settling.ack(tag)
        session.acks_soon()

    def nack(self, *, requeue: bool, multiple: bool = False) -> None:
        """Back to the queue, or to its dead-letter exchange. Raises as `ack` does."""
        self._check()
        self.session.settling.nack(self.delivery_tag, multiple=multiple, requeue=requeue)
        self.session.acks_soon()

    def reject(self, *, requeue: bool) -> None:
        """Like `nack` for one message; on quorum queues of 4.3 only a reject counts as a failed delivery."""
        self._check()
        self.session.settling.reject(self.delivery_tag, requeue=requeue)
        self.session.acks_soon()

    def _check(self) -> None:
        if self.session.closed.done():
            raise StaleDelivery(self.delivery_tag, self.session.queue)
        if self.session.settling.is_settled(self.delivery_tag):
            raise AlreadySettled(self.delivery_tag, self.session.queue)


class ConsumeSession(ChannelSession):
    """One channel's worth of consuming."""

    def __init__(self, queue: str, prefetch: int, handle: Callable[[Delivery], None]) -> None:
        super().__init__()
        self.queue = queue
        self._prefetch = prefetch
        self._handle = handle
        self._dirty = False
        self._timer: asyncio.TimerHandle | None = None
        self.settling: Settling
        self.cancelled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The broker stopped us: the queue was deleted, moved, or a consumer timeout passed."""

    def attach(self, connection: "Connection", number: int) -> None:
        """As soon as there is a number, there is something to settle on."""
        super().attach(connection, number)
        self.settling = Settling(connection.amqp, number)

    def on_delivery(self, delivery: wire.Delivery) -> None:
        """To the handler it goes."""
        assert isinstance(delivery, Delivery)
        delivery.session = self
        self._handle(delivery)

    def on_method(self, method: methods.Method) -> None:
        """basic.cancel is the broker's own; anything else answers a call."""
        if isinstance(method, methods.BasicCancel):
            if not self.cancelled.done():
                self.cancelled.set_result(method.consumer_tag)
            return
        super().on_method(method)

    def acks_soon(self) -> None:
        """The acks of this turn of the event loop go out at its end, in one frame where they are in a row."""
        if not self._dirty:
            self._dirty = True
            self.connection.before_flush(self._write)

    def _write(self) -> None:
        self._dirty = False
        if self.closed.done():
            return
        waiting = len(self.settling.stragglers)
        # Waiting acks must not starve the prefetch: once they hold a quarter of it they go out at once.
        self.settling.write(stragglers=waiting * 4 >= self._prefetch > 0)
        if self.settling.stragglers and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STRAGGLERS_S, self._write_stragglers)

    def _write_stragglers(self) -> None:
        self._timer = None
        if not self.closed.done():
            self.settling.write(stragglers=True)
            self.connection.flush_soon()


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
        self._dispatch = self._in_task if inspect.iscoroutinefunction(handler) else self._at_once
        self._session: ConsumeSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._consumer_tag = ""
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_consuming(), name=f"redrive consumer of {queue}")

    @property
    def is_consuming(self) -> bool:
        """Whether deliveries are coming in right now."""
        return self._session is not None

    @property
    def in_hand(self) -> int:
        """How many handler tasks are running."""
        return len(self._tasks)

    async def wait_started(self) -> None:
        """Until the first basic.consume was accepted. Raises what it was refused with."""
        await asyncio.shield(self._started)

    async def stop(self) -> None:
        """No new deliveries; what is in hand can still be settled. Returns when the broker has stopped sending."""
        self._closing = True
        session = self._session
        if session is not None and session.is_open and self._consumer_tag:
            try:
                await session.call(methods.BasicCancel(consumer_tag=self._consumer_tag), methods.BasicCancelOk)
            except (ChannelClosed, ConnectionClosed):
                pass

    async def close(self) -> None:
        """Stops and closes the channel: what is not settled goes back to the queue. Running handlers are cancelled."""
        await self.stop()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        if self._session is not None:
            self._session.connection.flush()
            await self._session.close()
        self._task.cancel()
        await asyncio.wait([self._task])

    def _at_once(self, delivery: Delivery) -> None:
        try:
            self._handler(delivery)
        except Exception as error:  # noqa: BLE001 - the handler boundary: one bad callback must not stop the connection
            self._note_failure(delivery, error)

    def _in_task(self, delivery: Delivery) -> None:
        task: asyncio.Task[None] = self._client.loop.create_task(self._handler(delivery))  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks_done)

    def _tasks_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._note_failure(None, error)

    def _note_failure(self, delivery: Delivery | None, error: BaseException) -> None:
        tag = None if delivery is None else delivery.delivery_tag
        self._client.observer.note("consumer.handler_failed", queue=self.queue, delivery_tag=tag, error=repr(error))

    async def _keep_consuming(self) -> None:
        """Consumes, and when that ends for any reason but `close`, consumes again."""
        backoff = Backoff()
        while not self._closing:
            try:
                session = await self._start()
            except ClientError as error:
                if not self._started.done():
                    self._started.set_exception(error)
                    return
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
            if not self._closing:
                await self._note_end(session)

    async def _start(self) -> ConsumeSession:
        connection = await self._client.connection()
        session = ConsumeSession(self.queue, self._prefetch, self._dispatch)
        await connection.open_session(session)
        await session.call(methods.BasicQos(prefetch_count=self._prefetch), methods.BasicQosOk)
        answer = await session.call(self._consume, methods.BasicConsumeOk)
        self._consumer_tag = answer.consumer_tag
        return session

    async def _note_end(self, session: ConsumeSession) -> None:
        if session.closed.done():
            self._client.observer.note("consumer.channel_lost", queue=self.queue, reason=str(session.closed.result()))
            return
        self._client.observer.note("consumer.cancelled", queue=self.queue, reason="the broker cancelled the consumer")
        # What is in hand may have been given to someone else already, so its channel goes too: settling says "stale".
        await session.close()


class Deliveries:
    """A consumer as an async iterator, at most `prefetch` deliveries ahead: `async for delivery in deliveries`."""

    def __init__(self) -> None:
        self._ready: deque[Delivery] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.consumer: Consumer

    def take(self, delivery: Delivery) -> None:
        """The consumer's handler."""
        self._ready.append(delivery)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            while self._ready:
                delivery = self._ready.popleft()
                if not delivery.is_stale:  # else the broker has it back, and it comes again
                    return delivery
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def close(self) -> None:
        """Stops consuming; what was not taken goes back to the queue."""
        await self.consumer.close()
