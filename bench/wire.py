"""What one message costs on the wire layer, in µs, next to pamqp doing the same: `python -m bench.wire`.

256-byte persistent JSON bodies with the usual properties, batches of 500 as a socket would bring them, the best of
several rounds (a shared machine only ever adds to a measurement). No I/O: this is codec and state machine alone.
"""

import sys
import time
from collections.abc import Callable

from pamqp import body, commands, frame, header

from redrive import wire
from redrive.wire import methods

BATCH = 500
BODY = (b'{"order": 4711, "items": [' + b'{"sku": "A-1", "n": 1}, ' * 20)[:254] + b"]}"
PROPERTIES = wire.Properties.of(
    content_type="application/json",
    delivery_mode=2,
    message_id="5e0f2f3c-0a5c-4b52-9f0c-6f5fb1a9f0aa",
    headers={"x-retry-count": 1},
)


def main(rounds: int = 150) -> None:
    """Print the table."""
    assert len(BODY) == 256
    print(f"µs per message, {len(BODY)}-byte body, Python {sys.version.split()[0]}")
    print(f"{'':40}{'redrive.wire':>14}{'pamqp':>9}{'ratio':>8}")
    rows: list[tuple[str, Callable[[], None], Callable[[], None] | None]] = [
        ("publish, encode", _publish_encode(), _pamqp_publish_encode),
        ("publish, decode (server)", _decode(wire.Side.SERVER, _publishes()), _pamqp_decode(_publishes())),
        ("deliver, encode (server)", _deliver_encode(), None),
        ("deliver, decode", _decode(wire.Side.CLIENT, _deliveries()), _pamqp_decode(_deliveries())),
        ("deliver, decode, in 8 KiB chunks", _decode(wire.Side.CLIENT, _deliveries(), 8192), None),
        ("deliver, decode, one header read", _decode_header(), None),
        ("deliver, decode, all headers read", _decode_headers(), None),
        ("edit two headers", _edit, None),
        ("ack, encode", _ack_encode(), _pamqp_ack_encode),
        ("confirm, decode", _decode(wire.Side.CLIENT, _acks()), _pamqp_decode(_acks())),
    ]
    for name, ours, theirs in rows:
        if theirs is None:
            print(f"{name:40}{_best_us([ours], rounds)[0]:14.2f}")
        else:
            mine, reference = _best_us([ours, theirs], rounds)
            print(f"{name:40}{mine:14.2f}{reference:9.2f}{reference / mine:7.0f}×")


def open_pair() -> tuple[wire.Connection, wire.Connection]:
    """A client and a server that have gone through the handshake and opened channel 1."""
    client, server = wire.Connection(wire.Side.CLIENT), wire.Connection(wire.Side.SERVER)
    client.send_protocol_header()
    _carry(client, server)
    server.send(0, methods.ConnectionStart())
    _carry(server, client)
    client.send(0, methods.ConnectionStartOk(response=wire.plain_response("guest", "guest")))
    _carry(client, server)
    server.send(0, server.limits.propose())
    _carry(server, client)
    client.answer_tune(server.limits.propose())
    client.send(0, methods.ConnectionOpen())
    _carry(client, server)
    server.send(0, methods.ConnectionOpenOk())
    _carry(server, client)
    client.send(1, methods.ChannelOpen())
    _carry(client, server)
    server.send(1, methods.ChannelOpenOk())
    _carry(server, client)
    return client, server


def _carry(source: wire.Connection, target: wire.Connection) -> None:
    for _ in target.receive_data(source.data_to_send()):
        pass


