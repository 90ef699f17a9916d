"""A client and a server connection, from handshake to close, in memory."""

from collections.abc import Callable
from typing import Any

import pytest

from redrive import wire
from redrive.wire import methods
from tests.unit.wire.pairs import carry, described, open_pair

HEADER = wire.Properties.of(message_id="m-1", delivery_mode=2, headers={"x-retry-count": 1}).raw


def _methods(events: list[wire.Event]) -> list[methods.Method]:
    assert all(isinstance(event, wire.Command) for event in events), events
    return [event.method for event in events if isinstance(event, wire.Command)]


def test_the_handshake_tunes_and_opens_both_ends() -> None:
    limits = wire.Limits(channel_max=100, frame_max=8192, heartbeat_s=30)
    client, server = wire.Connection(wire.Side.CLIENT, limits), wire.Connection(wire.Side.SERVER)
    client.send_protocol_header()
    (greeted,) = carry(client, server)
    assert isinstance(greeted, wire.Greeted)
    server.send(0, methods.ConnectionStart(server_properties={"product": "RabbitMQ", "version": "4.3.6"}))
    (start,) = _methods(carry(server, client))
    assert isinstance(start, methods.ConnectionStart)
    assert start.server_properties["version"] == "4.3.6"
    client.send(0, methods.ConnectionStartOk(mechanism="AMQPLAIN", response=wire.amqplain_response("ü", "p")))
    (start_ok,) = _methods(carry(client, server))
    assert isinstance(start_ok, methods.ConnectionStartOk)
    assert wire.read_credentials(start_ok.mechanism, start_ok.response) == ("ü", "p")
    server.send(0, methods.ConnectionSecure(challenge=b"?"))
    carry(server, client)
    client.send(0, methods.ConnectionSecureOk(response=b"!"))
    carry(client, server)
    server.send(0, server.limits.propose())
    (tune,) = _methods(carry(server, client))
    assert isinstance(tune, methods.ConnectionTune)
    client.answer_tune(tune)
    client.send(0, methods.ConnectionOpen(virtual_host="shop"))
    assert [method.NAME for method in _methods(carry(client, server))] == ["connection.tune-ok", "connection.open"]
    server.send(0, methods.ConnectionOpenOk())
    carry(server, client)
    for end in (client, server):
        assert end.is_open
        assert (end.channel_max, end.frame_max, end.heartbeat_s) == (100, 8192, 30)


def test_a_server_handles_a_pipelined_handshake_event_by_event() -> None:
    client, server = wire.Connection(wire.Side.CLIENT), wire.Connection(wire.Side.SERVER)
    client.send_protocol_header()
    said = client.data_to_send() + b"".join(
        wire.encode_frame(1, channel, methods.encode_method(method))
        for channel, method in [
            (0, methods.ConnectionStartOk()),
            (0, methods.ConnectionTuneOk(channel_max=1, frame_max=4096)),
            (0, methods.ConnectionOpen()),
            (1, methods.ChannelOpen()),
            (1, methods.QueueDeclare(queue="q")),
        ]
    )
    answers = {
        "connection.start-ok": (0, server.limits.propose()),
        "connection.open": (0, methods.ConnectionOpenOk()),
        "channel.open": (1, methods.ChannelOpenOk()),
    }
    seen = []
    for event in server.receive_data(said):
        if isinstance(event, wire.Greeted):
            server.send(0, methods.ConnectionStart())
        elif isinstance(event, wire.Command):
            seen.append(event.method.NAME)
            if event.method.NAME in answers:
                server.send(*answers[event.method.NAME])
    assert seen[-1] == "queue.declare"


