"""One client's AMQP session: wire events in, engine commands out, and effects back onto the wire. No I/O.

An AmqpError becomes channel.close or connection.close here, with RabbitMQ's code and text and the method it is about.
The host (the server) carries bytes, keeps the sessions and their order, and passes the time to the engine.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol

from redrive import wire
from redrive.embedded.confirms import Confirms
from redrive.embedded.credentials import IMPERSONATOR, MECHANISMS, check_login, has_capability, server_properties
from redrive.embedded.engine import (
    AmqpError,
    BasicReturn,
    Channel,
    Confirm,
    ConfirmNack,
    Connection,
    ConsumerTimedOut,
    Deliver,
    Effect,
    Engine,
    GetOk,
)
from redrive.embedded.faults import FaultAction, Faults
from redrive.embedded.method_handlers import run_command
from redrive.wire import methods

_PUBLISH, _ACK, _REJECT, _NACK = 0x003C0028, 0x003C0050, 0x003C005A, 0x003C0078
_TEXT_BYTES_MAX = 255
_CHANNEL_NUMBER_MAX = 65_535


class SessionHost(Protocol):
    """What a session needs of the server it is part of."""

    engine: Engine
    users: Mapping[str, str]
    tags: Mapping[str, Collection[str]]
    limits: wire.Limits
    faults: Faults

    def attach(self, connection: Connection, session: "ClientSession") -> None:
        """The session belongs to that connection from now on."""

    def dispatch_effects(self) -> None:
        """Pass the engine's effects to the sessions they are for."""

    def cut(self, session: "ClientSession") -> None:
        """Cut the session's transport without connection.close."""

    def call_after(self, delay_ms: int, session: "ClientSession | None", action: Callable[[], None]) -> None:
        """Run something for a session after so many of the broker's milliseconds."""

    def block_for(self, delay_ms: int) -> None:
        """Block publishers for so long."""

    def restart(self) -> None:
        """Cut all connections and forget what is not durable."""