def _best_us(runs: list[Callable[[], None]], rounds: int) -> list[float]:
    """The best of each, turn by turn and equally often: on a busy machine whoever has more turns looks faster."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for number, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - start)
    return [each / BATCH * 1e6 for each in best]


def _publish_encode() -> Callable[[], None]:
    client, _ = open_pair()
    raw = PROPERTIES.raw

    def run() -> None:
        for _ in range(BATCH):
            client.publish(1, "orders", "orders.placed", raw, BODY, True)
        client.data_to_send()

    return run


def _deliver_encode() -> Callable[[], None]:
    _, server = open_pair()
    raw = PROPERTIES.raw

    def run() -> None:
        for tag in range(BATCH):
            server.deliver(1, "ctag1.9f0c6f5f", tag, False, "orders", "orders.placed", raw, BODY)
        server.data_to_send()

    return run


def _ack_encode() -> Callable[[], None]:
    client, _ = open_pair()

    def run() -> None:
        for tag in range(BATCH):
            client.ack(1, tag)
        client.data_to_send()

    return run


def _decode(role: wire.Side, data: bytes, chunk: int | None = None) -> Callable[[], None]:
    client, server = open_pair()
    connection = client if role is wire.Side.CLIENT else server
    step = len(data) if chunk is None else chunk
    chunks = [data[start : start + step] for start in range(0, len(data), step)]

    def run() -> None:
        count = 0
        for piece in chunks:
            for event in connection.receive_data(piece):
                count += event.channel
        assert count == BATCH

    return run


def _decode_header() -> Callable[[], None]:
    client, _ = open_pair()
    data = _deliveries()

    def run() -> None:
        for event in client.receive_data(data):
            assert isinstance(event, wire.Delivery)
            assert event.properties.header("x-retry-count") == 1

    return run


def _decode_headers() -> Callable[[], None]:
    client, _ = open_pair()
    data = _deliveries()

    def run() -> None:
        for event in client.receive_data(data):
            assert isinstance(event, wire.Delivery)
            assert event.properties.headers["x-retry-count"] == 1
            assert event.properties.message_id is not None

    return run


def _edit() -> None:
    raw = PROPERTIES.raw
    for _ in range(BATCH):
        wire.Properties(raw).edit(headers={"x-retry-count": 2, "x-original-queue": "orders"}, expiration=None)


def _publishes() -> bytes:
    client, _ = open_pair()
    for _ in range(BATCH):
        client.publish(1, "orders", "orders.placed", PROPERTIES.raw, BODY, True)
    return client.data_to_send()


def _deliveries() -> bytes:
    _, server = open_pair()
    for tag in range(BATCH):
        server.deliver(1, "ctag1.9f0c6f5f", tag, False, "orders", "orders.placed", PROPERTIES.raw, BODY)
    return server.data_to_send()


def _acks() -> bytes:
    _, server = open_pair()
    for tag in range(BATCH):
        server.ack(1, tag)
    return server.data_to_send()


def _pamqp_publish_encode() -> None:
    out = []
    for _ in range(BATCH):
        properties = commands.Basic.Properties(
            content_type="application/json",
            delivery_mode=2,
            message_id="5e0f2f3c-0a5c-4b52-9f0c-6f5fb1a9f0aa",
            headers={"x-retry-count": 1},
        )
        out.append(frame.marshal(commands.Basic.Publish(0, "orders", "orders.placed", True), 1))
        out.append(frame.marshal(header.ContentHeader(0, len(BODY), properties), 1))
        out.append(frame.marshal(body.ContentBody(BODY), 1))
    b"".join(out)


def _pamqp_ack_encode() -> None:
    b"".join([frame.marshal(commands.Basic.Ack(tag), 1) for tag in range(BATCH)])


def _pamqp_decode(data: bytes) -> Callable[[], None]:
    # One frame's bytes at a time, found beforehand: pamqp would otherwise be charged for slicing the whole buffer.
    frames, rest = [], data
    while rest:
        size = 8 + int.from_bytes(rest[3:7], "big")
        frames.append(rest[:size])
        rest = rest[size:]

    def run() -> None:
        for each in frames:
            frame.unmarshal(each)

    return run


if __name__ == "__main__":
    main()