def test_a_message_goes_out_is_delivered_acked_and_confirmed() -> None:
    client, server = open_pair()
    client.send(1, methods.QueueDeclare(queue="очередь", durable=True, arguments={"x-queue-type": "quorum"}))
    (declare,) = _methods(carry(client, server))
    assert declare == methods.QueueDeclare(queue="очередь", durable=True, arguments={"x-queue-type": "quorum"})
    client.publish(1, "events", "orders.placed", HEADER, b"body", mandatory=True)
    (published,) = carry(client, server)
    assert isinstance(published, wire.Published)
    assert (published.exchange, published.routing_key, published.mandatory, published.immediate) == (
        "events",
        "orders.placed",
        True,
        False,
    )
    assert published.header == HEADER
    assert published.properties.message_id == "m-1"
    server.return_message(1, 312, "NO_ROUTE", "events", "orders.placed", published.header, published.body)
    server.ack(1, 1)
    server.nack(1, 3, multiple=True)
    server.deliver(1, "c", 9, True, "events", "orders.placed", published.header, published.body)
    server.get_ok(1, 10, False, "events", "k", 7, published.header, b"")
    returned, confirmed, refused, delivery, got = carry(server, client)
    assert isinstance(returned, wire.Returned)
    assert (returned.reply_code, returned.reply_text, returned.body) == (312, "NO_ROUTE", b"body")
    assert described(confirmed) == described(wire.Ack(1, 1, False))
    assert isinstance(refused, wire.Nack)
    assert (refused.delivery_tag, refused.multiple) == (3, True)
    assert isinstance(delivery, wire.Delivery)
    assert (delivery.consumer_tag, delivery.delivery_tag, delivery.redelivered) == ("c", 9, True)
    assert (delivery.route, delivery.header, delivery.body) == (("events", "orders.placed"), HEADER, b"body")
    assert isinstance(got, wire.Got)
    assert (got.delivery_tag, got.redelivered, got.message_count, got.body) == (10, False, 7, b"")
    client.ack(1, 9, multiple=True)
    client.nack(1, 10, requeue=False)
    client.reject(1, 11, requeue=True)
    assert [described(event) for event in carry(client, server)] == [
        described(wire.Ack(1, 9, True)),
        described(wire.Nack(1, 10, False, False)),
        described(wire.Reject(1, 11, True)),
    ]


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 8177, 1_000_000])
def test_a_body_of_any_size_is_split_by_frame_max_and_joined_again(size: int) -> None:
    client, server = open_pair(wire.Limits(frame_max=4096))
    body = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    client.publish(1, "", "q", HEADER, body)
    sent = client.data_to_send()
    (published,) = server.receive_data(sent)
    assert isinstance(published, wire.Published)
    assert published.body == body
    server.deliver(1, "c", 1, False, "", "q", HEADER, body)
    (delivered,) = carry(server, client)
    assert isinstance(delivered, wire.Delivery)
    assert delivered.body == body


def test_64_mib_pass_in_socket_sized_chunks() -> None:
    client, server = open_pair()
    body = bytes(64 * 1024 * 1024)
    client.publish(1, "", "q", HEADER, body)
    sent = client.data_to_send()
    events = [
        event for start in range(0, len(sent), 262_144) for event in server.receive_data(sent[start : start + 262_144])
    ]
    assert [len(event.body) for event in events if isinstance(event, wire.Published)] == [len(body)]


def test_messages_of_two_channels_may_interleave_frame_by_frame() -> None:
    client, server = open_pair()
    client.send(2, methods.ChannelOpen())
    carry(client, server)
    server.send(2, methods.ChannelOpenOk())
    carry(server, client)
    messages = {}
    for channel in (1, 2):
        client.publish(channel, "", f"q{channel}", HEADER, bytes([channel]) * 300_000)
        data, frames = client.data_to_send(), []
        while data:
            size = 8 + int.from_bytes(data[3:7], "big")
            frames.append(data[:size])
            data = data[size:]
        messages[channel] = frames
    mixed = b"".join(one + two for one, two in zip(messages[1], messages[2], strict=True))
    assert [
        (event.channel, set(event.body)) for event in server.receive_data(mixed) if isinstance(event, wire.Published)
    ] == [(1, {1}), (2, {2})]


def test_closing_a_channel_leaves_the_connection_and_the_number_usable() -> None:
    client, server = open_pair()
    client.send(1, methods.ChannelClose())
    (close,) = carry(client, server)
    assert isinstance(close, wire.Command)
    assert [method.NAME for method in _methods(carry(server, client))] == ["channel.close-ok"]
    assert client.channel_state(1) is server.channel_state(1) is wire.ChannelState.CLOSED
    assert client.free_channel() == 1
    client.send(1, methods.ChannelOpen())
    carry(client, server)
    assert server.channel_state(1) is wire.ChannelState.OPENING


