"""Reads frames one at a time: checks each against the state tables, and puts messages together from their frames.

This is the general path, correct for everything. `message_scanner` reads the usual messages without it.
"""

import struct

from redrive.wire import message_methods, rabbitmq_errors
from redrive.wire.errors import FramingLost, RemoteProtocolError, ReplyCode, syntax_error
from redrive.wire.events import Command, Delivery, Event, Greeted, Heartbeat
from redrive.wire.frames import BASIC_CLASS, BODY, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, Frame
from redrive.wire.lifecycle import Lifecycle, Unfinished
from redrive.wire.methods import (
    METHODS,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionTuneOk,
    Method,
    Side,
    decode_method,
)
from redrive.wire.protocol_states import (
    CHANNEL,
    CHANNEL_CLOSING,
    CHANNEL_LIFE,
    CONNECTION,
    CONNECTION_CLOSING,
    ChannelState,
    ConnectionState,
    ProtocolHeader,
)

_CLASS_WEIGHT = struct.Struct(">HH")
_HEADER = struct.Struct(">HHQ")
_INDEX = struct.Struct(">I")
_CONNECTION_ENDS = frozenset({ConnectionClose.INDEX, ConnectionCloseOk.INDEX})
_CHANNEL_ENDS = frozenset({ChannelClose.INDEX, ChannelCloseOk.INDEX})


