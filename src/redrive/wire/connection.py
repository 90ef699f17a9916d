"""One end of an AMQP connection, without I/O: bytes in, events out; calls in, bytes out.

    connection = Connection(Side.CLIENT)
    connection.send_protocol_header()
    transport.write(connection.data_to_send())
    for event in connection.receive_data(transport.read()):
        ...                                     # may call connection.send, publish, ack …
    transport.write(connection.data_to_send())

The caller owns transport, clock and credentials. The connection owns AMQP's rules of order: it refuses to send what is
not allowed now, and stops when the peer does what is not allowed. Its parts are `Lifecycle` (the state that all share),
`MessageScanner` (whole messages in) and `FrameReceiver` (everything else in).

What goes out is packed here: each message with one or two precompiled structs and one join. A publisher repeats itself:
the method frame of a publish depends only on channel, exchange, routing key and flags, so it is packed once and kept.
What remains for each message is the header's lengths and the body. Joining each message at once and the messages again
in `data_to_send` was measured faster than one join over all the pieces.
"""

import struct
from collections.abc import Callable, Iterator

from redrive.wire.errors import EncodingError, LocalProtocolError, RemoteProtocolError, ReplyCode
from redrive.wire.events import Delivery, Event
from redrive.wire.field_tables import encode_short_string
from redrive.wire.frame_receiver import FrameReceiver
from redrive.wire.lifecycle import Lifecycle
from redrive.wire.message_methods import ACK, DELIVER, GET_OK, NACK, NAMES, PUBLISH, REJECT, RETURN, SPOKEN_BY
from redrive.wire.message_scanner import MessageScanner
from redrive.wire.methods import ConnectionTune, Method, Side
from redrive.wire.negotiation import Limits
from redrive.wire.protocol_states import ChannelState, ConnectionState

_REMEMBERED_MAX = 4096
"""Routes kept packed; a publisher with a routing key of its own for each message starts over now and then."""

_method_head = struct.Struct(">BHII").pack
_header_head = struct.Struct(">IIQ").pack
_body_head = struct.Struct(">II").pack
_tag_bits = struct.Struct(">QB").pack
_settlement = struct.Struct(">BHIIQBB").pack

# The end octet of one frame together with the type and channel of the next, as one 32-bit integer.
_END_THEN_HEADER = 0xCE020000
_END_THEN_BODY = 0xCE030000
_CLASS_AND_WEIGHT = 0x003C0000


