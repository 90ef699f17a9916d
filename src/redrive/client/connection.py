"""One AMQP connection: an asyncio protocol around `wire`, from the first byte to the last.

It owns the socket, the handshake, the heartbeats and the write buffer, and gives each event to its channel's session.
It never reconnects (see `client`) and never decides about messages (see `publisher` and `consumer`). Every wait here
ends when the connection does.

Writes are coalesced: whatever is sent in one turn of the event loop goes out in one socket write.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, cast

from redrive import wire
from redrive.client.amqp_url import BrokerTarget
from redrive.client.channel_session import ChannelSession
from redrive.client.consume_session import Delivery
from redrive.client.errors import (
    AuthenticationFailed,
    ChannelClosed,
    ChannelsExhausted,
    ConnectionClosed,
    ConnectionFailed,
    channel_closed,
)
from redrive.client.handshake import answer_start, explain, not_amqp, refusal
from redrive.client.heartbeats import Heartbeats
from redrive.client.read_pauses import ReadPauses
from redrive.core import NULL_OBSERVER, Observer
from redrive.wire import methods

_WRITE_BUFFER_HIGH = 1 << 20
_CLOSE_S_MAX = 5.0
_FIRST_BYTES = 16
_AMQP_BEGINS = (b"\x01", b"A")
"""A method's frame, or the protocol header of a broker that refuses ours."""
_CLOSE_BLOCKED_S_MAX = 1.0

_Session = TypeVar("_Session", bound=ChannelSession)

Dial: TypeAlias = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[object]]
"""Called with a protocol factory, a host and a port: connects the protocol. Raises OSError."""