def test_a_server_that_closes_a_channel_sees_nothing_more_of_it() -> None:
    client, server = open_pair()
    client.publish(1, "missing", "k", HEADER, b"one")
    client.publish(1, "missing", "k", HEADER, b"two")
    client.ack(1, 5)
    client.publish(1, "missing", "k", HEADER, bytes(500_000))
    seen = []
    for event in server.receive_data(client.data_to_send()):
        seen.append(event)
        server.send(1, methods.ChannelClose(reply_code=404, reply_text="NOT_FOUND - no exchange 'missing'"))
    assert len(seen) == 1
    (closed,) = _methods(carry(server, client))
    assert isinstance(closed, methods.ChannelClose)
    assert closed.reply_code == 404
    with pytest.raises(wire.LocalProtocolError, match="channel 1 is CLOSED"):
        client.publish(1, "missing", "k", HEADER, b"three")
    assert [method.NAME for method in _methods(carry(client, server))] == ["channel.close-ok"]
    assert server.channel_state(1) is wire.ChannelState.CLOSED


def test_two_channel_closes_that_cross_are_both_answered() -> None:
    client, server = open_pair()
    client.send(1, methods.ChannelClose())
    server.send(1, methods.ChannelClose(reply_code=406))
    to_server, to_client = client.data_to_send(), server.data_to_send()
    list(server.receive_data(to_server))
    list(client.receive_data(to_client))
    carry(client, server)
    carry(server, client)
    assert client.channel_state(1) is server.channel_state(1) is wire.ChannelState.CLOSED
    assert client.is_open
    assert server.is_open


def test_two_connection_closes_that_cross_are_both_answered() -> None:
    client, server = open_pair()
    client.close()
    server.close(320, "CONNECTION_FORCED")
    to_server, to_client = client.data_to_send(), server.data_to_send()
    list(server.receive_data(to_server))
    list(client.receive_data(to_client))
    carry(client, server)
    carry(server, client)
    assert client.state is server.state is wire.ConnectionState.CLOSED


def test_closing_the_connection_is_answered_and_ends_every_channel() -> None:
    client, server = open_pair()
    server.close(320, "CONNECTION_FORCED - broker forced connection closure")
    (close,) = _methods(carry(server, client))
    assert isinstance(close, methods.ConnectionClose)
    assert close.reply_code == 320
    assert client.state is wire.ConnectionState.CLOSED
    assert client.channel_state(1) is wire.ChannelState.CLOSED
    with pytest.raises(wire.LocalProtocolError):
        client.ack(1, 1)
    assert [method.NAME for method in _methods(carry(client, server))] == ["connection.close-ok"]
    assert server.state is wire.ConnectionState.CLOSED


def test_a_side_that_waits_for_close_ok_discards_the_rest() -> None:
    client, server = open_pair()
    client.close()
    server.deliver(1, "c", 1, False, "", "q", HEADER, b"late")
    server.send(0, methods.ConnectionBlocked(reason="memory"))
    assert carry(server, client) == []
    carry(client, server)
    assert [method.NAME for method in _methods(carry(server, client))] == ["connection.close-ok"]


def test_blocked_and_unblocked_are_events_and_a_state() -> None:
    client, server = open_pair()
    server.send(0, methods.ConnectionBlocked(reason="low on memory"))
    carry(server, client)
    assert client.blocked == "low on memory"
    server.send(0, methods.ConnectionUnblocked())
    carry(server, client)
    assert client.blocked is None


def test_the_secret_can_be_updated() -> None:
    client, server = open_pair()
    client.send(0, methods.ConnectionUpdateSecret(new_secret=b"token", reason="expired"))
    (update,) = _methods(carry(client, server))
    assert update == methods.ConnectionUpdateSecret(new_secret=b"token", reason="expired")
    server.send(0, methods.ConnectionUpdateSecretOk())
    assert len(carry(server, client)) == 1


def test_heartbeats_pass_both_ways() -> None:
    client, server = open_pair()
    for source, target in ((client, server), (server, client)):
        source.send_heartbeat()
        (beat,) = carry(source, target)
        assert isinstance(beat, wire.Heartbeat)


def test_a_server_that_offers_another_protocol_is_not_taken_for_nonsense() -> None:
    client = wire.Connection(wire.Side.CLIENT)
    client.send_protocol_header()
    assert list(client.receive_data(b"AMQP\x00")) == []
    with pytest.raises(wire.RemoteProtocolError, match=r"protocol 0\.1\.0\.0"):
        list(client.receive_data(b"\x01\x00\x00"))
    assert client.state is wire.ConnectionState.CLOSED


