"""The publisher: confirms always on, mandatory by default, exactly one outcome for each message.

It outlives connections: while there is none, publishing waits (up to its deadline); what was in flight when one went
is reported in doubt, never sent again behind the caller's back.

It also outlives channels that went bad. RabbitMQ 3.10 nacks everything for a quorum queue, and never stops, on a
channel that first published to it while its leader was being elected after a node died; on another channel the same
queue confirms (observed on 3.10.8). A nack may as well mean a full queue, so a channel that nacks is replaced after a
second, then after two, four and so on, when nothing is in flight: no outcome and no order is touched by it.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from redrive import wire
from redrive.client.backoff import Backoff
from redrive.client.errors import ClientError, ConnectionClosed
from redrive.client.outcomes import InDoubt, Outcome
from redrive.client.publishing import NO_DEADLINE, Batch, PublishSession, Sink
from redrive.client.room import RoomQueue
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.client import Client

_PERSISTENT = wire.Properties.of(delivery_mode=2)
_CLOSED = InDoubt("the publisher was closed", sent=False)
_REPLACE_FIRST_S, _REPLACE_LONGEST_S = 1.0, 60.0


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
        self._queue = RoomQueue(self._room)
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
        it passes the outcome is `InDoubt`, with the real one in its `late` some day. Raises `wire.LocalProtocolError`
        for what AMQP can't carry. A cancelled publish may or may not have been sent.
        """
        if deadline_s is not None:
            return await self._publish_by(deadline_s, exchange, routing_key, body, properties, mandatory)
        session = self._session
        if session is None or self._queue.waiting or session.room <= 0:
            found = await self._wait_room()
            if found is None:
                return _CLOSED
            session = found
        outcome: asyncio.Future[Outcome] = self._client.loop.create_future()
        self._send(session, exchange, routing_key, body, properties, mandatory, outcome)
        return await outcome

    def publish_now(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: wire.Properties | bytes,
        sink: Sink,
        *,
        deadline_s: float,
    ) -> bool:
        """Publishes one message, mandatory, without waiting; its outcome is told to `sink`.

        False, and nothing was sent and nothing will be told, where `publish` would have to wait. Raises as that does.
        """
        session = self._session
        if session is None or self._queue.waiting or session.room <= 0:
            return False
        until_s = self._client.loop.time() + deadline_s
        self._send(session, exchange, routing_key, body, properties, True, sink, until_s)
        return True

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Outcome]:
        """Publishes many and returns the outcome of each, in order: one wait for all of them.

        A message that AMQP can't carry is `InDoubt` with `sent` False and the reason; the others are not held up by it.
        """
        batch = Batch(len(messages))
        slot = 0
        while slot < len(messages):
            session = self._session
            if session is None or self._queue.waiting or session.room <= 0:
                found = await self._wait_room()
                if found is None:
                    for rest in range(slot, len(messages)):
                        batch.put(rest, _CLOSED)
                    break
                session = found
            # Those who were promised a place before us keep it.
            room = max(1, session.room - self._queue.promised)
            connection = session.connection
            for exchange, routing_key, body, properties, mandatory in messages[slot : slot + room]:
                header = properties if type(properties) is bytes else properties.raw  # type: ignore[union-attr]
                try:
                    session.publish(exchange, routing_key, header, body, mandatory, batch, slot)
                except wire.LocalProtocolError as error:
                    batch.put(slot, InDoubt(str(error), sent=False))
                slot += 1
                if not connection.writable:
                    break
        if self._queue.waiting:
            self._queue.release()
        await batch.done
        return batch.outcomes  # type: ignore[return-value]

    @property
    def in_flight(self) -> int:
        """How many messages wait for their outcome."""
        return 0 if self._session is None else self._session.in_flight

    async def wait_ready(self) -> None:
        """Until the first channel is open. Raises `ClientError` if that can't be."""
        await asyncio.shield(self._ready)

    async def close(self) -> None:
        """Waits a moment for outcomes in flight, then closes the channel; what still waited is in doubt."""
        self._closing = True
        self._queue.release()
        session = self._session
        if session is not None:
            if await session.wait_settled():
                await session.close()
            else:
                session.end_unanswered()
        self._task.cancel()
        await asyncio.wait([self._task])
        self._fail_ready(ConnectionClosed("the publisher was closed"))
        self._client.forget(self)

    async def _publish_by(
        self,
        deadline_s: float,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: wire.Properties | bytes,
        mandatory: bool,
    ) -> Outcome:
        loop = self._client.loop
        until_s = loop.time() + deadline_s
        session = self._session
        if session is None or self._queue.waiting or session.room <= 0:
            try:
                async with asyncio.timeout_at(until_s):
                    session = await self._wait_room()
            except TimeoutError:
                return InDoubt(f"no outcome within {deadline_s:g} s", sent=False)
            if session is None:
                return _CLOSED
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._send(session, exchange, routing_key, body, properties, mandatory, outcome, until_s)
        ended = await outcome
        if type(ended) is InDoubt and ended.late is not None:
            return InDoubt(f"no outcome within {deadline_s:g} s", late=ended.late)
        return ended

    def _send(
        self,
        session: PublishSession,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: wire.Properties | bytes,
        mandatory: bool,
        sink: Sink,
        until_s: float = NO_DEADLINE,
    ) -> None:
        header = properties if type(properties) is bytes else properties.raw  # type: ignore[union-attr]
        try:
            session.publish(exchange, routing_key, header, body, mandatory, sink, until_s=until_s)
        except wire.LocalProtocolError:
            self._queue.release()  # the place is still free, and no confirm will say so
            raise

    async def _wait_room(self) -> PublishSession | None:
        """A session with room, or None: the publisher was closed, and nothing was sent."""
        if not self._closing and (self._queue.waiting or self._room() <= 0):
            await self._queue.wait()
        while not self._closing:
            session = self._session
            if session is not None and session.room > 0:
                return session
            await self._queue.wait(again=True)
        return None

    def _room(self) -> int:
        """For the queue. When all is over everybody may go, to be told so."""
        if self._closing:
            return 1 << 30
        return 0 if self._session is None else self._session.room

    async def _keep_open(self) -> None:
        """Opens a channel, watches it, opens the next one when it goes."""
        backoff = self._client.new_backoff()
        # Drawn as the client's own pauses are: a simulation that seeds those must not meet chance here.
        chance = self._client.new_backoff().random
        replacing = Backoff(first_s=_REPLACE_FIRST_S, longest_s=_REPLACE_LONGEST_S, random=chance)
        while not self._closing:
            try:
                session = await self._open_session()
            except ClientError as error:
                if self._client.is_closed or not (self._ready.done() or isinstance(error, ConnectionClosed)):
                    self._closing = True
                    self._fail_ready(error)
                    break
                self._client.observer.note("publisher.failed", reason=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self._session = session
            if not self._ready.done():
                self._ready.set_result(None)
            self._queue.release()
            replaced = await self._wait_end(session, replacing)
            self._session = None
            if not replaced:
                replacing.reset()
            if not self._closing:
                event = "publisher.channel_replaced" if replaced else "publisher.channel_lost"
                self._client.observer.note(event, reason=str(session.closed.result()))
        self._queue.release()

    async def _wait_end(self, session: PublishSession, replacing: Backoff) -> bool:
        """Until the channel is gone; true if that was because it nacked and we closed it."""
        opened_s = self._client.loop.time()
        await asyncio.wait((session.closed, session.refused), return_when=asyncio.FIRST_COMPLETED)
        if self._client.loop.time() - opened_s > _REPLACE_LONGEST_S:
            replacing.reset()
        while not session.closed.done():
            await asyncio.wait([session.closed], timeout=replacing.next_s())
            if self._closing or session.closed.done():
                await asyncio.wait([session.closed])
            elif await session.wait_settled():
                await session.close()
                return True
            elif not self._closing:
                session.resume()
        return False

    async def _open_session(self) -> PublishSession:
        connection = await self._client.connection()
        session = PublishSession(self._window, self._queue)
        try:
            await connection.open_session(session)
            await session.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        except BaseException:
            session.abandon()
            raise
        return session

    def _fail_ready(self, error: ClientError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # nobody may be waiting
