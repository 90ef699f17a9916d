"""The publisher: confirms always on, mandatory by default, exactly one outcome for each message.

It outlives connections: while there is none, publishing waits (up to its deadline); what was in flight when one went
is reported in doubt, never sent again behind the caller's back.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from redrive import wire
from redrive.client.backoff import Backoff
from redrive.client.errors import ChannelClosed, ConnectionClosed
from redrive.client.outcomes import InDoubt, Outcome
from redrive.client.publishing import Batch, PublishSession, RoomQueue
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.client import Client

_CLOSE_TIMEOUT_S = 5.0
_PERSISTENT = wire.Properties.of(delivery_mode=2)


class Outgoing(NamedTuple):
    """A message to publish; `properties` may be raw header bytes, as they came with another message."""

    exchange: str
    routing_key: str
    body: bytes
    properties: wire.Properties | bytes = _PERSISTENT
    mandatory: bool = True


class Publisher:
    """Publishes on a channel of its own, at most `window` messages in flight. `Client.publisher` makes one."""

    def __init__(self, client: "Client", *, window: int = 1000) -> None:
        if window < 1:
            raise ValueError(f"window is {window}; at least one message must be allowed in flight")
        self._client = client
        self._window = window
        self._session: PublishSession | None = None
        self._queue = RoomQueue()
        self._closing = False
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_open(), name="redrive publisher")

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: wire.Properties | bytes = _PERSISTENT,
        *,
        mandatory: bool = True,
        deadline_s: float | None = None,
    ) -> Outcome:
        """Publishes one message and returns what became of it.

        Waits while the window is full, the broker blocks or there is no connection. `deadline_s` bounds the whole; when
        it passes the outcome is `InDoubt`. Raises `wire.LocalProtocolError` for what AMQP can't carry.
        """
        if deadline_s is not None:
            return await self._publish_by(deadline_s, exchange, routing_key, body, properties, mandatory)
        session = self._session
        if session is None or len(self._queue) or session.room <= 0:
            found = await self._wait_room()
            if isinstance(found, InDoubt):
                return found
            session = found
        outcome: asyncio.Future[Outcome] = self._client.loop.create_future()
        header = properties if type(properties) is bytes else properties.raw  # type: ignore[union-attr]
        session.publish(exchange, routing_key, header, body, mandatory, outcome)
        return await outcome

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Outcome]:
        """Publishes many and returns the outcome of each, in order: one wait for all of them."""
        batch = Batch(len(messages))
        slot = 0
        while slot < len(messages):
            session = self._session
            room = 0 if session is None or len(self._queue) else session.room
            if session is None or room <= 0:
                found = await self._wait_room()
                if isinstance(found, InDoubt):
                    for rest in range(slot, len(messages)):
                        batch.put(rest, found)
                    break
                session, room = found, max(1, found.room)
            for exchange, routing_key, body, properties, mandatory in messages[slot : slot + room]:
                header = properties if type(properties) is bytes else properties.raw  # type: ignore[union-attr]
                session.publish(exchange, routing_key, header, body, mandatory, batch, slot)
                slot += 1
        await batch.done
        return batch.outcomes  # type: ignore[return-value]

    @property
    def in_flight(self) -> int:
        """How many messages wait for their outcome."""
        return 0 if self._session is None else self._session.in_flight

    async def wait_ready(self) -> None:
        """Until the first channel is open."""
        await asyncio.shield(self._ready)

    async def close(self) -> None:
        """Waits a moment for outcomes in flight, then closes the channel; what still waited is in doubt."""
        self._closing = True
        self._release_room()
        session = self._session
        if session is not None:
            waited_s = 0.0
            while session.in_flight and session.is_open and waited_s < _CLOSE_TIMEOUT_S:
                await asyncio.sleep(0.01)
                waited_s += 0.01
            await session.close()
        self._task.cancel()
        await asyncio.wait([self._task])
        self._release_room()

    async def _publish_by(
        self,
        deadline_s: float,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: wire.Properties | bytes,
        mandatory: bool,
    ) -> Outcome:
        sent = False
        try:
            async with asyncio.timeout(deadline_s):
                found = await self._wait_room()
                if isinstance(found, InDoubt):
                    return found
                outcome: asyncio.Future[Outcome] = self._client.loop.create_future()
                header = properties if isinstance(properties, bytes) else properties.raw
                found.publish(exchange, routing_key, header, body, mandatory, outcome)
                sent = True
                return await outcome
        except TimeoutError:
            return InDoubt(f"no outcome within {deadline_s:g} s", sent=sent)

    async def _wait_room(self) -> PublishSession | InDoubt:
        """A session with room, or the certainty that nothing was sent."""
        first = True
        while True:
            if self._closing:
                return InDoubt("the publisher was closed", sent=False)
            session = self._session
            if session is not None and session.room > 0 and (not first or not len(self._queue)):
                return session
            first = False
            if session is not None:
                session.waiting_for_room = True
                if not session.connection.writable:
                    await session.connection.wait_writable()
                    continue
            await self._queue.wait()

    def _release_room(self) -> None:
        session = self._session
        if self._closing or session is None:
            self._queue.release(len(self._queue) if self._closing else 0)
            return
        self._queue.release(session.room)
        session.waiting_for_room = len(self._queue) > 0

    async def _keep_open(self) -> None:
        """Opens a channel, watches it, opens the next one when it goes."""
        backoff = Backoff()
        while not self._closing:
            try:
                connection = await self._client.connection()
                session = PublishSession(self._window, self._release_room)
                await connection.open_session(session)
                await session.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
            except (ChannelClosed, ConnectionClosed) as error:
                self._client.observer.note("publisher.failed", reason=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self._session = session
            if not self._ready.done():
                self._ready.set_result(None)
            self._release_room()
            await asyncio.wait([session.closed])
            self._session = None
            if not self._closing:
                self._client.observer.note("publisher.channel_lost", reason=str(session.closed.result()))
