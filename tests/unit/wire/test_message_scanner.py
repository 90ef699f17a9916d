"""Reading whole messages in one go gives the same events as reading frame by frame, however the stream is cut."""

from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from redrive import wire
from tests.unit.wire import strategies
from tests.unit.wire.pairs import described, in_chunks, open_pair

small = wire.Limits(frame_max=4096)
bodies = st.binary(max_size=60) | st.integers(4000, 9000).map(bytes)
headers = st.builds(
    lambda properties, table: wire.Properties.of(headers=table, **properties).raw,
    strategies.properties,
    strategies.tables.filter(lambda table: len(wire.encode_table(table)) < 500),
).filter(lambda raw: len(raw) < 4000)
# pamqp can't read every timestamp, so it gets none.
plain_headers = st.builds(
    lambda table: wire.Properties.of(headers=table).raw, st.dictionaries(strategies.short_texts, strategies.texts)
)
cuts = st.lists(st.integers(0, 1 << 20), max_size=12)
tags = st.integers(0, (1 << 64) - 1)


@st.composite
def from_server(draw: st.DrawFn) -> bytes:
    _, server = open_pair(small)
    for _ in range(draw(st.integers(1, 5))):
        exchange, key = draw(strategies.short_texts), draw(strategies.short_texts)
        raw, content = draw(headers), draw(bodies)
        match draw(st.integers(0, 5)):
            case 0 | 1:
                tag, redelivered = draw(tags), draw(st.booleans())
                server.deliver(1, draw(strategies.short_texts), tag, redelivered, exchange, key, raw, content)
            case 2:
                server.get_ok(1, draw(tags), draw(st.booleans()), exchange, key, 5, raw, content)
            case 3:
                server.return_message(1, 312, "NO_ROUTE", exchange, key, raw, content)
            case 4:
                server.ack(1, draw(tags), draw(st.booleans()))
            case _:
                server.nack(1, draw(tags), draw(st.booleans()), draw(st.booleans()))
    return server.data_to_send()


@st.composite
def from_client(draw: st.DrawFn) -> bytes:
    client, _ = open_pair(small)
    for _ in range(draw(st.integers(1, 5))):
        match draw(st.integers(0, 4)):
            case 0 | 1:
                exchange, key = draw(strategies.short_texts), draw(strategies.short_texts)
                flags = draw(st.booleans()), draw(st.booleans())
                client.publish(1, exchange, key, draw(headers), draw(bodies), *flags)
            case 2:
                client.ack(1, draw(tags), draw(st.booleans()))
            case 3:
                client.nack(1, draw(tags), draw(st.booleans()), draw(st.booleans()))
            case _:
                client.reject(1, draw(tags), draw(st.booleans()))
    return client.data_to_send()


@given(from_server(), cuts)
def test_any_chunking_gives_a_client_the_same_events(data: bytes, cuts: list[int]) -> None:
    whole = [described(event) for event in open_pair(small)[0].receive_data(data)]
    assert [described(event) for event in in_chunks(open_pair(small)[0], data, cuts)] == whole
    octets = list(range(min(len(data), 1000)))
    assert [described(event) for event in in_chunks(open_pair(small)[0], data, octets)] == whole


@given(from_client(), cuts)
def test_any_chunking_gives_a_server_the_same_events(data: bytes, cuts: list[int]) -> None:
    whole = [described(event) for event in open_pair(small)[1].receive_data(data)]
    assert [described(event) for event in in_chunks(open_pair(small)[1], data, cuts)] == whole
    octets = list(range(min(len(data), 1000)))
    assert [described(event) for event in in_chunks(open_pair(small)[1], data, octets)] == whole


def _pamqp_frames(data: bytes) -> list[object]:
    found: list[object] = []
    while data:
        size, _, value = frame.unmarshal(data)
        found.append(value)
        data = data[size:]
    return found


@given(strategies.short_texts, strategies.short_texts, plain_headers, st.binary(min_size=1, max_size=60))
def test_pamqp_reads_a_publish_and_a_delivery_of_ours(exchange: str, key: str, raw: bytes, content: bytes) -> None:
    client, server = open_pair()
    client.publish(1, exchange, key, raw, content, mandatory=True)
    method, head, tail = _pamqp_frames(client.data_to_send())
    assert isinstance(method, commands.Basic.Publish)
    assert (method.exchange, method.routing_key, method.mandatory) == (exchange, key, True)
    assert isinstance(head, header.ContentHeader)
    assert head.body_size == len(content)
    assert isinstance(tail, body.ContentBody)
    assert tail.value == content
    server.deliver(1, "c", 77, True, exchange, key, raw, content)
    delivered, _, _ = _pamqp_frames(server.data_to_send())
    assert isinstance(delivered, commands.Basic.Deliver)
    assert (delivered.consumer_tag, delivered.delivery_tag, delivered.redelivered) == ("c", 77, True)
    assert (delivered.exchange, delivered.routing_key) == (exchange, key)


def test_we_read_deliveries_returns_gets_and_confirms_of_pamqp() -> None:
    client, _ = open_pair()
    content = [
        frame.marshal(header.ContentHeader(0, 4, commands.Basic.Properties(message_id="m")), 1),
        frame.marshal(body.ContentBody(b"body"), 1),
    ]
    said = [
        frame.marshal(commands.Basic.Deliver("c", 5, True, "ex", "rk"), 1),
        *content,
        frame.marshal(commands.Basic.Return(312, "NO_ROUTE", "ex", "rk"), 1),
        *content,
        frame.marshal(commands.Basic.GetOk(6, False, "ex", "rk", 3), 1),
        *content,
        frame.marshal(commands.Basic.Ack(7, True), 1),
        frame.marshal(commands.Basic.Nack(8, False, True), 1),
    ]
    raw = commands.Basic.Properties(message_id="m").marshal()
    route = ("ex", "rk")
    assert [described(event) for event in client.receive_data(b"".join(said))] == [
        described(wire.Delivery(1, "c", 5, True, route, raw, b"body")),
        described(wire.Returned(1, 312, "NO_ROUTE", route, raw, b"body")),
        described(wire.Got(1, 6, False, 3, route, raw, b"body")),
        described(wire.Ack(1, 7, True)),
        described(wire.Nack(1, 8, False, True)),
    ]


def test_more_routes_than_are_remembered_are_still_right() -> None:
    client, server = open_pair()
    for turn in range(5000):
        client.publish(1, "ex", f"key.{turn}", b"\x00\x00", b"x")
        server.deliver(1, f"tag.{turn}", turn, False, "ex", f"key.{turn}", b"\x00\x00", b"x")
    published = [event for event in server.receive_data(client.data_to_send()) if isinstance(event, wire.Published)]
    delivered = [event for event in client.receive_data(server.data_to_send()) if isinstance(event, wire.Delivery)]
    assert [event.routing_key for event in published] == [f"key.{turn}" for turn in range(5000)]
    assert [(event.consumer_tag, event.routing_key) for event in delivered] == [
        (f"tag.{turn}", f"key.{turn}") for turn in range(5000)
    ]
