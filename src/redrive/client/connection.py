"""One AMQP connection: an asyncio protocol around `wire`, from the first byte to the last.

It owns the socket, the handshake, the heartbeats, the write buffer and which channel gets which event. It never
reconnects (see `client`) and never decides about messages (see `publisher` and `consumer`). Everything that waits here
ends when the connection does.

Writes are coalesced: whatever is said in one turn of the event loop goes out in one socket write.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from redrive import wire
from redrive.client.consumer import Delivery
from redrive.client.errors import (
    AuthenticationFailed,
    ChannelClosed,
    ConnectionClosed,
    ConnectionFailed,
    channel_closed,
)
from redrive.client.session import ChannelSession
from redrive.client.uri import Target
from redrive.core import SILENT, Observer
from redrive.wire import methods

_WRITE_BUFFER_HIGH = 1 << 20
_CLOSE_TIMEOUT_S = 5.0


class _Wire(wire.Connection):
    """Deliveries that can be settled."""

    delivery_type = Delivery


class Connection(asyncio.Protocol):
    """An open connection; `Connection.open` makes one. `server_version` is what the broker says it is."""

    def __init__(self, target: Target, *, name: str, observer: Observer = SILENT) -> None:
        self._target = target
        self._name = name
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        limits = wire.Limits(channel_max=target.channel_max, frame_max=target.frame_max, heartbeat_s=target.heartbeat_s)
        self._wire = _Wire(wire.Role.CLIENT, limits)
        self._transport: asyncio.Transport | None = None
        self._sessions: dict[int, ChannelSession] = {}
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[ConnectionClosed] = self._loop.create_future()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._writers: list[Callable[[], None]] = []
        self._flushing = False
        self._reading = False
        self._heard = True
        self._spoke = False
        self._silent_beats = 0
        self._beat: asyncio.TimerHandle | None = None
        self._secret_updates: deque[asyncio.Future[None]] = deque()
        self.writable = True
        """False while the socket's buffer is full or the broker blocks publishers; see `wait_writable`."""
        self._buffer_full = False
        self.server_properties: dict[str, Any] = {}

    # Life

    @classmethod
    async def open(
        cls, target: Target, host: str, port: int, *, name: str, observer: Observer = SILENT
    ) -> "Connection":
        """Connects to one host. Raises `ConnectionFailed` or `AuthenticationFailed`; leaves nothing open behind."""
        loop = asyncio.get_running_loop()
        where = f"{host}:{port}"
        connection = cls(target, name=name, observer=observer)
        tls = target.tls
        try:
            async with asyncio.timeout(target.connect_timeout_s):
                await loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=None if tls is None else tls.context(),
                    server_hostname=None if tls is None else (tls.server_name or host),
                )
                await connection._opened
        except TimeoutError:
            connection._abort()
            raise ConnectionFailed((f"{where} did not answer within {target.connect_timeout_s:g} s",)) from None
        except OSError as error:
            connection._abort()
            raise ConnectionFailed((f"{where}: {error.strerror or error}",)) from None
        except asyncio.CancelledError:
            connection._abort()
            raise
        return connection

    @property
    def server_version(self) -> str:
        """The broker's version, "" if it does not say."""
        return str(self.server_properties.get("version", ""))

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return not self.closed.done() and self._opened.done()

    @property
    def blocked(self) -> str | None:
        """Why the broker blocks publishers, None while it does not."""
        return self._wire.blocked

    async def close(self) -> None:
        """Closes in order, or after a moment without; never raises."""
        if self.closed.done():
            return
        with contextlib.suppress(wire.ProtocolError):
            self._wire.close(200, "goodbye")
            self.flush()
        _, waiting = await asyncio.wait([self.closed], timeout=_CLOSE_TIMEOUT_S)
        if waiting:
            self._abort()

    async def update_secret(self, secret: str, reason: str) -> None:
        """Gives the broker a new secret (an OAuth token) for this connection."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._secret_updates.append(done)
        self.send(0, methods.ConnectionUpdateSecret(new_secret=secret.encode(), reason=reason))
        await done

    # Channels

    async def open_session(self, session: ChannelSession) -> None:
        """Gives a session a channel of its own. Raises `ConnectionClosed`."""
        self._check_open()
        number = self._wire.free_channel()
        if number is None:
            raise ConnectionClosed(f"all {self._wire.channel_max} channels of the connection are in use")
        session.attach(self, number)
        self._sessions[number] = session
        try:
            await session.call(methods.ChannelOpen(), methods.ChannelOpenOk)
        except asyncio.CancelledError:
            with contextlib.suppress(ConnectionClosed, wire.LocalProtocolError):
                self.send(number, methods.ChannelClose())
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
            self._spoke = True
            self._transport.write(data)

    async def wait_writable(self) -> None:
        """Returns when publishing makes sense, or the connection is gone."""
        while not self.writable and not self.closed.done():
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def _flush_now(self) -> None:
        self._flushing = False
        self.flush()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH)
        self._wire.send_protocol_header()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came. Everything they say is handled before anything is answered."""
        self._heard = True
        self._reading = True
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
            self._end(ConnectionClosed(f"the broker broke the protocol: {error}"))
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
        self._end(ConnectionClosed(f"the connection was lost{f': {error}' if error else ''}"))

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
                self._answer_start(method)
            case methods.ConnectionSecure():
                self._refuse(
                    AuthenticationFailed((f"the broker asks for a challenge {self._target.mechanism} has not",))
                )
            case methods.ConnectionTune():
                self._wire.answer_tune(method)
                self._wire.send(0, methods.ConnectionOpen(virtual_host=self._target.vhost))
            case methods.ConnectionOpenOk():
                self._start_heartbeats()
                if not self._opened.done():
                    self._opened.set_result(None)
            case methods.ConnectionClose():
                self._on_close(method.reply_code, method.reply_text)
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

    def _answer_start(self, start: methods.ConnectionStart) -> None:
        self.server_properties = dict(start.server_properties)
        target = self._target
        if target.mechanism not in start.mechanisms.split():
            offered = ", ".join(start.mechanisms.split())
            self._refuse(AuthenticationFailed((f"the broker does not offer {target.mechanism}, only {offered}",)))
            return
        response = b""  # EXTERNAL: the certificate says it all
        if target.mechanism == "PLAIN":
            response = wire.plain_response(target.user, target.password)
        elif target.mechanism == "AMQPLAIN":
            response = wire.amqplain_response(target.user, target.password)
        properties = {
            "product": "Redrive",
            "platform": "Python",
            "connection_name": self._name,
            "capabilities": dict.fromkeys(
                (
                    "authentication_failure_close",
                    "basic.nack",
                    "connection.blocked",
                    "consumer_cancel_notify",
                    "publisher_confirms",
                ),
                True,
            ),
        }
        self._wire.send(
            0,
            methods.ConnectionStartOk(client_properties=properties, mechanism=target.mechanism, response=response),
        )

    def _on_close(self, code: int, text: str) -> None:
        if not self._opened.done():
            # 403 is "who are you"; 530 "not allowed" is an unknown vhost or one this user may not enter.
            failed = AuthenticationFailed if code in (403, 530) else ConnectionFailed
            self._refuse(failed((f"{self._target.address}: {code} {text}",)))
        self._end(ConnectionClosed(text, code))

    def _refuse(self, error: ConnectionFailed) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)
        self._abort()

    def _decide_writable(self) -> None:
        self.writable = not self._buffer_full and self._wire.blocked is None
        if self.writable:
            while self._waiting:
                _finish(self._waiting.popleft())

    # Heartbeats

    def _start_heartbeats(self) -> None:
        if self._wire.heartbeat_s:
            self._beat = self._loop.call_later(self._wire.heartbeat_s / 2, self._on_beat)

    def _on_beat(self) -> None:
        """Every half interval: say something if nothing was said, give up after two intervals of silence."""
        if not self._heard:
            self._silent_beats += 1
            if self._silent_beats >= 4:
                silence_s = self._wire.heartbeat_s * 2
                self._end(ConnectionClosed(f"the broker was silent for {silence_s} s (no heartbeat)"))
                self._abort()
                return
        else:
            self._silent_beats = 0
        self._heard = False
        if not self._spoke:
            with contextlib.suppress(wire.ProtocolError):
                self._wire.send_heartbeat()
                self.flush()
        self._spoke = False
        self._beat = self._loop.call_later(self._wire.heartbeat_s / 2, self._on_beat)

    # The end

    def _end(self, error: ConnectionClosed) -> None:
        """Once: everything that waits on this connection ends with `error`."""
        if self.closed.done():
            return
        self.closed.set_result(error)
        if self._beat is not None:
            self._beat.cancel()
        self.flush()
        self._wire.receive_eof()
        if not self._opened.done():
            where = f"{self._target.address}: {error}"
            self._opened.set_exception(ConnectionFailed((where,)))
            self._opened.exception()  # whoever opens may be gone already
        for waiter in (*self._waiting, *self._secret_updates):
            _finish(waiter)
        self._waiting.clear()
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            session.end(error)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(ConnectionClosed("the connection was given up"))

    def _check_open(self) -> None:
        if self.closed.done():
            raise self.closed.result()


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
