"""A peer that breaks the protocol gets the right code, and no other exception is ever raised."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import wire
from redrive.wire import methods
from tests.examples import examples
from tests.unit.wire.pairs import carry, open_pair

Code = wire.ReplyCode
PUBLISH = b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00"
DELIVER = b"\x00\x3c\x00\x3c\x01c" + bytes(8) + b"\x00\x00\x01q"


def _method(method: methods.Method, channel: int = 1) -> bytes:
    return wire.encode_frame(1, channel, methods.encode_method(method))


def _header(size: int, properties: bytes = b"\x00\x00", class_id: int = 60, weight: int = 0) -> bytes:
    return wire.encode_frame(2, 1, struct.pack(">HHQ", class_id, weight, size) + properties)


def _body(body: bytes) -> bytes:
    return wire.encode_frame(3, 1, body)


def _deep_table() -> bytes:
    raw = b"V"
    for _ in range(1000):
        raw = b"F" + struct.pack(">I", len(raw) + 2) + b"\x01k" + raw
    raw = b"\x01k" + raw
    return struct.pack(">I", len(raw)) + raw


PUB = wire.encode_frame(1, 1, PUBLISH)
DECLARE = b"\x00\x32\x00\x0a\x00\x00\x01q\x00"
TO_SERVER = {
    "a frame type that does not exist": (b"\x04\x00\x01\x00\x00\x00\x00\xce", Code.FRAME_ERROR),
    "a frame above frame_max": (b"\x01\x00\x01\x7f\xff\xff\xff", Code.FRAME_ERROR),
    "a wrong end octet": (PUB[:-1] + b"\xcd", Code.FRAME_ERROR),
    "a heartbeat on a channel": (b"\x08\x00\x01\x00\x00\x00\x00\xce", Code.UNEXPECTED_FRAME),
    "a heartbeat with a payload": (b"\x08\x00\x00\x00\x00\x00\x01x\xce", Code.FRAME_ERROR),
    "an empty method": (wire.encode_frame(1, 1, b""), Code.FRAME_ERROR),
    "a method cut short": (wire.encode_frame(1, 1, DECLARE[:-1]), Code.FRAME_ERROR),
    "octets after a method": (wire.encode_frame(1, 1, b"\x00\x5a\x00\x0ax"), Code.FRAME_ERROR),
    "a table that lies about its length": (wire.encode_frame(1, 1, DECLARE + b"\xff\xff\xff\xff"), Code.FRAME_ERROR),
    "a publish cut short": (wire.encode_frame(1, 1, PUBLISH[:-1]), Code.FRAME_ERROR),
    "a routing key that lies about its length": (
        wire.encode_frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\xffq\x00") + _header(0),
        Code.FRAME_ERROR,
    ),
    "an ack of the wrong size": (wire.encode_frame(1, 1, b"\x00\x3c\x00\x50" + bytes(10)), Code.FRAME_ERROR),
    "a content header cut short": (PUB + wire.encode_frame(2, 1, b"\x00\x3c" + bytes(11)), Code.SYNTAX_ERROR),
    "a method that does not exist": (wire.encode_frame(1, 1, b"\x00\x3c\x00\x99"), Code.NOT_IMPLEMENTED),
    "a class that does not exist on channel 0": (wire.encode_frame(1, 0, b"\x99\x99\x00\x01"), Code.NOT_IMPLEMENTED),
    "a server's method": (_method(methods.QueueDeclareOk()), Code.COMMAND_INVALID),
    "a server's message": (wire.encode_frame(1, 1, DELIVER), Code.COMMAND_INVALID),
    "a channel's method on channel 0": (_method(methods.QueueDeclare(), 0), Code.CHANNEL_ERROR),
    "a publish on channel 0": (wire.encode_frame(1, 0, PUBLISH), Code.CHANNEL_ERROR),
    "a connection's method on a channel": (_method(methods.ConnectionClose()), Code.COMMAND_INVALID),
    "connection.open twice": (_method(methods.ConnectionOpen(), 0), Code.CHANNEL_ERROR),
    "tune-ok when open": (_method(methods.ConnectionTuneOk(), 0), Code.CHANNEL_ERROR),
    "close-ok without close": (_method(methods.ConnectionCloseOk(), 0), Code.CHANNEL_ERROR),
    "channel.open twice": (_method(methods.ChannelOpen()), Code.CHANNEL_ERROR),
    "channel.close-ok without close": (_method(methods.ChannelCloseOk()), Code.CHANNEL_ERROR),
    "a method on a channel that is not open": (_method(methods.QueueDeclare(), 2), Code.CHANNEL_ERROR),
    "a body on a channel that is not open": (wire.encode_frame(3, 2, b"x"), Code.UNEXPECTED_FRAME),
    "a channel above channel_max": (_method(methods.ChannelOpen(), 2048), Code.NOT_ALLOWED),
    "a header without a method": (_header(3), Code.UNEXPECTED_FRAME),
    "a body without a method": (_body(b"x"), Code.UNEXPECTED_FRAME),
    "a body without a header": (PUB + _body(b"x"), Code.UNEXPECTED_FRAME),
    "two headers": (PUB + _header(3) + _header(3), Code.UNEXPECTED_FRAME),
    "a method in the middle of a message": (PUB + _header(3) + PUB, Code.UNEXPECTED_FRAME),
    "a header of another class": (PUB + _header(3, class_id=50), Code.UNEXPECTED_FRAME),
    "a header with a weight": (PUB + _header(3, weight=1), Code.UNEXPECTED_FRAME),
    "a body longer than announced": (PUB + _header(3) + _body(b"xxxx"), Code.FRAME_ERROR),
    "two bodies longer than announced": (PUB + _header(3) + _body(b"xx") + _body(b"xx"), Code.FRAME_ERROR),
    "content on channel 0": (wire.encode_frame(2, 0, bytes(14)), Code.UNEXPECTED_FRAME),
    "a body of 2^63 octets": (PUB + _header(1 << 63), Code.CONTENT_TOO_LARGE),
}


@pytest.mark.parametrize("case", TO_SERVER)
@pytest.mark.parametrize("in_octets", [False, True], ids=["at once", "octet by octet"])
def test_a_client_that_breaks_the_protocol_gets_the_code_for_it(case: str, in_octets: bool) -> None:
    data, code = TO_SERVER[case]
    _, server = open_pair()
    chunks = [bytes((octet,)) for octet in data] if in_octets else [data]
    with pytest.raises(wire.RemoteProtocolError) as caught:
        _receive_all(server, chunks)
    assert caught.value.reply_code is code
    if code is Code.NOT_IMPLEMENTED:  # RabbitMQ says nothing to a method that nobody knows
        assert (server.data_to_send(), server.state) == (b"", wire.ConnectionState.CLOSED)
    else:
        _check_close(server, caught.value)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_method(methods.QueueDeclare()), Code.COMMAND_INVALID),
        (wire.encode_frame(1, 1, PUBLISH), Code.COMMAND_INVALID),
        (wire.encode_frame(1, 1, b"\x00\x3c\x00\x5a" + bytes(9)), Code.COMMAND_INVALID),
        (_method(methods.ChannelOpen(), 2), Code.CHANNEL_ERROR),
        (_method(methods.QueueDeclareOk(), 2), Code.CHANNEL_ERROR),
        (_method(methods.ConnectionTune(), 0), Code.COMMAND_INVALID),
        (_method(methods.ConnectionUpdateSecret(), 0), Code.COMMAND_INVALID),
        (_method(methods.ChannelOpenOk()), Code.CHANNEL_ERROR),
        (wire.encode_frame(1, 1, DELIVER[:-1]), Code.SYNTAX_ERROR),
        (wire.encode_frame(1, 1, DELIVER + b"x") + _header(0), Code.SYNTAX_ERROR),
        (wire.encode_frame(1, 1, b"\x00\x3c\x00\x3c\xffc" + bytes(9)) + _header(1) + _body(b"x"), Code.SYNTAX_ERROR),
        (wire.encode_frame(1, 1, DELIVER) + wire.encode_frame(2, 1, bytes(12)), Code.SYNTAX_ERROR),
        (wire.encode_frame(1, 1, DELIVER) + _header(2) + _body(b"xxx"), Code.UNEXPECTED_FRAME),
        (b"AMQP\x00\x00\x09\x01", Code.FRAME_ERROR),
    ],
)
def test_a_server_that_breaks_the_protocol_gets_the_code_for_it(data: bytes, code: wire.ReplyCode) -> None:
    client, _ = open_pair()
    with pytest.raises(wire.RemoteProtocolError) as caught:
        list(client.receive_data(data))
    assert caught.value.reply_code is code
    _check_close(client, caught.value)


def test_a_table_nested_a_thousand_deep_is_no_protocol_error() -> None:
    """Brokers take it; what is nested beyond a hundred is not read."""
    _, server = open_pair()
    (command,) = server.receive_data(wire.encode_frame(1, 1, DECLARE + _deep_table()))
    assert isinstance(command, wire.Command)
    assert isinstance(command.method, methods.QueueDeclare)
    assert wire.encode_table(command.method.arguments) == _deep_table()


def _receive_all(end: wire.Connection, chunks: list[bytes]) -> None:
    for chunk in chunks:
        assert list(end.receive_data(chunk)) == []


def _check_close(end: wire.Connection, error: wire.RemoteProtocolError) -> None:
    """The close that was queued says the same as the error, and nothing said afterwards is heard."""
    splitter = wire.FrameSplitter(131_072)
    splitter.feed(end.data_to_send())
    frame = splitter.next_frame()
    assert frame is not None
    close = methods.decode_method(frame.payload)
    assert isinstance(close, methods.ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (error.reply_code, error.class_id, error.method_id)
    assert splitter.next_frame() is None
    assert list(end.receive_data(_method(methods.ChannelOpen(), 7))) == []
    list(end.receive_data(_method(methods.ConnectionCloseOk(), 0)))
    assert end.state is wire.ConnectionState.CLOSED


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n", b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00", b"\x16\x03", b"B"]
)
def test_a_wrong_protocol_header_is_answered_with_ours_at_its_first_wrong_octet(said: bytes) -> None:
    server = wire.Connection(wire.Side.SERVER)
    with pytest.raises(wire.RemoteProtocolError):
        list(server.receive_data(said))
    assert server.data_to_send() == wire.PROTOCOL_HEADER
    assert server.state is wire.ConnectionState.CLOSED
    assert list(server.receive_data(wire.PROTOCOL_HEADER)) == []


def _greeted_server(limits: wire.Limits | None = None) -> wire.Connection:
    server = wire.Connection(wire.Side.SERVER, limits)
    list(server.receive_data(wire.PROTOCOL_HEADER))
    server.send(0, methods.ConnectionStart())
    server.data_to_send()
    return server


def test_a_method_out_of_turn_in_the_handshake_closes_without_an_answer() -> None:
    server = _greeted_server()
    with pytest.raises(wire.RemoteProtocolError) as caught:
        list(server.receive_data(_method(methods.ConnectionOpen(), 0)))
    assert caught.value.reply_code is Code.CHANNEL_ERROR
    assert (server.data_to_send(), server.state) == (b"", wire.ConnectionState.CLOSED)


@pytest.mark.parametrize("frame_min", [4096, 8192])
@pytest.mark.parametrize("over", [0, 1])
def test_before_tune_ok_a_client_may_send_frames_of_the_smallest_size_only(frame_min: int, over: int) -> None:
    server = _greeted_server(wire.Limits(frame_min=frame_min))
    empty = methods.ConnectionStartOk(client_properties={"pad": ""}, mechanism="PLAIN", response=b"")
    pad = "x" * (frame_min + over - len(methods.encode_method(empty)))
    start_ok = methods.ConnectionStartOk(client_properties={"pad": pad}, mechanism="PLAIN", response=b"")
    if not over:
        assert [type(event) for event in server.receive_data(_method(start_ok, 0))] == [wire.Command]
        return
    with pytest.raises(wire.RemoteProtocolError, match="frame_too_large"):
        list(server.receive_data(_method(start_ok, 0)))
    assert (server.data_to_send(), server.state) == (b"", wire.ConnectionState.CLOSED)


@pytest.mark.parametrize(("over", "fits"), [(0, True), (8, True), (9, False)])
def test_a_clients_frame_may_be_eight_octets_over_frame_max(over: int, fits: bool) -> None:
    _, server = open_pair()
    size = server.frame_max - 8 + over
    data = PUB + _header(size) + _body(b"b" * size)
    if fits:
        (published,) = server.receive_data(data)
        assert isinstance(published, wire.Published)
        assert len(published.body) == size
        return
    text = f"type 3, all octets = <<>>: {{frame_too_large,{size},{server.frame_max - 8}}}"
    with pytest.raises(wire.RemoteProtocolError) as caught:
        list(server.receive_data(data))
    assert caught.value.reply_text == text
    assert f"FRAME_ERROR - {text}".encode() in server.data_to_send()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x08\x00\x01\x00\x00\x00\x00\xce", "UNEXPECTED_FRAME - type 8, all octets = <<>>"),
        (b"\x08\x00\x00\x00\x00\x00\x03abc\xce", 'FRAME_ERROR - type 8, all octets = <<"abc">>: unknown_frame'),
        (wire.encode_frame(9, 0, bytes(3)), "FRAME_ERROR - type 9, all octets = <<0,0,0>>: unknown_frame"),
        (
            wire.encode_frame(1, 0, b"\x00\x0a\x00\x32")[:-1] + b"\xcd",
            "FRAME_ERROR - type 1, all octets = <<0,10,0,50>>: {invalid_frame_end_marker,205}",
        ),
        (
            wire.encode_frame(1, 1, b"x" * 100)[:-1] + b"A",
            'FRAME_ERROR - type 1, first 16 octets = <<"xxxxxxxxxxxxxxxx">>: {invalid_frame_end_marker,\n'
            + " " * 51
            + "65}",
        ),
        (
            PUB + _header(3, class_id=50),
            "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50",
        ),
        (wire.encode_frame(1, 1, DECLARE[:4] + b"\x00\x00\xffx"), "FRAME_ERROR - cannot decode <<0,0,255,120>>"),
    ],
)
def test_a_client_gets_the_error_text_of_rabbitmq(data: bytes, text: str) -> None:
    _, server = open_pair()
    with pytest.raises(wire.RemoteProtocolError):
        list(server.receive_data(data))
    assert text.encode() in server.data_to_send()


@pytest.mark.parametrize(
    "tune_ok",
    [
        methods.ConnectionTuneOk(channel_max=0, frame_max=8192),
        methods.ConnectionTuneOk(channel_max=4000, frame_max=8192),
        methods.ConnectionTuneOk(channel_max=10, frame_max=0),
        methods.ConnectionTuneOk(channel_max=10, frame_max=1 << 20),
        methods.ConnectionTuneOk(channel_max=10, frame_max=100),
    ],
)
def test_a_client_may_not_tune_above_the_offer(tune_ok: methods.ConnectionTuneOk) -> None:
    server = wire.Connection(wire.Side.SERVER)
    list(server.receive_data(wire.PROTOCOL_HEADER))
    server.send(0, methods.ConnectionStart())
    list(server.receive_data(_method(methods.ConnectionStartOk(), 0)))
    server.send(0, server.limits.propose())
    with pytest.raises(wire.RemoteProtocolError) as caught:
        list(server.receive_data(_method(tune_ok, 0)))
    assert caught.value.reply_code is Code.NOT_ALLOWED


def test_a_server_that_offers_frames_too_small_is_refused() -> None:
    client = wire.Connection(wire.Side.CLIENT)
    client.send_protocol_header()
    list(client.receive_data(_method(methods.ConnectionStart(), 0)))
    client.send(0, methods.ConnectionStartOk())
    tune = methods.ConnectionTune(frame_max=100)
    list(client.receive_data(_method(tune, 0)))
    client.data_to_send()
    with pytest.raises(wire.RemoteProtocolError) as caught:
        client.answer_tune(tune)
    assert caught.value.reply_code is Code.NOT_ALLOWED
    _check_close(client, caught.value)


def test_unfinished_messages_of_all_channels_together_are_bounded() -> None:
    _, server = open_pair(wire.Limits(unfinished_bytes_max=10_000))
    list(server.receive_data(PUB + _header(1_000_000)))
    with pytest.raises(wire.RemoteProtocolError) as caught:
        _receive_all(server, [_body(bytes(1000))] * 100)
    assert caught.value.reply_code is Code.RESOURCE_ERROR


def test_finished_and_abandoned_messages_no_longer_count() -> None:
    client, server = open_pair(wire.Limits(frame_max=4096, unfinished_bytes_max=20_000))
    for _ in range(5):
        client.publish(1, "", "q", b"\x00\x00", bytes(15_000))
        assert len(carry(client, server)) == 1
    for _ in range(5):
        client.publish(1, "", "q", b"\x00\x00", bytes(15_000))
        assert list(server.receive_data(client.data_to_send()[:12_000])) == []
        server.send(1, methods.ChannelClose())
        carry(server, client)
        # The rest of the message was never sent: what the client says next is a frame of its own.
        server._lifecycle.splitter.discard()
        carry(client, server)
        client.send(1, methods.ChannelOpen())
        carry(client, server)
        server.send(1, methods.ChannelOpenOk())
        carry(server, client)
    assert server._lifecycle.unfinished_bytes == 0


def test_empty_body_frames_cost_nothing() -> None:
    _, server = open_pair()
    list(server.receive_data(PUB + _header(2) + _body(b"a") + _body(b"") * 10_000))
    (published,) = server.receive_data(_body(b"b"))
    assert isinstance(published, wire.Published)
    assert published.body == b"ab"


def test_the_events_before_an_offence_come_out_first() -> None:
    client, server = open_pair()
    client.publish(1, "", "q", b"\x00\x00", b"good")
    events = server.receive_data(client.data_to_send() + b"nonsense")
    assert isinstance(next(events), wire.Published)
    with pytest.raises(wire.RemoteProtocolError):
        next(events)


def test_an_iteration_left_early_continues_with_the_next_data() -> None:
    client, server = open_pair()
    for _ in range(3):
        client.ack(1, 7)
    for _ in server.receive_data(client.data_to_send()):
        break
    assert len(list(server.receive_data(b""))) == 2


_frames = st.one_of(
    st.binary(max_size=40),
    st.builds(wire.encode_frame, st.sampled_from([1, 2, 3, 8]), st.integers(0, 3), st.binary(max_size=60)),
    st.builds(
        lambda channel, index, rest: wire.encode_frame(1, channel, index.to_bytes(4, "big") + rest),
        st.integers(0, 2),
        st.sampled_from([*methods.METHODS, 0x003C0028, 0x003C003C, 0x003C0047, 0x003C0032, 0x003C0050, 0x003C0078]),
        st.binary(max_size=40),
    ),
    st.sampled_from([data for data, _ in TO_SERVER.values()]),
    st.sampled_from(
        [PUB, wire.encode_frame(1, 1, DELIVER), _header(3), _body(b"xxx"), _header(0), wire.PROTOCOL_HEADER]
    ),
)


@settings(max_examples=examples(400))
@given(st.sampled_from(wire.Side), st.booleans(), st.lists(_frames, max_size=12))
def test_hostile_bytes_raise_nothing_but_a_protocol_error(role: wire.Side, opened: bool, chunks: list[bytes]) -> None:
    if opened:
        end = open_pair()[0 if role is wire.Side.CLIENT else 1]
    else:
        end = wire.Connection(role)
        if role is wire.Side.CLIENT:
            end.send_protocol_header()
    for chunk in chunks:
        with suppress(wire.RemoteProtocolError):
            for event in end.receive_data(chunk):
                assert 0 <= event.channel <= 65535
                repr(event)
    end.data_to_send()