@pytest.mark.parametrize(
    ("role", "channel", "method"),
    [
        (wire.Side.CLIENT, 1, methods.QueueDeclareOk()),
        (wire.Side.CLIENT, 2, methods.QueueDeclare()),
        (wire.Side.CLIENT, 0, methods.QueueDeclare()),
        (wire.Side.CLIENT, 1, methods.ConnectionClose()),
        (wire.Side.CLIENT, 0, methods.ConnectionOpen()),
        (wire.Side.CLIENT, 1, methods.ChannelOpen()),
        (wire.Side.CLIENT, 2048, methods.ChannelOpen()),
        (wire.Side.CLIENT, 1, methods.ChannelCloseOk()),
        (wire.Side.SERVER, 2, methods.ChannelOpenOk()),
        (wire.Side.SERVER, 1, methods.QueueDeclare()),
        (wire.Side.CLIENT, 1, methods.QueueDeclare(arguments={"x": "y" * 200_000})),
        (wire.Side.CLIENT, 1, methods.QueueDeclare(queue="q" * 256)),
    ],
    ids=lambda value: getattr(value, "NAME", str(value)),
)
def test_what_is_not_allowed_now_is_refused_and_changes_nothing(
    role: wire.Side, channel: int, method: methods.Method
) -> None:
    client, server = open_pair()
    end = client if role is wire.Side.CLIENT else server
    with pytest.raises(wire.LocalProtocolError):
        end.send(channel, method)
    assert end.data_to_send() == b""
    assert end.is_open
    assert end.channel_state(1) is wire.ChannelState.OPEN


def test_messages_are_refused_on_a_channel_that_is_not_open_and_on_the_wrong_side() -> None:
    client, server = open_pair()
    attempts: list[Callable[[], None]] = [
        lambda: client.publish(2, "", "q", HEADER, b""),
        lambda: client.ack(2, 1),
        lambda: client.nack(2, 1),
        lambda: client.reject(2, 1),
        lambda: client.ack(1, -1),
        lambda: client.nack(1, 1 << 64),
        lambda: client.reject(1, -1),
        lambda: client.publish(1, "x" * 256, "q", HEADER, b""),
        lambda: client.publish(1, "", "q", bytes(140_000), b""),
        lambda: client.deliver(1, "c", 1, False, "", "q", HEADER, b""),
        lambda: client.get_ok(1, 1, False, "", "q", 0, HEADER, b""),
        lambda: client.return_message(1, 312, "", "", "q", HEADER, b""),
        lambda: server.publish(1, "", "q", HEADER, b""),
        lambda: server.reject(1, 1),
        lambda: server.deliver(2, "c", 1, False, "", "q", HEADER, b""),
    ]
    for attempt in attempts:
        with pytest.raises(wire.LocalProtocolError):
            attempt()
    assert client.data_to_send() == server.data_to_send() == b""


def test_after_the_transport_is_gone_nothing_can_be_sent_or_received() -> None:
    client, _ = open_pair()
    client.receive_eof()
    assert list(client.receive_data(b"\x08\x00\x00\x00\x00\x00\x00\xce")) == []
    with pytest.raises(wire.LocalProtocolError):
        client.send_heartbeat()
    with pytest.raises(wire.LocalProtocolError):
        client.publish(1, "", "q", HEADER, b"")


def test_with_all_channels_in_use_no_number_is_free() -> None:
    client, server = open_pair(wire.Limits(channel_max=2))
    assert client.free_channel() == 2
    client.send(2, methods.ChannelOpen())
    assert client.free_channel() is None
    carry(client, server)


@pytest.mark.parametrize("options", [{"channel_max": 0}, {"frame_max": 4095}, {"heartbeat_s": -1}])
def test_limits_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        wire.Limits(**options)


@pytest.mark.parametrize("consumer_tag", ["", "c", "cc", "ctag1.0a", "c" * 255])
@pytest.mark.parametrize("exchange", ["", "e", "events"])
def test_a_delivery_is_read_right_even_if_its_octets_look_like_a_frame(consumer_tag: str, exchange: str) -> None:
    """A delivery tag read as the length of a name could fit the frame by chance."""
    client, server = open_pair()
    for number in range(1, 40):
        server.deliver(1, consumer_tag, number, False, exchange, "orders", HEADER, b"body")
    for number, delivery in enumerate(carry(server, client), 1):
        assert isinstance(delivery, wire.Delivery)
        assert (delivery.consumer_tag, delivery.delivery_tag, delivery.redelivered) == (consumer_tag, number, False)
        assert (delivery.route, delivery.header, delivery.body) == ((exchange, "orders"), HEADER, b"body")
