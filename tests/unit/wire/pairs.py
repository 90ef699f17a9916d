"""A client and a server connection talking to each other in memory."""

from itertools import pairwise

from redrive import wire
from redrive.wire import methods


def carry(source: wire.Connection, target: wire.Connection) -> list[wire.Event]:
    """Everything `source` has queued, received by `target`."""
    return list(target.receive_data(source.data_to_send()))


def open_pair(limits: wire.Limits | None = None, channel: int = 1) -> tuple[wire.Connection, wire.Connection]:
    """Both ends after the handshake, with one channel open and nothing left to send."""
    client, server = wire.Connection(wire.Side.CLIENT, limits), wire.Connection(wire.Side.SERVER, limits)
    client.send_protocol_header()
    carry(client, server)
    server.send(0, methods.ConnectionStart())
    carry(server, client)
    client.send(0, methods.ConnectionStartOk(response=wire.plain_response("guest", "guest")))
    carry(client, server)
    server.send(0, server.limits.propose())
    carry(server, client)
    client.answer_tune(server.limits.propose())
    client.send(0, methods.ConnectionOpen())
    carry(client, server)
    server.send(0, methods.ConnectionOpenOk())
    carry(server, client)
    client.send(channel, methods.ChannelOpen())
    carry(client, server)
    server.send(channel, methods.ChannelOpenOk())
    carry(server, client)
    return client, server


def in_chunks(connection: wire.Connection, data: bytes, cuts: list[int]) -> list[wire.Event]:
    """The events of `data` received in pieces cut at the given positions."""
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [event for start, end in pairwise(borders) for event in connection.receive_data(data[start:end])]


def described(event: wire.Event) -> tuple[object, ...]:
    """An event as something that can be compared."""
    slots = [name for cls in type(event).__mro__ for name in getattr(cls, "__slots__", ()) if not name.startswith("_")]
    return (type(event).__name__, *((name, getattr(event, name)) for name in sorted(slots)))
