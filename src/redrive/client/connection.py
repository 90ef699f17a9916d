"""One AMQP connection: an asyncio protocol around `wire`, from the first byte to the last.

It owns the socket, the handshake, the heartbeats, the write buffer and which channel gets which event. It never
reconnects (see `client`) and never decides about messages (see `publisher` and `consumer`). Everything that waits here
ends when the connection does.

Writes are coalesced: whatever is said in one turn of the event loop goes out in one socket write.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from redrive import wire
from redrive.client.consuming import Delivery
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
from redrive.client.resting import Resting
from redrive.client.session import ChannelSession
from redrive.client.uri import Target
from redrive.core import SILENT, Observer
from redrive.wire import methods

_WRITE_BUFFER_HIGH = 1 << 20
_PATIENCE_S = 5.0
_FIRST_BYTES = 16
_AMQP_BEGINS = (b"\x01", b"A")
"""A method's frame, or the protocol header of a broker that refuses ours."""
_PATIENCE_BLOCKED_S = 1.0

Dial: TypeAlias = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[object]]
"""Connects the protocol it is given the maker of to a host and port. Raises OSError."""


class _Wire(wire.Connection):
    """Deliveries that can be settled."""

    delivery_type = Delivery


class Connection(asyncio.Protocol):
    """An open connection; `Connection.open` makes one. `server_version` is what the broker says it is."""

    def __init__(self, target: Target, *, where: str, name: str, observer: Observer = SILENT) -> None:
        self._target = target
        self._where = where
        self._name = name
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        limits = wire.Limits(channel_max=target.channel_max, frame_max=target.frame_max, heartbeat_s=target.heartbeat_s)
        self._wire = _Wire(wire.Role.CLIENT, limits)
        self._transport: asyncio.Transport | None = None
        self._sessions: dict[int, ChannelSession] = {}
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[ConnectionClosed] = self._loop.create_future()
        self._closing = False
        self._writers: list[Callable[[], None]] = []
        self._resting = Resting(self._loop)
        self._flushing = False
        self._reading = False
        self._heartbeats = Heartbeats(self._say_heartbeat, self.give_up)
        self._secret_updates: deque[asyncio.Future[None]] = deque()
        self.writable = True
        """False while the socket's buffer is full or the broker blocks publishers; sessions hear when it ends."""
        self._buffer_full = False
        self.server_properties: dict[str, Any] = {}
        self._first = b""
        """How the other end began, as long as it has not begun with AMQP."""
        self._has_greeted = False

    # Life

    @classmethod
    async def open(
        cls,
        target: Target,
        host: str,
        port: int,
        *,
        name: str,
        observer: Observer = SILENT,
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
                connection._abort("no connection came about")
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
    def patience_s(self) -> float:
        """How long a close may wait for the broker's word. One that blocks publishers does not even read ours."""
        return _PATIENCE_S if self._wire.blocked is None else _PATIENCE_BLOCKED_S

    async def close(self) -> None:
        """Closes in order, or after a moment without; never raises but when cancelled, and then it is closed too."""
        try:
            if not self._closing and not self.closed.done():
                with contextlib.suppress(wire.LocalProtocolError):
                    for session in self._sessions.values():
                        session.on_closing()
                    self.flush()
                    self._closing = True
                    self._wire.close(200, "goodbye")
                    self.flush()
            await asyncio.wait([self.closed], timeout=self.patience_s)
        finally:
            self._abort("closed by us; the broker did not answer")

    async def update_secret(self, secret: str, reason: str) -> None:
        """Gives the broker a new secret (an OAuth token) for this connection. Raises `ConnectionClosed`."""
        self.send(0, methods.ConnectionUpdateSecret(new_secret=secret.encode(), reason=reason))
        done: asyncio.Future[None] = self._loop.create_future()
        self._secret_updates.append(done)
        await done

    def give_up(self, reason: str) -> None:
        """There is no point in going on: everything that waits ends with `reason`."""
        self._abort(reason)

    # Channels

    async def open_session(self, session: ChannelSession) -> None:
        """Gives a session a channel of its own. Raises `ConnectionClosed` or `ChannelsExhausted`."""
        self._check_open()
        number = self._wire.free_channel()
        if number is None:
            raise ChannelsExhausted(self._wire.channel_max)
        session.attach(self, number)
        self._sessions[number] = session
        try:
            await session.call(methods.ChannelOpen(), methods.ChannelOpenOk)
        except asyncio.CancelledError:
            session.abandon()
            raise

    def forget(self, session: ChannelSession) -> None:
        """A session is over: its number is free again."""
        if self._sessions.get(session.number) is session:
            del self._sessions[session.number]

    # Speaking

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
        """What was queued goes out at the end of this turn of the event loop, together with all else of this turn."""
        if not self._flushing and not self._reading:
            self._flushing = True
            self._loop.call_soon(self._flush_now)

    def before_flush(self, write: Callable[[], None]) -> None:
        """`write` is called once more before the next flush: coalesced acks are said there."""
        self._writers.append(write)
        self.flush_soon()

    def flush(self) -> None:
        """What was queued goes out now."""
        if self._writers:
            writers, self._writers = self._writers, []
            for write in writers:
                write()
        data = self._wire.data_to_send()
        if data and self._transport is not None:
            self._heartbeats.spoke = True
            self._transport.write(data)

    def _flush_now(self) -> None:
        self._flushing = False
        self.flush()

    def rest(self, seconds: float) -> None:
        """Reads nothing for a moment, so that more comes at once then."""
        if self._transport is not None:
            self._resting.rest(self._transport, seconds)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is there."""
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        if self.closed.done():
            transport.abort()  # whoever opens has given up
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
        """asyncio: bytes came. Everything they say is handled before anything is answered."""
        self._heartbeats.heard = True
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
                    sessions[event.channel].on_confirm(event)  # type: ignore[arg-type]
                elif kind is wire.Command and event.channel == 0:
                    self._on_connection_method(event.method)  # type: ignore[union-attr]
                elif event.channel:
                    self._on_channel_event(event)
        except wire.RemoteProtocolError as error:
            is_stranger = not self._has_greeted and not self._first.startswith(_AMQP_BEGINS)
            text = not_amqp(self._first) if is_stranger else f"the broker broke the protocol: {error}"
            self._end(ConnectionClosed(text))
        except AuthenticationFailed as error:
            self._refuse(error)
        except wire.LocalProtocolError as error:  # a vhost or user that AMQP can't carry
            self._refuse(ConnectionFailed((f"{self._where}: {error}",)))
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
        """asyncio: there is room again."""
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

    # Listening

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
                session.on_refusal(event)
            case wire.Returned():
                session.on_returned(event)

    def _on_connection_method(self, method: methods.Method) -> None:
        match method:
            case methods.ConnectionStart():
                self._has_greeted = True
                self.server_properties = dict(method.server_properties)
                self._wire.send(0, answer_start(method, self._target, name=self._name))
            case methods.ConnectionSecure():
                raise AuthenticationFailed((f"the broker asks for a challenge {self._target.mechanism} has not",))
            case methods.ConnectionTune():
                self._wire.answer_tune(method)
                self._wire.send(0, methods.ConnectionOpen(virtual_host=self._target.vhost))
            case methods.ConnectionOpenOk():
                self._heartbeats.start(self._wire.heartbeat_s)
                _finish(self._opened)
            case methods.ConnectionClose(reply_code=code, reply_text=text):
                if not self._opened.done():
                    self._refuse(refusal(code, text, where=self._where))
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

    def _say_heartbeat(self) -> None:
        with contextlib.suppress(wire.LocalProtocolError):
            self._wire.send_heartbeat()
            self.flush()

    # The end

    def _refuse(self, error: ConnectionFailed) -> None:
        """No connection comes about; `data_received` hangs up when it has sent what there is to send."""
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # whoever opens may be gone already
        self._end(ConnectionClosed(str(error)))

    def _end(self, error: ConnectionClosed) -> None:
        """Once: everything that waits on this connection ends with `error`."""
        if self.closed.done():
            return
        self.closed.set_result(error)
        self._heartbeats.stop()
        # Acks that were not said yet stay unsaid: the broker takes their messages back anyway. What `wire` has to say
        # (connection.close and its close-ok) goes out.
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
