"""The client: one connection at a time, kept alive for its publishers and consumers.

It connects, reports to its observer, and when the connection is lost connects again with growing, jittered pauses,
through all hosts in turn. Publishers and consumers wait for `connection()` and restore their own channels; the client
only closes them.
"""

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from redrive.client.amqp_url import BrokerTarget, parse_url
from redrive.client.backoff import ReconnectBackoff
from redrive.client.channel import Channel
from redrive.client.connection import Connection, Dial
from redrive.client.consumer import Consumer, Deliveries, Handler
from redrive.client.errors import AuthenticationFailed, ClientError, ConnectionClosed, ConnectionFailed
from redrive.client.publisher import Publisher
from redrive.core import NULL_OBSERVER, Observer


class Client:
    """A broker to work with: `async with Client("amqp://…") as client: …`.

    Entering it makes the first connection, or fails; from then on the client restores the connection by itself. `dial`
    makes the transport instead of TCP: a pipe to a broker in the same process.
    """

    def __init__(
        self,
        target: str | BrokerTarget,
        *,
        name: str | None = None,
        observer: Observer = NULL_OBSERVER,
        backoff: Callable[[], ReconnectBackoff] = ReconnectBackoff,
        dial: Dial | None = None,
    ) -> None:
        self.target = parse_url(target) if isinstance(target, str) else target
        self.observer = observer
        self.name = name or self.target.name or f"{os.path.basename(sys.argv[0]) or 'python'}:{os.getpid()}"
        self.new_backoff = backoff
        self._dial = dial
        self._next_host = 0
        self._connection: Connection | None = None
        self._waiters: list[asyncio.Future[Connection]] = []
        self._owners: dict[Publisher | Consumer, None] = {}
        self.is_closed = False
        self._closing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> "Client":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Makes the first connection. Raises `ConnectionFailed`, with a reason for each host."""
        self.loop = asyncio.get_running_loop()
        self._adopt(await self._connect())
        self._task = asyncio.create_task(self._keep_connected(), name="redrive connection")

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._connection is not None and self._connection.is_open

    @property
    def heartbeat_s(self) -> int:
        """The interval agreed with the broker, 0 for none; without a connection, the one that will be asked for."""
        return self.target.heartbeat_s if self._connection is None else self._connection.heartbeat_s

    async def connection(self) -> Connection:
        """Waits for a connection and returns it. Raises `ConnectionClosed` once the client is closed."""
        if self.is_closed:
            raise ConnectionClosed("the client was closed")
        if self._task is None:
            raise ConnectionClosed("the client was not started; use `async with Client(…)`")
        current = self._connection
        if current is not None and current.is_open:
            return current
        waiter: asyncio.Future[Connection] = self.loop.create_future()
        self._waiters.append(waiter)
        return await waiter

    async def update_secret(self, secret: str, reason: str = "renewed") -> None:
        """Connects with another password or token from now on, and sends it on the current connection.

        Raises `ConnectionClosed` if that is lost meanwhile, or the broker refuses; the next one uses the new secret.
        """
        self.target = dataclasses.replace(self.target, password=secret)
        if self._connection is not None and self._connection.is_open:
            await self._connection.update_secret(secret, reason)

    async def channel(self) -> Channel:
        """Opens a plain channel; it is not restored when it closes."""
        return await (await self.connection()).open_session(Channel)

    async def publisher(self, *, window: int = 1000) -> Publisher:
        """A publisher with confirms, at most `window` messages in flight."""
        publisher = Publisher(self, window=window)
        self._owners[publisher] = None
        try:
            await publisher.wait_ready()
        except BaseException:
            await publisher.close()
            raise
        return publisher

    async def consume(
        self,
        queue: str,
        handler: Handler,
        *,
        prefetch: int = 100,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> Consumer:
        """Starts consuming. Raises the broker's refusal of the first basic.consume; later it tries again by itself."""
        consumer = Consumer(
            self, queue, handler, prefetch=prefetch, no_ack=no_ack, exclusive=exclusive, arguments=arguments
        )
        await self._wait_started(consumer)
        return consumer

    async def deliveries(
        self, queue: str, *, prefetch: int = 100, no_ack: bool = False, arguments: Mapping[str, Any] | None = None
    ) -> Deliveries:
        """Starts consuming; the deliveries come as an async iterator. Raises as `consume` does."""
        deliveries = Deliveries(
            lambda handler: Consumer(
                self, queue, handler, prefetch=prefetch, no_ack=no_ack, exclusive=False, arguments=arguments
            )
        )
        await self._wait_started(deliveries.consumer)
        return deliveries

    def forget(self, owner: Publisher | Consumer) -> None:
        """Called by a publisher or consumer that has closed."""
        self._owners.pop(owner, None)

    async def close(self) -> None:
        """Closes consumers, publishers and the connection, each within a few seconds; raises only when cancelled."""
        async with self._closing:
            self.is_closed = True
            try:
                # Consumers first: their handlers may be publishing.
                for kind in (Consumer, Publisher):
                    closing = [asyncio.create_task(owner.close()) for owner in self._owners if isinstance(owner, kind)]
                    if closing:
                        await asyncio.wait(closing)
            finally:
                await self._disconnect()

    async def _wait_started(self, consumer: Consumer) -> None:
        self._owners[consumer] = None
        try:
            await consumer.wait_started()
        except BaseException:
            # The caller never gets it: it must not go on taking messages.
            await consumer.close()
            raise

    async def _disconnect(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(ConnectionClosed("the client was closed"))
        self._waiters.clear()
        if self._connection is not None:
            await self._connection.close()

    async def _keep_connected(self) -> None:
        while True:
            assert self._connection is not None
            await asyncio.wait([self._connection.closed])
            self.observer.note("client.connection_lost", reason=str(self._connection.closed.result()))
            backoff = self.new_backoff()
            pause_s = backoff.next_s()
            while True:
                await asyncio.sleep(pause_s)
                try:
                    self._adopt(await self._connect())
                    break
                # Any of these may be repaired while we wait: a password rotated, a certificate file replaced.
                except ClientError as error:
                    pause_s = backoff.next_s()
                    self.observer.note("client.connect_failed", reason=str(error), pause_s=round(pause_s, 3))

    async def _connect(self) -> Connection:
        """Tries all hosts once, beginning after the last one used."""
        hosts = self.target.hosts
        reasons: list[str] = []
        for _ in hosts:
            host, port = hosts[self._next_host % len(hosts)]
            self._next_host += 1
            try:
                return await Connection.open(
                    self.target, host, port, name=self.name, observer=self.observer, dial=self._dial
                )
            except AuthenticationFailed:
                raise
            except ConnectionFailed as error:
                reasons.extend(error.reasons)
        raise ConnectionFailed(tuple(reasons))

    def _adopt(self, connection: Connection) -> None:
        self._connection = connection
        self.observer.note("client.connected", address=self.target.address, server_version=connection.server_version)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(connection)