class Connection(asyncio.Protocol):
    """An open connection; `Connection.open` makes one. `server_version` is what the broker says it is."""

    def __init__(self, target: BrokerTarget, *, where: str, name: str, observer: Observer = NULL_OBSERVER) -> None:
        self._target = target
        self._where = where
        self._name = name
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        limits = wire.Limits(channel_max=target.channel_max, frame_max=target.frame_max, heartbeat_s=target.heartbeat_s)
        self._wire = wire.Connection(wire.Side.CLIENT, limits)
        self._transport: asyncio.Transport | None = None
        self._sessions: dict[int, ChannelSession] = {}
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[ConnectionClosed] = self._loop.create_future()
        self._closing = False
        self._writers: list[Callable[[], None]] = []
        self._read_pauses = ReadPauses(self._loop)
        self._flushing = False
        self._reading = False
        self._heartbeats = Heartbeats(self._send_heartbeat, self.give_up)
        self._secret_updates: deque[asyncio.Future[None]] = deque()
        self.writable = True
        """False while the socket's buffer is full or the broker blocks publishers; `on_writable` says when it ends."""
        self._buffer_full = False
        self.server_properties: dict[str, Any] = {}
        self._first = b""
        """The first bytes from the other end, kept until it has begun with AMQP."""
        self._has_greeted = False

    # Opening and closing

    @classmethod
    async def open(
        cls,
        target: BrokerTarget,
        host: str,
        port: int,
        *,
        name: str,
        observer: Observer = NULL_OBSERVER,
        dial: Dial | None = None,
    ) -> "Connection":
        """Connects to one host. Raises `ConnectionFailed` or `AuthenticationFailed`; leaves nothing open behind.

        By TCP, unless `dial` makes the transport. Raises `InvalidUrl` if the target's TLS files can't be used.
        """
        where = f"{host}:{port}"
        connection = cls(target, where=where, name=name, observer=observer)
        tls = target.tls
        context = None if tls is None else tls.context()
        server_name = None if tls is None else (tls.server_name or host)
        opened = False
        try:
            async with asyncio.timeout(target.connect_timeout_s):
                if dial is not None:
                    await dial(lambda: connection, host, port)
                else:
                    await connection._loop.create_connection(
                        lambda: connection, host, port, ssl=context, server_hostname=server_name
                    )
                await connection._opened
            opened = True
        except TimeoutError:
            raise ConnectionFailed((f"{where} did not answer within {target.connect_timeout_s:g} s",)) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that can't be one, to the resolver
            raise ConnectionFailed((f"{where}: {explain(error)}",)) from None
        finally:
            if not opened:
                connection._abort("the connection could not be opened")
        return connection

    @property
    def heartbeat_s(self) -> int:
        """The agreed interval, 0 for none."""
        return self._wire.heartbeat_s

    @property
    def server_version(self) -> str:
        """The broker's version, "" if it does not say."""
        return str(self.server_properties.get("version", ""))

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._opened.done() and not self._closing and not self.closed.done()

    @property
    def blocked(self) -> str | None:
        """Why the broker blocks publishers, None while it does not."""
        return self._wire.blocked

    @property
    def close_timeout_s(self) -> float:
        """How long a close waits for the broker's answer. A broker that blocks publishers does not even read it."""
        return _CLOSE_S_MAX if self._wire.blocked is None else _CLOSE_BLOCKED_S_MAX

    async def close(self) -> None:
        """Closes with connection.close, or after a moment without its answer.

        Raises only when cancelled, and then the connection is closed too.
        """
        try:
            if not self._closing and not self.closed.done():
                with contextlib.suppress(wire.LocalProtocolError):
                    for session in self._sessions.values():
                        session.on_closing()
                    self.flush()
                    self._closing = True
                    self._wire.close(200, "goodbye")
                    self.flush()
            await asyncio.wait([self.closed], timeout=self.close_timeout_s)
        finally:
            self._abort("closed by us; the broker did not answer")

    async def update_secret(self, secret: str, reason: str) -> None:
        """Gives the broker a new secret (an OAuth token) for this connection. Raises `ConnectionClosed`."""
        self.send(0, methods.ConnectionUpdateSecret(new_secret=secret.encode(), reason=reason))
        done: asyncio.Future[None] = self._loop.create_future()
        self._secret_updates.append(done)
        await done

    def give_up(self, reason: str) -> None:
        """Drops the connection: every wait on it ends with `reason`."""
        self._abort(reason)

    # Channels

    async def open_session(self, make: Callable[["Connection", int], _Session]) -> _Session:
        """Opens a channel for the session that `make` makes from this connection and a channel number.

        Raises `ConnectionClosed` or `ChannelsExhausted`.
        """
        self._check_open()
        number = self._wire.free_channel()
        if number is None:
            raise ChannelsExhausted(self._wire.channel_max)
        session = make(self, number)
        self._sessions[number] = session
        try:
            await session.call(methods.ChannelOpen(), methods.ChannelOpenOk)
        except BaseException:
            session.abandon()
            raise
        return session

    def forget(self, session: ChannelSession) -> None:
        """A session has ended: its number is free again."""
        if self._sessions.get(session.number) is session:
            del self._sessions[session.number]

    # Sending

    def send(self, channel: int, method: methods.Method) -> None:
        """Queues a cold method. Raises `ConnectionClosed`, or `wire.LocalProtocolError` where it is not allowed."""
        self._check_open()
        self._wire.send(channel, method)
        self.flush_soon()

    @property
    def amqp(self) -> wire.Connection:
        """For the hot path: call its publish, ack, nack or reject, then `flush_soon`."""
        return self._wire

    def flush_soon(self) -> None:
        """Writes what was queued at the end of this turn of the event loop, with all else of this turn."""
        if not self._flushing and not self._reading:
            self._flushing = True
            self._loop.call_soon(self._flush_now)

    def before_flush(self, write: Callable[[], None]) -> None:
        """Calls `write` once, just before the next flush: coalesced acks are sent there."""
        self._writers.append(write)
        self.flush_soon()

    def flush(self) -> None:
        """Writes what was queued, now."""
        if self._writers:
            writers, self._writers = self._writers, []
            for write in writers:
                write()
        data = self._wire.data_to_send()
        if data and self._transport is not None:
            self._heartbeats.sent = True
            self._transport.write(data)

    def _flush_now(self) -> None:
        self._flushing = False
        self.flush()

    def pause_reading(self, seconds: float) -> None:
        """Reads nothing for a moment, so that more is read at once then (see `read_pauses`)."""
        if self._transport is not None:
            self._read_pauses.pause(self._transport, seconds)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is connected."""
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        if self.closed.done():
            transport.abort()  # `open` has given up already
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            # With heartbeats off this is what notices, in the end, that the broker's machine is gone.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._wire.send_protocol_header()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came. All of their events are handled before anything is written."""
        self._heartbeats.received = True
        self._reading = True
        if not self._has_greeted:
            self._first = (self._first + data)[:_FIRST_BYTES]
        sessions = self._sessions
        try:
            for event in self._wire.receive_data(data):
                kind = type(event)
                if kind is Delivery:
                    sessions[event.channel].on_delivery(event)  # type: ignore[arg-type]
                elif kind is wire.Ack:
                    sessions[event.channel].on_ack(event)  # type: ignore[arg-type]
                elif kind is wire.Command and event.channel == 0:
                    self._on_connection_method(event.method)  # type: ignore[union-attr]
                elif event.channel:
                    self._on_channel_event(event)
        except wire.RemoteProtocolError as error:
            is_stranger = not self._has_greeted and not self._first.startswith(_AMQP_BEGINS)
            text = not_amqp(self._first) if is_stranger else f"the broker broke the protocol: {error}"
            self._end(ConnectionClosed(text))
        except AuthenticationFailed as error:
            self._fail_open(error)
        except wire.LocalProtocolError as error:  # a vhost or user that AMQP can't carry
            self._fail_open(ConnectionFailed((f"{self._where}: {error}",)))
        finally:
            self._reading = False
        self.flush()
        if self.closed.done() and self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """asyncio: the socket's buffer is full."""
        self._buffer_full = True
        self._decide_writable()

    def resume_writing(self) -> None:
        """asyncio: the socket's buffer has room again."""
        self._buffer_full = False
        self._decide_writable()

    def eof_received(self) -> None:
        """asyncio: the broker hung up."""

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the socket is gone."""
        self._transport = None
        lost = "the connection was lost" + (f": {explain(error)}" if error else "")
        is_stranger = not self._has_greeted and not self._first.startswith(_AMQP_BEGINS)
        self._end(ConnectionClosed(not_amqp(self._first) if is_stranger and error is None else lost))

    # Receiving

    def _on_channel_event(self, event: wire.Event) -> None:
        session = self._sessions.get(event.channel)
        if session is None:
            return
        match event:
            case wire.Command(method=methods.ChannelClose() as close):
                self.forget(session)
                session.end(channel_closed(close.reply_code, close.reply_text))
            case wire.Command(method=methods.ChannelCloseOk()):
                self.forget(session)
                session.end(ChannelClosed(200, "closed by us"))
            case wire.Command(method=method):
                session.on_method(method)
            case wire.Got():
                session.on_got(event)
            case wire.Nack():
                session.on_nack(event)
            case wire.Returned():
                session.on_returned(event)

    def _on_connection_method(self, method: methods.Method) -> None:
        match method:
            case methods.ConnectionStart():
                self._has_greeted = True
                self.server_properties = dict(method.server_properties)
                self._wire.send(0, answer_start(method, self._target, name=self._name))
            case methods.ConnectionSecure():
                raise AuthenticationFailed(
                    (f"the broker sent a SASL challenge, which {self._target.mechanism} does not have",)
                )
            case methods.ConnectionTune():
                self._wire.answer_tune(method)
                self._wire.send(0, methods.ConnectionOpen(virtual_host=self._target.vhost))
            case methods.ConnectionOpenOk():
                self._heartbeats.start(self._wire.heartbeat_s)
                _finish(self._opened)
            case methods.ConnectionClose(reply_code=code, reply_text=text):
                if not self._opened.done():
                    self._fail_open(refusal(code, text, where=self._where))
                self._end(ConnectionClosed(text, code))
            case methods.ConnectionCloseOk():
                self._end(ConnectionClosed("closed by us", 200))
            case methods.ConnectionBlocked():
                self._observer.note("client.blocked", reason=method.reason)
                self._decide_writable()
            case methods.ConnectionUnblocked():
                self._observer.note("client.unblocked")
                self._decide_writable()
            case methods.ConnectionUpdateSecretOk():
                if self._secret_updates:
                    _finish(self._secret_updates.popleft())

    def _decide_writable(self) -> None:
        self.writable = not self._buffer_full and self._wire.blocked is None
        if self.writable:
            for session in tuple(self._sessions.values()):
                session.on_writable()

    def _send_heartbeat(self) -> None:
        with contextlib.suppress(wire.LocalProtocolError):
            self._wire.send_heartbeat()
            self.flush()

    # Ending

    def _fail_open(self, error: ConnectionFailed) -> None:
        """Opening has failed; `data_received` hangs up when it has sent what there is to send."""
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # `open` may have given up already
        self._end(ConnectionClosed(str(error)))

    def _end(self, error: ConnectionClosed) -> None:
        """Ends every wait on this connection with `error`; the second call does nothing."""
        if self.closed.done():
            return
        self.closed.set_result(error)
        self._heartbeats.stop()
        # Acks that were not sent yet are not sent: the broker requeues their messages anyway. What `wire` has queued
        # (connection.close or its close-ok) goes out.
        self._writers.clear()
        self.flush()
        self._wire.receive_eof()
        if not self._opened.done():
            self._opened.set_exception(ConnectionFailed((f"{self._where}: {error}",)))
            self._opened.exception()
        while self._secret_updates:
            waiter = self._secret_updates.popleft()
            if not waiter.done():
                waiter.set_exception(error)
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            session.end(error)

    def _abort(self, reason: str) -> None:
        self._end(ConnectionClosed(reason))
        if self._transport is not None:
            self._transport.abort()

    def _check_open(self) -> None:
        if self.closed.done():
            raise self.closed.result().with_traceback(None)
        if self._closing:
            raise ConnectionClosed("closed by us", 200)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
