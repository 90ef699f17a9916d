"""The publisher: confirms always on, mandatory by default, exactly one outcome for each message.

It outlives connections: while there is none, publishing waits (up to its deadline). What was in flight when the
connection was lost is reported in doubt; the publisher never sends it again by itself.

It also outlives channels that go bad. RabbitMQ 3.10 nacks everything for a quorum queue, and never stops, on a
channel that first published to it while its leader was being elected after a node died; on another channel the same
queue confirms (observed on 3.10.8). A nack may as well mean a full queue, so a channel that nacks is replaced after a
second, then after two, four and so on, when nothing is in flight: that changes no outcome and no order.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from redrive import wire
from redrive.client.backoff import ReconnectBackoff
from redrive.client.errors import ClientError, ConnectionClosed
from redrive.client.publish_outcomes import InDoubt, Outcome
from redrive.client.publish_session import NO_DEADLINE, OutcomeSink, PublishBatch, PublishSession
from redrive.client.publish_window import PublishWindow
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
        self._in_flight_max = window
        self._session: PublishSession | None = None
        self._window = PublishWindow(self._free_slots)
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
        """Publishes one message and returns its outcome.

        Waits while the window is full, the broker blocks or there is no connection. `deadline_s` bounds the whole; when
        it passes the outcome is `InDoubt`, and the real one comes to its `late`. Raises `wire.LocalProtocolError`
        for what AMQP can't carry. A cancelled publish may or may not have been sent.
        """
        if deadline_s is not None:
            return await self._publish_by(deadline_s, exchange, routing_key, body, properties, mandatory)
        session = self._session
        if session is None or self._window.waiting or session.free_slots <= 0:
            found = await self._wait_for_slot()
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
        sink: OutcomeSink,
        *,
        deadline_s: float,
    ) -> bool:
        """Publishes one message, mandatory, without waiting; its outcome goes to `sink`.

        False where `publish` would have to wait: nothing was sent, and no outcome comes. Raises as `publish` does.
        """
        session = self._session
        if session is None or self._window.waiting or session.free_slots <= 0:
            return False
        until_s = self._client.loop.time() + deadline_s
        self._send(session, exchange, routing_key, body, properties, True, sink, until_s)
        return True

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Outcome]:
        """Publishes many and returns the outcome of each, in order: one wait for all of them.

        A message that AMQP can't carry is `InDoubt` with `sent` False and the reason; the others go on.
        """
        batch = PublishBatch(len(messages))
        slot = 0
        while slot < len(messages):
            session = self._session
            if session is None or self._window.waiting or session.free_slots <= 0:
                found = await self._wait_for_slot()
                if found is None:
                    for rest in range(slot, len(messages)):
                        batch.put(rest, _CLOSED)
                    break
                session = found
            # The slots promised to others are not ours.
            free = max(1, session.free_slots - self._window.promised)
            connection = session.connection
            for exchange, routing_key, body, properties, mandatory in messages[slot : slot + free]:
                header = properties if type(properties) is bytes else properties.raw  # type: ignore[union-attr]
                try:
                    session.publish(exchange, routing_key, header, body, mandatory, batch, slot)
                except wire.LocalProtocolError as error:
                    batch.put(slot, InDoubt(str(error), sent=False))
                slot += 1
                if not connection.writable:
                    break
        if self._window.waiting:
            self._window.release()
        await batch.done
        return batch.outcomes  # type: ignore[return-value]

    @property
    def in_flight(self) -> int:
        """How many messages wait for their outcome."""
        return 0 if self._session is None else self._session.in_flight

    async def wait_ready(self) -> None:
        """Waits until the first channel is open. Raises `ClientError` if it can't be opened."""
        await asyncio.shield(self._ready)

    async def close(self) -> None:
        """Waits a moment for outcomes in flight, then closes the channel; what is still in flight is in doubt."""
        self._closing = True
        self._window.release()
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
        if session is None or self._window.waiting or session.free_slots <= 0:
            try:
                async with asyncio.timeout_at(until_s):
                    session = await self._wait_for_slot()
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
        sink: OutcomeSink,
        until_s: float = NO_DEADLINE,
    ) -> None:
        header = properties if type(properties) is bytes else properties.raw  # type: ignore[union-attr]
        try:
            session.publish(exchange, routing_key, header, body, mandatory, sink, until_s=until_s)
        except wire.LocalProtocolError:
            self._window.release()  # the slot is still free, and no confirm will free it
            raise

    async def _wait_for_slot(self) -> PublishSession | None:
        """A session with a free slot, or None: the publisher was closed, and nothing was sent."""
        if not self._closing and (self._window.waiting or self._free_slots() <= 0):
            await self._window.wait()
        while not self._closing:
            session = self._session
            if session is not None and session.free_slots > 0:
                return session
            await self._window.wait(again=True)
        return None

    def _free_slots(self) -> int:
        """For the window. Once the publisher closes, every waiter is woken, to return."""
        if self._closing:
            return 1 << 30
        return 0 if self._session is None else self._session.free_slots

    async def _keep_open(self) -> None:
        """Opens a channel, waits until it ends, and opens the next one."""
        backoff = self._client.new_backoff()
        # From the same random source as the client's own pauses: a simulation that seeds those must stay repeatable.
        chance = self._client.new_backoff().random
        replacing = ReconnectBackoff(first_s=_REPLACE_FIRST_S, longest_s=_REPLACE_LONGEST_S, random=chance)
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
            self._window.release()
            replaced = await self._wait_end(session, replacing)
            self._session = None
            if not replaced:
                replacing.reset()
            if not self._closing:
                event = "publisher.channel_replaced" if replaced else "publisher.channel_lost"
                self._client.observer.note(event, reason=str(session.closed.result()))
        self._window.release()

    async def _wait_end(self, session: PublishSession, replacing: ReconnectBackoff) -> bool:
        """Waits until the channel is gone; true if we closed it because the broker nacked on it."""
        opened_s = self._client.loop.time()
        await asyncio.wait((session.closed, session.nacked), return_when=asyncio.FIRST_COMPLETED)
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
        session = await connection.open_session(
            lambda connection, number: PublishSession(
                connection, number, in_flight_max=self._in_flight_max, window=self._window
            )
        )
        try:
            await session.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        except BaseException:
            session.abandon()
            raise
        return session

    def _fail_ready(self, error: ClientError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # nobody may be waiting
