"""Messages on their way out: each packed with one or two precompiled structs and one join.

A publisher repeats itself: the method frame of a publish depends only on channel, exchange, routing key and flags, so
it is packed once and kept. What remains for each message is the header's lengths and the body. Joining each message
at once and the messages again in `data_to_send` was measured faster than one join over all the pieces.
"""

import struct

from redrive.wire.errors import EncodingError, LocalProtocolError, ReplyCode
from redrive.wire.hot import ACK, DELIVER, GET_OK, NACK, NAMES, PUBLISH, REJECT, RETURN, SPOKEN_BY
from redrive.wire.life import Life
from redrive.wire.negotiation import Limits
from redrive.wire.roles import Role
from redrive.wire.tables import encode_short_string

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


class Sending(Life):
    """The hot half of what an end can say.

    Every method raises LocalProtocolError if the channel is not open, and then nothing was queued. `header` is the raw
    content header from the property flags on (`Properties.raw`), sent as it is.
    """

    def __init__(self, role: Role, limits: Limits | None = None) -> None:
        super().__init__(role, limits)
        self._publishes: dict[tuple[int, str, str, bool, bool], bytes] = {}
        self._routes: dict[tuple[str, str], bytes] = {}
        self._tags: dict[str, bytes] = {}

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
        if 0 < size <= self._payload_max and len(header) + 12 <= self._payload_max:
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
        if channel not in self._open or self.role is Role.SERVER:
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

    def _send_message(self, channel: int, index: int, arguments: bytes, header: bytes, body: bytes) -> None:
        if channel not in self._open or index not in SPOKEN_BY[self.role]:
            self._refuse(index, channel)
        start = _method_head(1, channel, len(arguments) + 4, index) + arguments
        self._send_content(channel, start + (_END_THEN_HEADER | channel).to_bytes(4, "big"), header, body)

    def _send_content(self, channel: int, start: bytes, header: bytes, body: bytes) -> None:
        """A message of any size; `start` is its method frame up to the first three octets of the header frame."""
        payload_max = self._payload_max
        if len(header) + 12 > payload_max and self.role is Role.CLIENT:  # a broker passes on what has grown
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
        if self.role is Role.SERVER:
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
        if self.role is Role.CLIENT:
            raise self._refusal(NAMES[DELIVER], "it is the server's to send")
        packed = encode_short_string(consumer_tag, "consumer tag")
        if len(self._tags) >= _REMEMBERED_MAX:
            self._tags.clear()
        self._tags[consumer_tag] = packed
        return packed

    def _refuse(self, index: int, channel: int) -> None:
        if index not in SPOKEN_BY[self.role]:
            raise self._refusal(NAMES[index], f"it is the {self.role.peer.value}'s to send", channel=channel)
        raise self._refusal(NAMES[index], f"channel {channel} is {self.channel_state(channel).name}", channel=channel)