class Connection:
    """One end of a connection, on either side, with `Limits()` by default.

    Every method that sends raises LocalProtocolError if it is not allowed now, and then nothing was queued. `header` is
    the raw content header from the property flags on (`Properties.raw`), sent as it is.
    """

    def __init__(self, side: Side, limits: Limits | None = None) -> None:
        self._lifecycle = lifecycle = Lifecycle(side, limits)
        scanner = MessageScanner(lifecycle, FrameReceiver(lifecycle))
        self._scan: Callable[[], Iterator[Event]] = scanner.scan_client if side is Side.CLIENT else scanner.scan_server
        # The lifecycle's own, kept here too: a publish or an ack looks at them every time.
        self._side = side
        self._open = lifecycle.open_channels
        self._out = lifecycle.out
        self._publishes: dict[tuple[int, str, str, bool, bool], bytes] = {}
        self._routes: dict[tuple[str, str], bytes] = {}
        self._tags: dict[str, bytes] = {}

    # State

    @property
    def side(self) -> Side:
        return self._side

    @property
    def limits(self) -> Limits:
        """Our own limits, before negotiation."""
        return self._lifecycle.limits

    @property
    def state(self) -> ConnectionState:
        return self._lifecycle.state

    @property
    def is_open(self) -> bool:
        return self._lifecycle.state is ConnectionState.OPEN

    @property
    def channel_max(self) -> int:
        """As negotiated; until then, our own limit. So is `frame_max`."""
        return self._lifecycle.channel_max

    @property
    def frame_max(self) -> int:
        return self._lifecycle.frame_max

    @property
    def heartbeat_s(self) -> int:
        """As negotiated; 0 for none, and until then."""
        return self._lifecycle.heartbeat_s

    @property
    def blocked(self) -> str | None:
        """Why the broker blocks publishers; None while it does not."""
        return self._lifecycle.blocked

    def channel_state(self, channel: int) -> ChannelState:
        """The state of a channel, CLOSED for one never opened."""
        return self._lifecycle.channel_state(channel)

    def allow_channel_numbers(self, channel_max: int) -> None:
        """Allow numbers up to `channel_max`, whatever was negotiated: RabbitMQ counts the open channels only."""
        self._lifecycle.channel_max = channel_max

    def free_channel(self) -> int | None:
        """The lowest channel number not in use, None if all are."""
        return self._lifecycle.free_channel()

    # The transport

    def receive_data(self, data: bytes) -> Iterator[Event]:
        """Take in bytes from the transport and iterate over the events in them.

        Each event is parsed when it is asked for, in the state that the handling of the one before has left: a server
        that answers a publish with channel.close sees no more of that channel. An iterator left unfinished loses
        nothing; the rest comes with the next call.

        Raises RemoteProtocolError, from the iteration, after all events before the offence. `data_to_send` then holds
        the answer. Whatever is received afterwards is discarded, except close-ok. What followed the offence in `data`
        is looked at in the next call.
        """
        lifecycle = self._lifecycle
        if lifecycle.state is ConnectionState.CLOSED:
            return iter(())
        lifecycle.splitter.feed(data)
        return self._scan()

    def data_to_send(self) -> bytes:
        """Everything queued since the last call, in order, for one write to the transport."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def receive_eof(self) -> None:
        """The transport is gone: nothing more can be sent or received."""
        self._lifecycle.enter(ConnectionState.CLOSED)

    # Methods without a message

    def send_protocol_header(self) -> None:
        """Queue a client's protocol header, which comes before all frames."""
        self._lifecycle.send_protocol_header()

    def send_heartbeat(self) -> None:
        """Queue a heartbeat; the clock is the caller's."""
        self._lifecycle.send_heartbeat()

    def send(self, channel: int, method: Method) -> None:
        """Queue a cold method."""
        self._lifecycle.send(channel, method)

    def answer_tune(self, tune: ConnectionTune) -> None:
        """Client: queue the tune-ok that our limits make of the server's offer, and adopt it.

        Raises RemoteProtocolError, with connection.close queued, if the offer is one that AMQP does not allow.
        """
        try:
            answer = self._lifecycle.limits.answer(tune)
        except RemoteProtocolError as error:
            self._lifecycle.give_up(error)
            raise
        self._lifecycle.send(0, answer)

    def close(self, reply_code: int = 200, reply_text: str = "", method: int = 0) -> None:
        """Queue connection.close; everything that arrives before close-ok will be discarded."""
        self._lifecycle.close(reply_code, reply_text, method)

    # Messages

    def set_delivery_type(self, channel: int, delivery_type: type[Delivery], session: object) -> None:
        """Client: makes the deliveries on a channel of this class from now on, with this `session`.

        It holds until the channel closes; on a channel that is not open there are none to make.
        """
        if channel in self._open:
            self._lifecycle.delivery_types[channel] = (delivery_type, session)

    def publish(
        self,
        channel: int,
        exchange: str,
        routing_key: str,
        header: bytes,
        body: bytes,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """Queue basic.publish with its content."""
        if channel not in self._open:
            self._refuse(PUBLISH, channel)
        key = (channel, exchange, routing_key, mandatory, immediate)
        start = self._publishes.get(key)
        if start is None:
            start = self._pack_publish(key)
        size = len(body)
        payload_max = self._lifecycle.payload_max
        if 0 < size <= payload_max and len(header) + 12 <= payload_max:
            self._out.append(
                b"".join(
                    (
                        start,
                        _header_head(len(header) + 12, _CLASS_AND_WEIGHT, size),
                        header,
                        _body_head(_END_THEN_BODY | channel, size),
                        body,
                        b"\xce",
                    )
                )
            )
        else:
            self._send_content(channel, start, header, body)

    def ack(self, channel: int, delivery_tag: int, multiple: bool = False) -> None:
        """Queue basic.ack: a consumer's, or a broker's confirm."""
        if channel not in self._open:
            self._refuse(ACK, channel)
        try:
            self._out.append(_settlement(1, channel, 13, ACK, delivery_tag, multiple, 0xCE))
        except struct.error:
            raise EncodingError(f"{delivery_tag!r} is no delivery tag") from None

    def nack(self, channel: int, delivery_tag: int, multiple: bool = False, requeue: bool = True) -> None:
        """Queue basic.nack: a consumer's, or a broker's refusal of a publish."""
        if channel not in self._open:
            self._refuse(NACK, channel)
        try:
            self._out.append(_settlement(1, channel, 13, NACK, delivery_tag, multiple | requeue << 1, 0xCE))
        except struct.error:
            raise EncodingError(f"{delivery_tag!r} is no delivery tag") from None

    def reject(self, channel: int, delivery_tag: int, requeue: bool = True) -> None:
        """Queue basic.reject."""
        if channel not in self._open or self._side is Side.SERVER:
            self._refuse(REJECT, channel)
        try:
            self._out.append(_settlement(1, channel, 13, REJECT, delivery_tag, requeue, 0xCE))
        except struct.error:
            raise EncodingError(f"{delivery_tag!r} is no delivery tag") from None

    def deliver(
        self,
        channel: int,
        consumer_tag: str,
        delivery_tag: int,
        redelivered: bool,
        exchange: str,
        routing_key: str,
        header: bytes,
        body: bytes,
    ) -> None:
        """Queue basic.deliver with its content (server)."""
        if channel not in self._open:
            self._refuse(DELIVER, channel)
        tag = self._tags.get(consumer_tag)
        if tag is None:
            tag = self._pack_tag(consumer_tag)
        route = self._routes.get((exchange, routing_key))
        if route is None:
            route = self._pack_route(exchange, routing_key)
        start = b"".join(
            (
                _method_head(1, channel, len(tag) + len(route) + 13, DELIVER),
                tag,
                _tag_bits(delivery_tag, redelivered),
                route,
                (_END_THEN_HEADER | channel).to_bytes(4, "big"),
            )
        )
        self._send_content(channel, start, header, body)

    def get_ok(
        self,
        channel: int,
        delivery_tag: int,
        redelivered: bool,
        exchange: str,
        routing_key: str,
        message_count: int,
        header: bytes,
        body: bytes,
    ) -> None:
        """Queue basic.get-ok with its content (server)."""
        arguments = (
            _tag_bits(delivery_tag, redelivered)
            + self._pack_route(exchange, routing_key)
            + message_count.to_bytes(4, "big")
        )
        self._send_message(channel, GET_OK, arguments, header, body)

    def return_message(
        self,
        channel: int,
        reply_code: int,
        reply_text: str,
        exchange: str,
        routing_key: str,
        header: bytes,
        body: bytes,
    ) -> None:
        """Queue basic.return with its content (server)."""
        arguments = (
            reply_code.to_bytes(2, "big")
            + encode_short_string(reply_text, "reply text")
            + self._pack_route(exchange, routing_key)
        )
        self._send_message(channel, RETURN, arguments, header, body)

    # Packing

    def _send_message(self, channel: int, index: int, arguments: bytes, header: bytes, body: bytes) -> None:
        if channel not in self._open or index not in SPOKEN_BY[self._side]:
            self._refuse(index, channel)
        start = _method_head(1, channel, len(arguments) + 4, index) + arguments
        self._send_content(channel, start + (_END_THEN_HEADER | channel).to_bytes(4, "big"), header, body)

    def _send_content(self, channel: int, start: bytes, header: bytes, body: bytes) -> None:
        """A message of any size; `start` is its method frame up to the first three octets of the header frame."""
        payload_max = self._lifecycle.payload_max
        if len(header) + 12 > payload_max and self._side is Side.CLIENT:  # a broker passes on what has grown
            raise LocalProtocolError(
                ReplyCode.FRAME_ERROR,
                f"the properties take {len(header)} octets and must fit into one frame; frame_max is {self.frame_max}",
                channel=channel,
            )
        size = len(body)
        parts: list[bytes | memoryview] = [start, _header_head(len(header) + 12, _CLASS_AND_WEIGHT, size), header]
        if size <= payload_max:
            if size:
                parts += (_body_head(_END_THEN_BODY | channel, size), body)
        else:
            view = memoryview(body)
            for offset in range(0, size, payload_max):
                piece = view[offset : offset + payload_max]
                parts += (_body_head(_END_THEN_BODY | channel, len(piece)), piece)
        parts.append(b"\xce")
        self._out.append(b"".join(parts))

    def _pack_publish(self, key: tuple[int, str, str, bool, bool]) -> bytes:
        channel, exchange, routing_key, mandatory, immediate = key
        if self._side is Side.SERVER:
            self._refuse(PUBLISH, channel)
        route = self._pack_route(exchange, routing_key)
        start = (
            _method_head(1, channel, len(route) + 7, PUBLISH)
            + b"\x00\x00"
            + route
            + bytes((mandatory | immediate << 1,))
            + (_END_THEN_HEADER | channel).to_bytes(4, "big")
        )
        if len(self._publishes) >= _REMEMBERED_MAX:
            self._publishes.clear()
        self._publishes[key] = start
        return start

    def _pack_route(self, exchange: str, routing_key: str) -> bytes:
        packed = encode_short_string(exchange, "exchange") + encode_short_string(routing_key, "routing key")
        if len(self._routes) >= _REMEMBERED_MAX:
            self._routes.clear()
        self._routes[exchange, routing_key] = packed
        return packed

    def _pack_tag(self, consumer_tag: str) -> bytes:
        # Once per consumer, so the check of the role has its place here, off the path of every message.
        if self._side is Side.CLIENT:
            raise self._lifecycle.refusal(NAMES[DELIVER], "it is the server's to send")
        packed = encode_short_string(consumer_tag, "consumer tag")
        if len(self._tags) >= _REMEMBERED_MAX:
            self._tags.clear()
        self._tags[consumer_tag] = packed
        return packed

    def _refuse(self, index: int, channel: int) -> None:
        if index not in SPOKEN_BY[self._side]:
            raise self._lifecycle.refusal(NAMES[index], f"it is the {self._side.peer.value}'s to send", channel=channel)
        raise self._lifecycle.refusal(
            NAMES[index], f"channel {channel} is {self.channel_state(channel).name}", channel=channel
        )