class FrameReceiver:
    """Turns the peer's frames into events."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    def receive_greeting(self) -> Event | None:
        """The protocol header, which comes before all frames: from the client, or from a server that refuses ours."""
        lifecycle = self._lifecycle
        seen = lifecycle.splitter.peek()
        if lifecycle.side is Side.CLIENT:
            if not seen.startswith(b"AMQP"[: len(seen)]):
                raise FramingLost("the server does not speak AMQP")
            if len(seen) == 8:
                lifecycle.enter(CONNECTION[lifecycle.state][Side.SERVER, ProtocolHeader])
                version = ".".join(str(octet) for octet in seen[4:])
                raise RemoteProtocolError(
                    ReplyCode.NOT_IMPLEMENTED, f"the server refuses AMQP 0-9-1; it offers protocol {version}"
                )
            return None
        if not PROTOCOL_HEADER.startswith(seen):
            # The specification's answer to any wrong header: send ours, and close.
            lifecycle.out.append(lifecycle.limits.other_protocol)
            raise RemoteProtocolError(ReplyCode.NOT_IMPLEMENTED, f"not the header of AMQP 0-9-1: {seen!r}")
        if len(seen) < 8:
            return None
        lifecycle.splitter.position += 8
        lifecycle.enter(CONNECTION[lifecycle.state][Side.CLIENT, ProtocolHeader])
        return Greeted()

    def receive_frame(self, frame: Frame) -> Event | None:
        """The event that the frame completes, if it does. Raises RemoteProtocolError."""
        lifecycle = self._lifecycle
        frame_type, channel, payload = frame
        if lifecycle.state is ConnectionState.CLOSED:
            return None
        if frame_type == HEARTBEAT and not (channel or payload):
            return None if lifecycle.state in CONNECTION_CLOSING else Heartbeat()
        if lifecycle.side is Side.SERVER:
            if lifecycle.state in CONNECTION_CLOSING and (channel or frame_type != METHOD):
                return None
            self._check_client_frame(frame)
        elif frame_type == HEARTBEAT:
            raise FramingLost("a heartbeat belongs to channel 0 and is empty")
        if channel == 0:
            return self._receive_connection_method(frame)
        if lifecycle.state in CONNECTION_CLOSING:
            return None
        known = lifecycle.channels.get(channel)
        if known is None or lifecycle.state is not ConnectionState.OPEN:
            return self._receive_channel_open(frame)
        if known.state in CHANNEL_CLOSING and (frame_type != METHOD or _index(payload) not in _CHANNEL_ENDS):
            # The peer sent it before it knew that the channel is closing.
            return None
        if known.unfinished is not None and lifecycle.side is Side.SERVER:
            self._check_message_order(frame, known.unfinished)
        if frame_type == METHOD:
            if known.unfinished is not None:
                raise self._unexpected("a method in the middle of a message", channel)
            return self._receive_channel_method(channel, known.state, payload)
        if known.unfinished is None:
            if lifecycle.side is Side.SERVER:
                raise rabbitmq_errors.expected_method(channel)
            raise self._unexpected("content without a method that carries it", channel)
        if frame_type == HEADER:
            return self._receive_header(channel, known.unfinished, payload)
        return self._receive_body(channel, known.unfinished, payload)

    def _check_client_frame(self, frame: Frame) -> None:
        """Checks a client's frame by itself: its type, and whether such a frame may be on this channel."""
        frame_type, channel, payload = frame
        if frame_type not in (METHOD, HEADER, BODY) or (frame_type == METHOD and len(payload) < 4):
            if frame_type == HEARTBEAT and not payload:
                raise rabbitmq_errors.misplaced_frame(frame_type, payload)
            raise rabbitmq_errors.unknown_frame(frame_type, payload)
        if frame_type == HEADER and len(payload) < 12:
            raise rabbitmq_errors.unknown_frame(frame_type, payload)
        misplaced = frame_type != METHOD if channel == 0 else self._lifecycle.state is not ConnectionState.OPEN
        if misplaced and self._lifecycle.state not in CONNECTION_CLOSING:
            raise rabbitmq_errors.misplaced_frame(frame_type, payload)

    def _check_message_order(self, frame: Frame, unfinished: Unfinished) -> None:
        """Checks a client's frame inside a message: first the header, of the method's class, then bodies."""
        frame_type, channel, payload = frame
        if unfinished.header is not None:
            if frame_type != BODY:
                raise rabbitmq_errors.expected_content_body(channel, unfinished.method)
            return
        class_id, weight = _CLASS_WEIGHT.unpack_from(payload) if frame_type == HEADER else (0, 1)
        if weight:
            raise rabbitmq_errors.expected_content_header(channel, unfinished.method)
        if class_id != unfinished.method >> 16:
            raise rabbitmq_errors.expected_content_header(channel, unfinished.method, class_id)

    def _receive_connection_method(self, frame: Frame) -> Event | None:
        lifecycle = self._lifecycle
        if frame.type != METHOD:
            raise self._unexpected("content on channel 0", 0)
        index = _index(frame.payload)
        if lifecycle.state in CONNECTION_CLOSING and index not in _CONNECTION_ENDS:
            return None
        if index in message_methods.NAMES:
            if lifecycle.side is Side.SERVER:
                raise rabbitmq_errors.unexpected_connection_method(index)
            raise self._invalid(message_methods.NAMES[index], index, "it does not belong on channel 0")
        self._check_known(index, 0)
        step = CONNECTION[lifecycle.state].get((lifecycle.side.peer, METHODS[index]))
        if step is None:
            if lifecycle.side is Side.SERVER:
                raise rabbitmq_errors.unexpected_connection_method(index)
            raise self._invalid(METHODS[index].NAME, index, f"the connection is {lifecycle.state.name}")
        method = self._decode(0, frame.payload)
        if isinstance(method, ConnectionTuneOk):
            lifecycle.check_tune_ok(method)
        lifecycle.enter(step, method)
        if isinstance(method, ConnectionClose):
            lifecycle.answer_close(0)
        return Command(0, method)

    def _receive_channel_open(self, frame: Frame) -> Event:
        """The only thing that may arrive on a channel that is not open: a client's channel.open."""
        lifecycle = self._lifecycle
        channel = frame.channel
        index = _index(frame.payload) if frame.type == METHOD else 0
        if lifecycle.side is Side.SERVER and index != ChannelOpen.INDEX:
            if frame.type == METHOD:
                self._check_method_known(index, channel)
                raise rabbitmq_errors.channel_not_opened(channel, index)
            raise rabbitmq_errors.expected_method(channel)
        if lifecycle.state is not ConnectionState.OPEN or lifecycle.side is Side.CLIENT or index != ChannelOpen.INDEX:
            raise RemoteProtocolError(
                ReplyCode.CHANNEL_ERROR, f"channel {channel} is not open", channel=channel, method=index
            )
        if channel > lifecycle.channel_max:
            raise RemoteProtocolError(
                ReplyCode.NOT_ALLOWED,
                f"channel {channel} is above the negotiated channel_max ({lifecycle.channel_max})",
                channel=channel,
                method=index,
            )
        method = self._decode(channel, frame.payload)
        lifecycle.enter_channel(channel, ChannelState.OPENING)
        return Command(channel, method)

    def _receive_channel_method(self, channel: int, state: ChannelState, payload: bytes) -> Event | None:
        lifecycle = self._lifecycle
        index = _index(payload)
        if index in message_methods.NAMES:
            return self._receive_message_method(index, channel, state, payload)
        self._check_known(index, channel)
        cls = METHODS[index]
        if cls in CHANNEL_LIFE:
            step = CHANNEL[state].get((lifecycle.side.peer, cls))
            if step is None:
                if cls is ChannelOpen and lifecycle.side is Side.SERVER:
                    raise rabbitmq_errors.channel_opened_twice(channel, index)
                raise RemoteProtocolError(
                    ReplyCode.CHANNEL_ERROR,
                    f"{cls.NAME}: channel {channel} is {state.name}",
                    channel=channel,
                    method=index,
                )
            method = self._decode(channel, payload)
            lifecycle.enter_channel(channel, step)
            if cls is ChannelClose:
                lifecycle.answer_close(channel)
            return Command(channel, method)
        if cls.SPEAKER is lifecycle.side or index >> 16 == 10:
            if lifecycle.side is Side.SERVER:
                raise rabbitmq_errors.server_only_method(channel, index)
            raise self._invalid(cls.NAME, index, "it is not the peer's to send here", channel)
        if state is not ChannelState.OPEN:
            raise self._invalid(cls.NAME, index, f"channel {channel} is {state.name}", channel)
        return Command(channel, self._decode(channel, payload))

    def _receive_message_method(self, index: int, channel: int, state: ChannelState, payload: bytes) -> Event | None:
        lifecycle = self._lifecycle
        if index not in message_methods.SPOKEN_BY[lifecycle.side.peer]:
            if lifecycle.side is Side.SERVER:
                raise rabbitmq_errors.server_only_method(channel, index)
            raise self._invalid(message_methods.NAMES[index], index, "it is not the peer's to send", channel)
        if state is not ChannelState.OPEN:
            raise self._invalid(message_methods.NAMES[index], index, f"channel {channel} is {state.name}", channel)
        try:
            if index in (message_methods.ACK, message_methods.NACK, message_methods.REJECT):
                return message_methods.read_settlement(index, channel, payload)
            lifecycle.channels[channel].unfinished = Unfinished(message_methods.read_opening(index, payload), index)
        except RemoteProtocolError as error:
            error.channel, error.method = channel, index
            if lifecycle.side is Side.SERVER:
                raise rabbitmq_errors.undecodable_method(channel, index, payload[4:]) from None
            raise
        lifecycle.ready_channels.discard(channel)
        return None

    def _receive_header(self, channel: int, unfinished: Unfinished, payload: bytes) -> Event | None:
        if unfinished.header is not None:
            raise self._unexpected("a second content header", channel)
        if len(payload) < 14:
            raise syntax_error("a content header of less than 14 octets")
        class_id, weight, body_size = _HEADER.unpack_from(payload)
        if class_id != BASIC_CLASS or weight:
            raise self._unexpected(f"a content header for class {class_id}, weight {weight}", channel)
        if body_size > self._lifecycle.limits.body_size_max:
            raise RemoteProtocolError(
                ReplyCode.CONTENT_TOO_LARGE,
                f"a message of {body_size} octets, the limit is {self._lifecycle.limits.body_size_max}",
                channel=channel,
            )
        unfinished.header = payload[12:]
        unfinished.body_size = body_size
        if body_size == 0:
            return self._complete(channel, unfinished, b"")
        self._hold(len(unfinished.header), channel)
        return None

    def _receive_body(self, channel: int, unfinished: Unfinished, payload: bytes) -> Event | None:
        lifecycle = self._lifecycle
        if unfinished.header is None:
            raise self._unexpected("a body before its content header", channel)
        size = len(payload)
        if unfinished.body is None:
            if size == unfinished.body_size:
                lifecycle.unfinished_bytes -= len(unfinished.header)
                return self._complete(channel, unfinished, payload)
            # Grown as it arrives, never sized by what the header claims: a false size must not cost us memory.
            unfinished.body = bytearray()
        if len(unfinished.body) + size > unfinished.body_size:
            if lifecycle.side is Side.SERVER:
                raise RemoteProtocolError(  # so on 4.3; 3.10 and 4.0 go on waiting for the rest
                    ReplyCode.FRAME_ERROR,
                    "content body frame exceeds remaining content size",
                    channel=channel,
                    method=unfinished.method,
                )
            raise self._unexpected(f"a body longer than the {unfinished.body_size} octets announced", channel)
        self._hold(size, channel)
        unfinished.body += payload
        if len(unfinished.body) < unfinished.body_size:
            return None
        lifecycle.unfinished_bytes -= unfinished.held_bytes
        return self._complete(channel, unfinished, bytes(unfinished.body))

    def _complete(self, channel: int, unfinished: Unfinished, body: bytes) -> Event:
        lifecycle = self._lifecycle
        assert unfinished.header is not None
        lifecycle.channels[channel].unfinished = None
        lifecycle.ready_channels.add(channel)
        opening = unfinished.opening
        if opening.event is Delivery:
            delivery_type, session = lifecycle.delivery_types[channel]
            tag, delivery_tag, redelivered = opening.arguments
            return delivery_type(
                channel, tag, delivery_tag, redelivered, opening.route, unfinished.header, body, session
            )
        return opening.complete(channel, unfinished.header, body)  # type: ignore[return-value]

    def _hold(self, size: int, channel: int) -> None:
        lifecycle = self._lifecycle
        lifecycle.unfinished_bytes += size
        if lifecycle.unfinished_bytes > lifecycle.limits.unfinished_bytes_max:
            raise RemoteProtocolError(
                ReplyCode.RESOURCE_ERROR,
                f"unfinished messages hold more than {lifecycle.limits.unfinished_bytes_max} octets",
                channel=channel,
            )

    def _check_method_known(self, index: int, channel: int) -> None:
        if index not in message_methods.NAMES:
            self._check_known(index, channel)

    def _check_known(self, index: int, channel: int) -> None:
        if index not in METHODS:
            raise RemoteProtocolError(
                ReplyCode.NOT_IMPLEMENTED,
                f"there is no method {index >> 16}.{index & 0xFFFF}",
                channel=channel,
                method=index,
            )

    def _decode(self, channel: int, payload: bytes) -> Method:
        try:
            return decode_method(payload)
        except RemoteProtocolError as error:
            error.channel = channel
            if self._lifecycle.side is Side.SERVER:
                raise rabbitmq_errors.undecodable_method(channel, error.method, payload[4:]) from None
            raise

    def _unexpected(self, what: str, channel: int) -> RemoteProtocolError:
        return RemoteProtocolError(ReplyCode.UNEXPECTED_FRAME, f"{what}, on channel {channel}", channel=channel)

    def _invalid(self, name: str, index: int, why: str, channel: int = 0) -> RemoteProtocolError:
        return RemoteProtocolError(ReplyCode.COMMAND_INVALID, f"{name}: {why}", channel=channel, method=index)


def _index(payload: bytes) -> int:
    if len(payload) < 4:
        raise syntax_error("a method frame of less than four octets")
    index: int = _INDEX.unpack_from(payload)[0]
    return index
