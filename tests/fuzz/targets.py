"""What is fuzzed, as functions of bytes that must return, whatever the bytes.

Not only "no other exception": each target checks something that must hold. A connection is compared with itself, once
given the input at once and once in pieces, which sets the one-pass reading of messages against the general path.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from redrive import wire
from redrive.wire import methods

LIMITS = wire.Limits(frame_max=4096, body_size_max=20_000, unfinished_bytes_max=50_000)


def splitter(data: bytes) -> None:
    """Frames found in pieces are the frames found at once, and encode to the bytes that were consumed."""
    whole = _frames(data, len(data) or 1)
    assert whole == _frames(data, 1 + data[0] % 16 if data else 1)
    assert data.startswith(b"".join(wire.encode_frame(*frame) for frame in whole[0]))


def tables(data: bytes) -> None:
    """A table that decodes can be encoded, and from then on is stable; an edit of nothing changes nothing."""
    with suppress(wire.RemoteProtocolError):
        assert wire.edit_table(data, {}) == data
    with suppress(wire.RemoteProtocolError):
        encoded = wire.encode_table(wire.decode_table(data))[4:]
        assert wire.encode_table(wire.decode_table(encoded))[4:] == encoded
    with suppress(wire.RemoteProtocolError):
        wire.read_entry(data, "k")
    properties = wire.Properties(data)
    with suppress(wire.RemoteProtocolError):
        properties.present()
        assert data[1] & 2 or properties.edit().raw == data
        assert properties.edit(headers={"k": 1}).header("k") == 1
    with suppress(wire.RemoteProtocolError):
        methods.decode_method(data)


def client(data: bytes) -> None:
    """A client connection, before or after its handshake."""
    _compare(wire.Side.CLIENT, data)


def server(data: bytes) -> None:
    """A server connection, before or after its handshake, that answers as a broker would."""
    _compare(wire.Side.SERVER, data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "splitter": splitter,
    "tables": tables,
    "client": client,
    "server": server,
}


def _frames(data: bytes, size: int) -> tuple[list[wire.Frame], str]:
    found = wire.FrameSplitter(256)
    frames = []
    try:
        for chunk in _chunks(data, size):
            found.feed(chunk)
            while (frame := found.next_frame()) is not None:
                frames.append(frame)
    except wire.RemoteProtocolError as error:
        return frames, str(error)
    return frames, ""


def _compare(role: wire.Side, data: bytes) -> None:
    """The first octet says how: its top bit whether the handshake is done, the rest how small the pieces are."""
    if not data:
        return
    opened, size = data[0] >= 0x80, 1 + data[0] % 0x80
    at_once = _events(_connection(role, opened), data[1:], len(data))
    in_pieces = _events(_connection(role, opened), data[1:], size)
    assert at_once == in_pieces, (at_once, in_pieces)


def _events(connection: wire.Connection, data: bytes, size: int) -> list[str]:
    seen = []
    for chunk in _chunks(data, size):
        # An offence ends the iteration; what came after it in the same chunk is heard with the next call. There can be
        # two at most: the first leaves a connection that waits for close-ok, the second a closed one.
        for rest in (chunk, b"", b""):
            try:
                for event in connection.receive_data(rest):
                    seen.append(_described(event))
                    _answer(connection, event)
                break
            except wire.RemoteProtocolError as error:
                seen.append(f"{error.reply_code} on {error.channel}, {error.method:#x}")
        else:
            raise AssertionError("three offences in one connection")
    seen.append(connection.state.name)
    seen.append(connection.data_to_send().hex())
    return seen


def _described(event: wire.Event) -> str:
    if isinstance(event, wire.ContentEvent):
        with suppress(wire.RemoteProtocolError):
            event.properties.present()
        return f"{event!r} {event.header!r} {event.body!r}"
    return repr(event)


def _answer(connection: wire.Connection, event: wire.Event) -> None:
    """Answers as a server would, so that the input goes on; now and then it closes a channel instead."""
    if connection.side is wire.Side.CLIENT:
        if isinstance(event, wire.Command) and isinstance(event.method, methods.ConnectionTune):
            with suppress(wire.RemoteProtocolError):
                connection.answer_tune(event.method)
        return
    match event:
        case wire.Greeted():
            connection.send(0, methods.ConnectionStart())
        case wire.Command(method=methods.ConnectionStartOk()):
            connection.send(0, connection.limits.propose())
        case wire.Command(method=methods.ConnectionOpen()):
            connection.send(0, methods.ConnectionOpenOk())
        case wire.Command(method=methods.ChannelOpen()):
            connection.send(event.channel, methods.ChannelOpenOk())
        case wire.Published(exchange="missing"):
            connection.send(event.channel, methods.ChannelClose(reply_code=404))
        case wire.Published():
            connection.ack(event.channel, 1)


def _connection(role: wire.Side, opened: bool) -> wire.Connection:
    connection = wire.Connection(role, LIMITS)
    if role is wire.Side.CLIENT:
        connection.send_protocol_header()
    if opened and role is wire.Side.CLIENT:
        _receive(connection, 0, methods.ConnectionStart())
        connection.send(0, methods.ConnectionStartOk())
        _receive(connection, 0, methods.ConnectionTune(channel_max=4, frame_max=4096))
        connection.answer_tune(methods.ConnectionTune(channel_max=4, frame_max=4096))
        connection.send(0, methods.ConnectionOpen())
        _receive(connection, 0, methods.ConnectionOpenOk())
        connection.send(1, methods.ChannelOpen())
        _receive(connection, 1, methods.ChannelOpenOk())
        connection.send(2, methods.ChannelOpen())
    elif opened:
        list(connection.receive_data(wire.PROTOCOL_HEADER))
        connection.send(0, methods.ConnectionStart())
        _receive(connection, 0, methods.ConnectionStartOk())
        connection.send(0, methods.ConnectionTune(channel_max=4, frame_max=4096))
        _receive(connection, 0, methods.ConnectionTuneOk(channel_max=4, frame_max=4096))
        _receive(connection, 0, methods.ConnectionOpen())
        connection.send(0, methods.ConnectionOpenOk())
        _receive(connection, 1, methods.ChannelOpen())
        connection.send(1, methods.ChannelOpenOk())
    return connection


def _receive(connection: wire.Connection, channel: int, method: methods.Method) -> None:
    list(connection.receive_data(wire.encode_frame(1, channel, methods.encode_method(method))))


def _chunks(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))
