"""Frames on their way in, one at a time: checked against the states, messages put together from their pieces.

The general path. It is correct for everything; `scan` takes the usual messages past it.
"""

import struct

from redrive.wire import complaints, hot
from redrive.wire.errors import RemoteProtocolError, ReplyCode, frame_error, syntax_error
from redrive.wire.events import Command, Content, Delivery, Event, Greeted, Heartbeat
from redrive.wire.frames import BASIC_CLASS, BODY, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, Frame
from redrive.wire.life import Unfinished
from redrive.wire.methods import (
    METHODS,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionTuneOk,
    Method,
    decode_method,
)
from redrive.wire.roles import Role
from redrive.wire.sending import Sending
from redrive.wire.states import (
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


class Receiving(Sending):
    """What an end makes of the frames it gets."""

    delivery_type: type[Delivery] = Delivery
    """What deliveries are made of: a subclass of a connection may give its own, with more slots and methods."""

    def _receive_greeting(self) -> Event | None:
        """The protocol header, which comes before all frames: from the client, or from a server that refuses ours."""
        seen = self._splitter.peek()
        if self.role is Role.CLIENT:
            if not seen.startswith(b"AMQP"[: len(seen)]):
                raise frame_error("the server does not speak AMQP")
            if len(seen) == 8:
                self.state = CONNECTION[self.state][Role.SERVER, ProtocolHeader]
                version = ".".join(str(octet) for octet in seen[4:])
                raise RemoteProtocolError(
                    ReplyCode.NOT_IMPLEMENTED, f"the server refuses AMQP 0-9-1; it offers protocol {version}"
                )
            return None
        if not PROTOCOL_HEADER.startswith(seen):
            # The specification's answer to a wrong header, whatever it was: ours, and goodbye.
            self._out.append(self.limits.other_protocol)
            raise RemoteProtocolError(ReplyCode.NOT_IMPLEMENTED, f"not the header of AMQP 0-9-1: {seen!r}")
        if len(seen) < 8:
            return None
        self._splitter.position += 8
        self.state = CONNECTION[self.state][Role.CLIENT, ProtocolHeader]
        return Greeted()

    def _receive_frame(self, frame: Frame) -> Event | None:
        """The event that the frame completes, if it does. Raises RemoteProtocolError."""
        frame_type, channel, payload = frame
        if self.state is ConnectionState.CLOSED:
            return None
        if frame_type == HEARTBEAT and not (channel or payload):
            return None if self.state in CONNECTION_CLOSING else Heartbeat()
        if self.role is Role.SERVER:
            if self.state in CONNECTION_CLOSING and (channel or frame_type != METHOD):
                return None
            self._check_client_frame(frame)
        elif frame_type == HEARTBEAT:
            raise frame_error("a heartbeat belongs to channel 0 and is empty")
        if channel == 0:
            return self._receive_connection_method(frame)
        if self.state in CONNECTION_CLOSING:
            return None
        known = self._channels.get(channel)
        if known is None or self.state is not ConnectionState.OPEN:
            return self._receive_channel_open(frame)
        if known.state in CHANNEL_CLOSING and (frame_type != METHOD or _index(payload) not in _CHANNEL_ENDS):
            # The peer said it before it knew that the channel is closing.
            return None
        if known.unfinished is not None and self.role is Role.SERVER:
            self._check_turn(frame, known.unfinished)
        if frame_type == METHOD:
            if known.unfinished is not None:
                raise self._unexpected("a method in the middle of a message", channel)
            return self._receive_channel_method(channel, known.state, payload)
        if known.unfinished is None:
            if self.role is Role.SERVER:
                raise complaints.no_method(channel)
            raise self._unexpected("content without a method that carries it", channel)
        if frame_type == HEADER:
            return self._receive_header(channel, known.unfinished, payload)
        return self._receive_body(channel, known.unfinished, payload)

    def _check_client_frame(self, frame: Frame) -> None:
        """A client's frame by itself: one of the four kinds, and where such a frame may be."""
        frame_type, channel, payload = frame
        if frame_type not in (METHOD, HEADER, BODY) or (frame_type == METHOD and len(payload) < 4):
            if frame_type == HEARTBEAT and not payload:
                raise complaints.misplaced_frame(frame_type, payload)
            raise complaints.unknown_frame(frame_type, payload)
        if frame_type == HEADER and len(payload) < 12:
            raise complaints.unknown_frame(frame_type, payload)
        misplaced = frame_type != METHOD if channel == 0 else self.state is not ConnectionState.OPEN
        if misplaced and self.state not in CONNECTION_CLOSING:
            raise complaints.misplaced_frame(frame_type, payload)

    def _check_turn(self, frame: Frame, unfinished: Unfinished) -> None:
        """A client's frame while its message is not whole: first the header, of the method's class, then bodies."""
        frame_type, channel, payload = frame
        if unfinished.header is not None:
            if frame_type != BODY:
                raise complaints.no_body(channel, unfinished.method)
            return
        class_id, weight = _CLASS_WEIGHT.unpack_from(payload) if frame_type == HEADER else (0, 1)
        if weight:
            raise complaints.no_header(channel, unfinished.method)
        if class_id != unfinished.method >> 16:
            raise complaints.no_header(channel, unfinished.method, class_id)

    def _receive_connection_method(self, frame: Frame) -> Event | None:
        if frame.type != METHOD:
            raise self._unexpected("content on channel 0", 0)
        index = _index(frame.payload)
        if self.state in CONNECTION_CLOSING and index not in _CONNECTION_ENDS:
            return None
        if index in hot.NAMES:
            if self.role is Role.SERVER:
                raise complaints.not_now(index)
            raise self._invalid(hot.NAMES[index], index, "it does not belong on channel 0")
        self._check_known(index, 0)
        step = CONNECTION[self.state].get((self.role.peer, METHODS[index]))
        if step is None:
            if self.role is Role.SERVER:
                raise complaints.not_now(index)
            raise self._invalid(METHODS[index].NAME, index, f"the connection is {self.state.name}")
        method = self._decode(0, frame.payload)
        if isinstance(method, ConnectionTuneOk):
            self._check_tune_ok(method)
        self._enter(step, method)
        if isinstance(method, ConnectionClose):
            self._answer_close(0)
        return Command(0, method)

    def _receive_channel_open(self, frame: Frame) -> Event:
        """The only thing that may arrive on a channel that is not open: a client's channel.open."""
        channel = frame.channel
        index = _index(frame.payload) if frame.type == METHOD else 0
        if self.role is Role.SERVER and index != ChannelOpen.INDEX:
            if frame.type == METHOD:
                self._check_method_known(index, channel)
                raise complaints.not_opened(channel, index)
            raise complaints.no_method(channel)
        if self.state is not ConnectionState.OPEN or self.role is Role.CLIENT or index != ChannelOpen.INDEX:
            raise RemoteProtocolError(
                ReplyCode.CHANNEL_ERROR, f"channel {channel} is not open", channel=channel, method=index
            )
        if channel > self.channel_max:
            raise RemoteProtocolError(
                ReplyCode.NOT_ALLOWED,
                f"channel {channel} is above the negotiated channel_max ({self.channel_max})",
                channel=channel,
                method=index,
            )
        method = self._decode(channel, frame.payload)
        self._enter_channel(channel, ChannelState.OPENING)
        return Command(channel, method)

    def _receive_channel_method(self, channel: int, state: ChannelState, payload: bytes) -> Event | None:
        index = _index(payload)
        if index in hot.NAMES:
            return self._receive_hot(index, channel, state, payload)
        self._check_known(index, channel)
        cls = METHODS[index]
        if cls in CHANNEL_LIFE:
            step = CHANNEL[state].get((self.role.peer, cls))
            if step is None:
                if cls is ChannelOpen and self.role is Role.SERVER:
                    raise complaints.opened_twice(channel, index)
                raise RemoteProtocolError(
                    ReplyCode.CHANNEL_ERROR,
                    f"{cls.NAME}: channel {channel} is {state.name}",
                    channel=channel,
                    method=index,
                )
            method = self._decode(channel, payload)
            self._enter_channel(channel, step)
            if cls is ChannelClose:
                self._answer_close(channel)
            return Command(channel, method)
        if cls.SPEAKER is self.role or index >> 16 == 10:
            if self.role is Role.SERVER:
                raise complaints.not_yours(channel, index)
            raise self._invalid(cls.NAME, index, "it is not the peer's to send here", channel)
        if state is not ChannelState.OPEN:
            raise self._invalid(cls.NAME, index, f"channel {channel} is {state.name}", channel)
        return Command(channel, self._decode(channel, payload))

    def _receive_hot(self, index: int, channel: int, state: ChannelState, payload: bytes) -> Event | None:
        if index not in hot.SPOKEN_BY[self.role.peer]:
            if self.role is Role.SERVER:
                raise complaints.not_yours(channel, index)
            raise self._invalid(hot.NAMES[index], index, "it is not the peer's to send", channel)
        if state is not ChannelState.OPEN:
            raise self._invalid(hot.NAMES[index], index, f"channel {channel} is {state.name}", channel)
        try:
            if index in (hot.ACK, hot.NACK, hot.REJECT):
                return hot.read_settlement(index, channel, payload)
            self._channels[channel].unfinished = Unfinished(hot.read_opening(index, payload), index)
        except RemoteProtocolError as error:
            error.channel, error.method = channel, index
            if self.role is Role.SERVER:
                raise complaints.undecodable(channel, index, payload[4:]) from None
            raise
        self._ready.discard(channel)
        return None

    def _receive_header(self, channel: int, unfinished: Unfinished, payload: bytes) -> Event | None:
        if unfinished.header is not None:
            raise self._unexpected("a second content header", channel)
        if len(payload) < 14:
            raise syntax_error("a content header of less than 14 octets")
        class_id, weight, body_size = _HEADER.unpack_from(payload)
        if class_id != BASIC_CLASS or weight:
            raise self._unexpected(f"a content header for class {class_id}, weight {weight}", channel)
        if body_size > self.limits.body_size_max:
            raise RemoteProtocolError(
                ReplyCode.CONTENT_TOO_LARGE,
                f"a message of {body_size} octets, the limit is {self.limits.body_size_max}",
                channel=channel,
            )
        unfinished.header = payload[12:]
        unfinished.body_size = body_size
        if body_size == 0:
            return self._complete(channel, unfinished, b"")
        self._hold(len(unfinished.header), channel)
        return None

    def _receive_body(self, channel: int, unfinished: Unfinished, payload: bytes) -> Event | None:
        if unfinished.header is None:
            raise self._unexpected("a body before its content header", channel)
        size = len(payload)
        if unfinished.body is None:
            if size == unfinished.body_size:
                self._unfinished_bytes -= len(unfinished.header)
                return self._complete(channel, unfinished, payload)
            # Grown as it arrives, never sized by what the header claims: a lie costs the liar its own bandwidth.
            unfinished.body = bytearray()
        if len(unfinished.body) + size > unfinished.body_size:
            if self.role is Role.SERVER:
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
        self._unfinished_bytes -= unfinished.held_bytes
        return self._complete(channel, unfinished, bytes(unfinished.body))

    def _complete(self, channel: int, unfinished: Unfinished, body: bytes) -> Event:
        assert unfinished.header is not None
        self._channels[channel].unfinished = None
        self._ready.add(channel)
        opening = unfinished.opening
        if opening.event is Delivery:
            opening = opening._replace(event=self.delivery_type)
        content: Content = opening.complete(channel, unfinished.header, body)
        return content  # type: ignore[return-value]

    def _hold(self, size: int, channel: int) -> None:
        self._unfinished_bytes += size
        if self._unfinished_bytes > self.limits.unfinished_bytes_max:
            raise RemoteProtocolError(
                ReplyCode.RESOURCE_ERROR,
                f"unfinished messages hold more than {self.limits.unfinished_bytes_max} octets",
                channel=channel,
            )

    def _check_method_known(self, index: int, channel: int) -> None:
        if index not in hot.NAMES:
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
            if self.role is Role.SERVER:
                raise complaints.undecodable(channel, error.method, payload[4:]) from None
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
