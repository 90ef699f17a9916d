"""Inputs to start from: one of everything that the protocol knows, well-formed."""

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from redrive import wire
from redrive.wire import methods

TABLE: dict[str, Any] = {
    "k": 1,
    "b": wire.Int8(-1),
    "B": wire.UInt8(1),
    "s": wire.Int16(1),
    "u": wire.UInt16(1),
    "i": wire.UInt32(1),
    "l": wire.Int64(1),
    "L": wire.LongLong(1),
    "f": wire.Float32(1.5),
    "d": 1.5,
    "D": Decimal("1.5"),
    "S": "text",
    "x": b"bytes",
    "T": datetime(2024, 1, 1, tzinfo=UTC),
    "t": True,
    "V": None,
    "A": [1, "two", [3], {"four": 4}],
    "F": {"in": {"side": 1}},
}
PROPERTIES = wire.Properties.of(
    headers=TABLE,
    content_type="application/json",
    delivery_mode=2,
    priority=1,
    correlation_id="c",
    reply_to="r",
    expiration="1000",
    message_id="m",
    timestamp=datetime(2024, 1, 1, tzinfo=UTC),
    type="t",
    user_id="u",
    app_id="a",
)


def seeds(target: str) -> list[bytes]:
    """Well-formed inputs for a target."""
    match target:
        case "splitter":
            return [wire.encode_frame(kind, 1, b"payload") for kind in (1, 2, 3, 8)]
        case "tables":
            each = [wire.encode_table({key: value})[4:] for key, value in TABLE.items()]
            return [*each, PROPERTIES.raw, *(methods.encode_method(cls()) for cls in methods.METHODS.values())]
        case "client":
            return [b"\x05" + _handshake(wire.Side.SERVER), *(b"\xff" + said for said in _said(wire.Side.SERVER))]
        case _:
            return [b"\x05" + _handshake(wire.Side.CLIENT), *(b"\xff" + said for said in _said(wire.Side.CLIENT))]


def _handshake(speaker: wire.Side) -> bytes:
    if speaker is wire.Side.SERVER:
        said: list[methods.Method] = [methods.ConnectionStart(server_properties={"product": "RabbitMQ"})]
        return b"".join(_frame(0, method) for method in [*said, methods.ConnectionTune(frame_max=4096)])
    return wire.PROTOCOL_HEADER + b"".join(
        [
            _frame(0, methods.ConnectionStartOk(response=wire.plain_response("guest", "guest"))),
            _frame(0, methods.ConnectionTuneOk(channel_max=4, frame_max=4096)),
            _frame(0, methods.ConnectionOpen()),
            _frame(1, methods.ChannelOpen()),
            _publish(1, b"x"),
        ]
    )


def _said(speaker: wire.Side) -> list[bytes]:
    """Each method that may be spoken, and messages: whole, empty, in two frames, interleaved."""
    channel_of = {"connection": 0}
    said = [
        _frame(channel_of.get(cls.NAME.partition(".")[0], 1), cls())
        for cls in methods.METHODS.values()
        if cls.SPEAKER in (None, speaker)
    ]
    settle = [wire.encode_frame(1, 1, struct.pack(">IQB", index, 7, 1)) for index in (0x3C0050, 0x3C0078, 0x3C005A)]
    message = _publish if speaker is wire.Side.CLIENT else _deliver
    messages = [
        message(1, b"body"),
        message(1, b""),
        message(1, bytes(5000)),
        message(1, b"one") * 3,
        message(1, b"body")[:-10] + wire.encode_frame(8, 0, b""),
    ]
    others = (
        [_got(), _returned()] if speaker is wire.Side.SERVER else [_publish(1, b"x", "missing") + _publish(1, b"y")]
    )
    return [*said, *settle, *messages, *others, b"".join(messages[:2] + settle[:1])]


def _frame(channel: int, method: methods.Method) -> bytes:
    return wire.encode_frame(1, channel, methods.encode_method(method))


def _content(channel: int, arguments: bytes, body: bytes) -> bytes:
    pieces = [body[start : start + 4000] for start in range(0, len(body), 4000)]
    return (
        wire.encode_frame(1, channel, arguments)
        + wire.encode_frame(2, channel, struct.pack(">HHQ", 60, 0, len(body)) + PROPERTIES.raw)
        + b"".join(wire.encode_frame(3, channel, piece) for piece in pieces)
    )


def _publish(channel: int, body: bytes, exchange: str = "ex") -> bytes:
    route = bytes((len(exchange),)) + exchange.encode() + b"\x02rk"
    return _content(channel, b"\x00\x3c\x00\x28\x00\x00" + route + b"\x01", body)


def _deliver(channel: int, body: bytes) -> bytes:
    return _content(channel, b"\x00\x3c\x00\x3c\x01c" + struct.pack(">QB", 7, 0) + b"\x02ex\x02rk", body)


def _got() -> bytes:
    return _content(1, b"\x00\x3c\x00\x47" + struct.pack(">QB", 7, 0) + b"\x02ex\x02rk\x00\x00\x00\x01", b"body")


def _returned() -> bytes:
    return _content(1, b"\x00\x3c\x00\x32\x01\x38\x08NO_ROUTE\x02ex\x02rk", b"body")
