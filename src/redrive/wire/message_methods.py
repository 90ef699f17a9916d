"""The seven methods that carry or settle messages: their indexes, and reading each from its method frame.

The usual case, a whole message in the buffer, never comes here: `message_scanner` reads it in one go. These readers are
for a message that arrives in pieces, for the rarer methods, and to say precisely what is wrong with a malformed one.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from redrive.wire.errors import syntax_error
from redrive.wire.events import Ack, ContentEvent, Delivery, Got, Nack, Published, Reject, Returned
from redrive.wire.methods import Side

PUBLISH = 0x003C0028
RETURN = 0x003C0032
DELIVER = 0x003C003C
GET_OK = 0x003C0047
ACK = 0x003C0050
REJECT = 0x003C005A
NACK = 0x003C0078

NAMES = {
    PUBLISH: "basic.publish",
    RETURN: "basic.return",
    DELIVER: "basic.deliver",
    GET_OK: "basic.get-ok",
    ACK: "basic.ack",
    REJECT: "basic.reject",
    NACK: "basic.nack",
}
SPOKEN_BY = {
    Side.CLIENT: frozenset({PUBLISH, ACK, NACK, REJECT}),
    Side.SERVER: frozenset({DELIVER, GET_OK, RETURN, ACK, NACK}),
}

_TAG_BITS = struct.Struct(">QB")

Route: TypeAlias = tuple[str, str]
Settlement: TypeAlias = Ack | Nack | Reject


class Opening(NamedTuple):
    """The method frame of a message: which event it will be, and the event's arguments between channel and route."""

    event: Callable[..., ContentEvent]
    arguments: tuple[Any, ...]
    route: Route

    def complete(self, channel: int, header: bytes, body: bytes) -> ContentEvent:
        return self.event(channel, *self.arguments, self.route, header, body)


def read_settlement(index: int, channel: int, payload: bytes) -> Settlement:
    """ack, nack or reject from the payload of its frame."""
    if len(payload) != 13:
        raise syntax_error(f"{NAMES[index]} has {len(payload)} octets instead of 13")
    tag, bits = _TAG_BITS.unpack_from(payload, 4)
    if index == ACK:
        return Ack(channel, tag, bits & 1 == 1)
    if index == NACK:
        return Nack(channel, tag, bits & 1 == 1, bits & 2 == 2)
    return Reject(channel, tag, bits & 1 == 1)


def read_opening(index: int, payload: bytes) -> Opening:
    """publish, deliver, get-ok or return from the payload of its frame."""
    try:
        if index == DELIVER:
            tag, start = read_short_string(payload, 4)
            delivery_tag, bits = _TAG_BITS.unpack_from(payload, start)
            route, end = _read_route(payload, start + 9)
            opening = Opening(Delivery, (tag, delivery_tag, bits & 1 == 1), route)
        elif index == PUBLISH:
            route, start = _read_route(payload, 6)
            bits, end = payload[start], start + 1
            opening = Opening(Published, (bits & 1 == 1, bits & 2 == 2), route)
        elif index == GET_OK:
            delivery_tag, bits = _TAG_BITS.unpack_from(payload, 4)
            route, start = _read_route(payload, 13)
            count, end = struct.unpack_from(">I", payload, start)[0], start + 4
            opening = Opening(Got, (delivery_tag, bits & 1 == 1, count), route)
        else:
            code = struct.unpack_from(">H", payload, 4)[0]
            text, start = read_short_string(payload, 6)
            route, end = _read_route(payload, start)
            opening = Opening(Returned, (code, text), route)
    except (IndexError, struct.error):
        raise syntax_error(f"{NAMES[index]} is cut short") from None
    if end != len(payload):
        raise syntax_error(f"{len(payload) - end} octets follow {NAMES[index]}")
    return opening


def read_short_string(data: bytes, start: int) -> tuple[str, int]:
    """A short string and the position after it. Raises IndexError if it does not fit."""
    end = start + 1 + data[start]
    if end > len(data):
        raise IndexError
    return str(data[start + 1 : end], "utf-8", "surrogateescape"), end


def _read_route(data: bytes, start: int) -> tuple[Route, int]:
    exchange, start = read_short_string(data, start)
    routing_key, end = read_short_string(data, start)
    return (exchange, routing_key), end