class ClientSession:
    """A client's connection, from its first byte to its last."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._engine = host.engine
        self.wire = wire.Connection(wire.Side.SERVER, host.limits)
        self.connection: Connection | None = None
        self.blocked: str | None = None
        """Why publishers are blocked. RabbitMQ says so when a connection publishes, and takes the message later."""
        self.holds_publish = False
        """The client published while publishers were blocked: the server stops reading from it."""
        self.supports_blocked = False
        self.is_over = False
        """No more events are handled; what is queued may still be sent."""
        self.is_mute = False
        """The broker ignores the client without closing the socket: framing is lost, or the handshake went wrong."""
        self.client_closed = False
        """The client sent connection.close: it also closes the socket."""
        self.client_properties: dict[str, Any] = {}
        """client-properties of connection.start-ok."""
        self.consumer_arguments: dict[tuple[int, str], Mapping[str, Any]] = {}
        """The arguments of basic.consume, by channel and tag; the engine keeps only those that it uses."""
        self._user = ""
        self._wants_cancel = False
        self._channels_max = 0
        self._confirms = Confirms(self, host)
        self._held_back: list[bytes] | None = None
        """Bytes that came after a frame that waits, for a fault's delay or because publishers are blocked."""
        self._held_publish: wire.Published | None = None

    @property
    def is_opening(self) -> bool:
        """Whether it is in its handshake."""
        return self.connection is None and not self.is_over

    def receive(self, data: bytes) -> None:
        """Bytes from the client; answers are queued in `wire`."""
        if self._held_back is not None:
            self._held_back.append(data)
            return
        try:
            for event in self.wire.receive_data(data):
                if self.blocked is not None and isinstance(event, wire.Published):
                    self._hold_publish(event)
                    return
                if self._host.faults.watching and not self._survives_faults(event):
                    return
                self._handle(event)
                if self.is_over:
                    return
        except wire.RemoteProtocolError as error:
            self.end()  # the answer is queued, where RabbitMQ gives one
            # An unknown method or protocol closes the socket at once.
            is_known = error.reply_code is not wire.ReplyCode.NOT_IMPLEMENTED
            self.is_mute = is_known and self.wire.state is wire.ConnectionState.CLOSED

    def end(self) -> None:
        """End the session: its channels end, once."""
        self.is_over = True
        connection, self.connection = self.connection, None
        if connection is not None:
            self._engine.disconnect(connection)

    def close(self, code: int, text: str, method: int = 0) -> None:
        """connection.close from our side."""
        self.end()
        try:
            self.wire.close(code, _cut(text), method)
        except wire.LocalProtocolError:
            self._host.cut(self)

    def send_effect(self, effect: Effect) -> None:
        """Send one effect. A message that does not fit the client's frames closes the connection (501)."""
        channel = effect.channel
        if not channel.is_open:
            return
        number = channel.number
        try:
            if type(effect) is Deliver:
                message = effect.message
                self.wire.deliver(
                    number,
                    effect.consumer_tag,
                    effect.delivery_tag,
                    effect.redelivered,
                    message.exchange,
                    message.keys[0],
                    effect.header,
                    message.body,
                )
            elif type(effect) is Confirm:
                assert isinstance(channel, Channel)
                self._confirms.add(channel, effect.number)
            else:
                self._send_rare(number, effect)
        except wire.LocalProtocolError as error:
            self.close(501, f"FRAME_ERROR - {error.reply_text}")

    def flush_confirms(self) -> None:
        """Send the confirms of this turn: one frame for each channel, as far as they are in a row."""
        self._confirms.flush()

    def _send_rare(self, number: int, effect: Effect) -> None:
        self.flush_confirms()
        if isinstance(effect, GetOk):
            message = effect.message
            self.wire.get_ok(
                number,
                effect.delivery_tag,
                effect.redelivered,
                message.exchange,
                message.keys[0],
                effect.left,
                effect.header,
                message.body,
            )
        elif isinstance(effect, BasicReturn):
            message = effect.message
            self.wire.return_message(
                number, 312, "NO_ROUTE", message.exchange, message.keys[0], message.header, message.body
            )
        elif isinstance(effect, ConfirmNack):
            self.wire.nack(number, effect.number, False, False)
        elif isinstance(effect, ConsumerTimedOut):
            assert isinstance(effect.channel, Channel)
            self._refuse(effect.channel, effect.error, 0)
        else:
            assert not isinstance(effect, Deliver | Confirm)
            self.wire.send(number, methods.BasicCancel(consumer_tag=effect.consumer_tag, nowait=True))

    def _survives_faults(self, event: wire.Event) -> bool:
        """Apply the fault of an event, if any; whether the caller still has to handle the event."""
        fault = self._host.faults.on_frame(event)
        if fault is None:
            return True
        match fault.action:
            case FaultAction.CLOSE_BEFORE:
                self._host.cut(self)
            case FaultAction.CLOSE_AFTER:
                self._handle(event)
                self._host.cut(self)
            case FaultAction.RESTART:
                self._handle(event)
                self._host.restart()
            case FaultAction.DELAY:
                self._held_back = []
                self._host.call_after(fault.for_ms, self, partial(self._end_delay, event))
            case _:
                self._host.block_for(fault.for_ms)
                return True
        return False

    def _end_delay(self, event: wire.Event) -> None:
        """A fault's delay is over: handle the frame, and what came after it."""
        if self.blocked is not None and isinstance(event, wire.Published):
            self._hold_publish(event)
            return
        data = b"".join(self._held_back or ())
        self._held_back = None
        if not self.is_over:
            self._handle(event)
            self.receive(data)

    def _hold_publish(self, event: wire.Published) -> None:
        """The client publishes while publishers are blocked: say so, and hold the message and all that comes after."""
        self.holds_publish = True
        self._held_publish = event
        if self._held_back is None:
            self._held_back = []
        if self.supports_blocked and self.blocked is not None and not self.is_over:
            self.wire.send(0, methods.ConnectionBlocked(reason=self.blocked))

    def block(self, reason: str) -> None:
        """Publishers are blocked from now on."""
        self.blocked = reason

    def unblock(self) -> None:
        """Publishers are unblocked: say so if a publish was held, and handle what the client sent meanwhile."""
        self.blocked = None
        event, self._held_publish = self._held_publish, None
        if event is None or self.is_over:
            return
        self.holds_publish = False
        if self.supports_blocked:
            self.wire.send(0, methods.ConnectionUnblocked())
        data = b"".join(self._held_back or ())
        self._held_back = None
        if not self._host.faults.watching or self._survives_faults(event):
            self._handle(event)
            self.receive(data)
        elif self._held_back is not None:
            self._held_back.append(data)

    def _handle(self, event: wire.Event) -> None:
        if isinstance(event, wire.Published):
            self._on_published(event)
        elif isinstance(event, wire.Ack):
            channel = self._channel(event.channel)
            if channel is not None:
                try:
                    channel.ack(event.delivery_tag, event.multiple)
                except AmqpError as error:
                    self._refuse(channel, error, _ACK)
        elif isinstance(event, wire.Command):
            if event.channel:
                self._on_method(event.channel, event.method)
            else:
                self._on_connection_method(event.method)
        elif isinstance(event, wire.Nack | wire.Reject):
            self._on_negative_ack(event)
        elif isinstance(event, wire.Greeted):
            properties = server_properties(self._engine.profile)
            self.wire.send(0, methods.ConnectionStart(server_properties=properties, mechanisms=MECHANISMS))

    def _on_published(self, event: wire.Published) -> None:
        channel = self._channel(event.channel)
        if channel is None:
            return
        exchange, routing_key = event.route
        try:
            channel.publish(exchange, routing_key, event.header, event.body, event.mandatory, event.immediate)
        except AmqpError as error:
            self._refuse(channel, error, _PUBLISH)

    def _on_negative_ack(self, event: wire.Nack | wire.Reject) -> None:
        channel = self._channel(event.channel)
        if channel is None:
            return
        try:
            if isinstance(event, wire.Nack):
                channel.nack(event.delivery_tag, event.multiple, event.requeue)
            else:
                channel.reject(event.delivery_tag, event.requeue)
        except AmqpError as error:
            self._refuse(channel, error, _NACK if isinstance(event, wire.Nack) else _REJECT)

    def _on_method(self, number: int, method: methods.Method) -> None:
        connection = self.connection
        if connection is None:
            return
        if isinstance(method, methods.ChannelOpen):
            opened = len(connection.channels)
            if opened >= self._channels_max:
                reached = f"has reached the negotiated channel_max ({self._channels_max})"
                self.close(530, f"NOT_ALLOWED - number of channels opened ({opened}) {reached}", method.INDEX)
                return
            connection.open_channel(number)
            self.wire.send(number, methods.ChannelOpenOk())
            return
        channel = connection.channels.get(number)
        if isinstance(method, methods.ChannelClose):
            if channel is not None:
                self._close_channel(channel)
            return
        if channel is None or isinstance(method, methods.ChannelCloseOk):
            return
        # What a queue's deletion sets off (basic.cancel to its consumers) comes after its delete-ok, on every version.
        answers_first = isinstance(method, methods.QueueDelete)
        if answers_first:
            self._host.dispatch_effects()
        try:
            answer, then = run_command(channel, method)
        except AmqpError as error:
            self._refuse(channel, error, method.INDEX)
            return
        if not answers_first:
            self._host.dispatch_effects()
        if answer is not None and not self.is_over:
            self.flush_confirms()
            self.wire.send(number, answer)
        self._note_consumer(number, method, answer)
        if then is not None:
            then()

    def _note_consumer(self, number: int, method: methods.Method, answer: methods.Method | None) -> None:
        if isinstance(method, methods.BasicConsume):
            tag = answer.consumer_tag if isinstance(answer, methods.BasicConsumeOk) else method.consumer_tag
            self.consumer_arguments[number, tag] = method.arguments
        elif isinstance(method, methods.BasicCancel):
            self.consumer_arguments.pop((number, method.consumer_tag), None)

    def _on_connection_method(self, method: methods.Method) -> None:
        match method:
            case methods.ConnectionStartOk():
                self._on_start_ok(method)
            case methods.ConnectionOpen():
                self._on_open(method)
            case methods.ConnectionClose():
                self.client_closed = True
                self.end()
            case methods.ConnectionCloseOk():
                self.end()
            case methods.ConnectionUpdateSecret():
                self.wire.send(0, methods.ConnectionUpdateSecretOk())

    def _on_start_ok(self, method: methods.ConnectionStartOk) -> None:
        properties = self.client_properties = dict(method.client_properties)
        self._wants_cancel = has_capability(properties, "consumer_cancel_notify")
        self.supports_blocked = has_capability(properties, "connection.blocked")
        if method.mechanism not in MECHANISMS.split():
            self.end()
            self.is_mute = True
            return
        try:
            self._user = check_login(self._host.users, method.mechanism, method.response)
        except AmqpError as error:
            if has_capability(properties, "authentication_failure_close"):
                self.close(error.code, error.text)
            else:
                self.end()
                self.is_mute = True
            return
        self.wire.send(0, self._host.limits.propose())

    def _on_open(self, method: methods.ConnectionOpen) -> None:
        try:
            connection = self._engine.connect(
                method.virtual_host,
                self._user,
                wants_cancel=self._wants_cancel,
                may_impersonate=IMPERSONATOR in self._host.tags.get(self._user, ()),
            )
        except AmqpError as error:
            self.close(error.code, error.text, method.INDEX)
            return
        self.connection = connection
        # RabbitMQ limits the number of open channels, not their numbers.
        self._channels_max = self.wire.channel_max
        self.wire.allow_channel_numbers(_CHANNEL_NUMBER_MAX)
        self.wire.send(0, methods.ConnectionOpenOk())
        self._host.attach(connection, self)

    def _channel(self, number: int) -> Channel | None:
        return None if self.connection is None else self.connection.channels.get(number)

    def _close_channel(self, channel: Channel) -> None:
        channel.close()
        for place in [one for one in self.consumer_arguments if one[0] == channel.number]:
            del self.consumer_arguments[place]

    def _refuse(self, channel: Channel, error: AmqpError, index: int) -> None:
        if error.is_hard:
            self._host.dispatch_effects()
            self.close(error.code, error.text, index)
            return
        self._host.dispatch_effects()
        self.flush_confirms()
        self._close_channel(channel)
        close = methods.ChannelClose(
            reply_code=error.code,
            reply_text=_cut(error.text),
            class_id=index >> 16,
            method_id=index & 0xFFFF,
        )
        self.wire.send(channel.number, close)


def _cut(text: str) -> str:
    """At most 255 octets, with RabbitMQ's three dots where something is left out."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= _TEXT_BYTES_MAX:
        return text
    return raw[: _TEXT_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."
