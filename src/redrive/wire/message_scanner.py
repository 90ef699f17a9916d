"""The hot loops: read whole messages in place, without cutting out their frames.

When method, header and body frame of a message are in the buffer together, as they nearly always are, no frame is cut
out and no state machine is asked: three `struct` reads, two dictionary look-ups, three slices. The end octet of a frame
and the type and channel of the next are checked as one integer. Whatever does not fit (a message in pieces, a larger
one, another method, anything malformed) is left in the buffer for `FrameReceiver`, frame by frame; so these loops
decide nothing but speed, and a test compares the two.

What follows the delivery tag in a deliver (exchange and routing key), or the index in a publish (the same and its
flags), repeats from message to message. Its raw bytes are the key of a small dictionary; a hit means that these very
bytes were parsed before, so it saves the checks as well as the decoding.

The two loops are alike and apart on purpose: a call for each message would cost more than what they share.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error

from redrive.wire.errors import RemoteProtocolError
from redrive.wire.events import Ack, Event, Nack, Published, Reject
from redrive.wire.frame_receiver import FrameReceiver
from redrive.wire.lifecycle import Lifecycle
from redrive.wire.message_methods import ACK, DELIVER, NACK, PUBLISH, REJECT, Route, read_short_string
from redrive.wire.protocol_states import ConnectionState

_REMEMBERED_MAX = 4096
_SETTLEMENT_SIZE = 21  # the whole frame of ack, nack or reject, and less than any frame of a message

_frame_head = Struct(">BHII").unpack_from
_tag_bits = Struct(">QB").unpack_from
_header_head = Struct(">IIIQ").unpack_from
_body_head = Struct(">II").unpack_from


class MessageScanner:
    """The loops of both sides over the splitter's buffer."""

    def __init__(self, lifecycle: Lifecycle, receiver: FrameReceiver) -> None:
        self._lifecycle = lifecycle
        self._receiver = receiver
        self._seen_tags: dict[bytes, str] = {}
        self._seen_routes: dict[bytes, Route] = {}
        self._seen_publishes: dict[bytes, tuple[Route, bool, bool]] = {}

    def scan_client(self) -> Iterator[Event]:
        """A client's events out of what was fed to the splitter. Raises RemoteProtocolError."""
        lifecycle = self._lifecycle
        splitter, ready, whole_message_max = lifecycle.splitter, lifecycle.ready_channels, lifecycle.whole_message_max
        delivery_types = lifecycle.delivery_types
        data, position = splitter.data, splitter.position
        size = len(data)
        try:
            while True:
                if size - position >= _SETTLEMENT_SIZE:
                    frame_type, channel, length, index = _frame_head(data, position)
                    if frame_type == 1 and channel in ready:
                        if index == DELIVER:
                            try:
                                tag_end = position + 12 + data[position + 11]
                                end = position + 7 + length
                                header_mark, header_size, class_weight, body_size = _header_head(data, end)
                                header_end = end + 8 + header_size
                                if body_size:
                                    body_mark, body_length = _body_head(data, header_end)
                                    body_start = header_end + 8
                                else:
                                    body_mark, body_length = 0xCE030000 | channel, 0
                                    body_start = header_end
                                body_end = body_start + body_length
                                if (
                                    header_mark == 0xCE020000 | channel
                                    and class_weight == 0x003C0000
                                    and body_mark == 0xCE030000 | channel
                                    and body_length == body_size
                                    and data[body_end] == 0xCE
                                    and header_size >= 14
                                    and body_end - position <= whole_message_max
                                ):
                                    raw_route = data[tag_end + 9 : end]
                                    route = self._seen_routes.get(raw_route) or self._remember_route(raw_route)
                                    raw_tag = data[position + 12 : tag_end]
                                    tag = self._seen_tags.get(raw_tag) or self._remember_tag(raw_tag)
                                    delivery_tag, bits = _tag_bits(data, tag_end)
                                    splitter.position = position = body_end + 1
                                    delivery_type, session = delivery_types[channel]
                                    yield delivery_type(
                                        channel,
                                        tag,
                                        delivery_tag,
                                        bits & 1 == 1,
                                        route,
                                        data[end + 20 : header_end],
                                        data[body_start:body_end],
                                        session,
                                    )
                                    continue
                            except (IndexError, struct_error):
                                pass  # not all of it is here, or it is malformed: the receiver finds out which
                        elif length == 13 and data[position + 20] == 0xCE:
                            if index == ACK:
                                delivery_tag, bits = _tag_bits(data, position + 11)
                                splitter.position = position = position + _SETTLEMENT_SIZE
                                yield Ack(channel, delivery_tag, bits & 1 == 1)
                                continue
                            if index == NACK:
                                delivery_tag, bits = _tag_bits(data, position + 11)
                                splitter.position = position = position + _SETTLEMENT_SIZE
                                yield Nack(channel, delivery_tag, bits & 1 == 1, bits & 2 == 2)
                                continue
                if lifecycle.state is ConnectionState.GREETED and splitter.peek()[:1] == b"A":
                    self._receiver.receive_greeting()
                    return
                frame = splitter.next_frame()
                if frame is None:
                    return
                event = self._receiver.receive_frame(frame)
                if event is not None:
                    yield event
                data, position = splitter.data, splitter.position
                size, whole_message_max = len(data), lifecycle.whole_message_max
        except RemoteProtocolError as error:
            lifecycle.give_up(error)
            raise

    def scan_server(self) -> Iterator[Event]:
        """A server's events, in the same way."""
        lifecycle = self._lifecycle
        splitter, ready, whole_message_max = lifecycle.splitter, lifecycle.ready_channels, lifecycle.whole_message_max
        try:
            if lifecycle.state is ConnectionState.IDLE:
                greeting = self._receiver.receive_greeting()
                if greeting is None:
                    return
                yield greeting
            data, position = splitter.data, splitter.position
            size = len(data)
            while True:
                if size - position >= _SETTLEMENT_SIZE:
                    frame_type, channel, length, index = _frame_head(data, position)
                    if frame_type == 1 and channel in ready:
                        if index == PUBLISH:
                            try:
                                end = position + 7 + length
                                header_mark, header_size, class_weight, body_size = _header_head(data, end)
                                header_end = end + 8 + header_size
                                if body_size:
                                    body_mark, body_length = _body_head(data, header_end)
                                    body_start = header_end + 8
                                else:
                                    body_mark, body_length = 0xCE030000 | channel, 0
                                    body_start = header_end
                                body_end = body_start + body_length
                                if (
                                    header_mark == 0xCE020000 | channel
                                    and class_weight == 0x003C0000
                                    and body_mark == 0xCE030000 | channel
                                    and body_length == body_size
                                    and data[body_end] == 0xCE
                                    and header_size >= 14
                                    and body_end - position <= whole_message_max
                                ):
                                    raw = data[position + 13 : end]
                                    known = self._seen_publishes.get(raw) or self._remember_publish(raw)
                                    splitter.position = position = body_end + 1
                                    yield Published(
                                        channel,
                                        known[1],
                                        known[2],
                                        known[0],
                                        data[end + 20 : header_end],
                                        data[body_start:body_end],
                                    )
                                    continue
                            except (IndexError, struct_error):
                                pass  # not all of it is here, or it is malformed: the receiver finds out which
                        elif length == 13 and data[position + 20] == 0xCE:
                            delivery_tag, bits = _tag_bits(data, position + 11)
                            settled: Event | None = None
                            if index == ACK:
                                settled = Ack(channel, delivery_tag, bits & 1 == 1)
                            elif index == NACK:
                                settled = Nack(channel, delivery_tag, bits & 1 == 1, bits & 2 == 2)
                            elif index == REJECT:
                                settled = Reject(channel, delivery_tag, bits & 1 == 1)
                            if settled is not None:
                                splitter.position = position = position + _SETTLEMENT_SIZE
                                yield settled
                                continue
                frame = splitter.next_frame()
                if frame is None:
                    return
                event = self._receiver.receive_frame(frame)
                if event is not None:
                    yield event
                data, position = splitter.data, splitter.position
                size, whole_message_max = len(data), lifecycle.whole_message_max
        except RemoteProtocolError as error:
            lifecycle.give_up(error)
            raise

    def _remember_route(self, raw: bytes) -> Route:
        """Exchange and routing key from what follows the delivery tag. Raises IndexError if that is not the whole."""
        exchange, start = read_short_string(raw, 0)
        routing_key, end = read_short_string(raw, start)
        if end != len(raw):
            raise IndexError
        if len(self._seen_routes) >= _REMEMBERED_MAX:
            self._seen_routes.clear()
        self._seen_routes[raw] = route = (exchange, routing_key)
        return route

    def _remember_tag(self, raw: bytes) -> str:
        if len(self._seen_tags) >= _REMEMBERED_MAX:
            self._seen_tags.clear()
        self._seen_tags[raw] = tag = str(raw, "utf-8", "surrogateescape")
        return tag

    def _remember_publish(self, raw: bytes) -> tuple[Route, bool, bool]:
        exchange, start = read_short_string(raw, 0)
        routing_key, end = read_short_string(raw, start)
        if end != len(raw) - 1:
            raise IndexError
        if len(self._seen_publishes) >= _REMEMBERED_MAX:
            self._seen_publishes.clear()
        self._seen_publishes[raw] = known = ((exchange, routing_key), raw[end] & 1 == 1, raw[end] & 2 == 2)
        return known
