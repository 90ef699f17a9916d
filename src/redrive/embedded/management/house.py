"""The door to the broker: everything the handlers need of `EmbeddedBroker` that its public side does not offer.

One request is one turn, as a client's bytes are: the engine is told the time, commands run, effects go out. A command
runs on a connection of its own that is gone afterwards, as the management plugin's do; that connection has no session,
so what the engine wants sent to it is picked out of the effects here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from redrive.embedded.broker import EmbeddedBroker
from redrive.embedded.engine import Channel, Connection, Effect, Engine
from redrive.embedded.engine.vhosts import Vhost
from redrive.embedded.management.dialects import DIALECTS, Dialect
from redrive.embedded.management.replies import not_found, object_not_found

NODE = "redrive@embedded"
"""What the broker calls itself, as a node and as a cluster."""


class House:
    """The broker as the handlers see it."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.notes: dict[str, VhostNote] = {"/": VhostNote("Default virtual host", [])}

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.broker.engine

    @property
    def dialect(self) -> Dialect:
        """How this version answers."""
        return DIALECTS[self.engine.profile.name]

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run commands at the present moment; what they bring about reaches the clients. Raises NotRunning."""
        server = self.broker._running()
        server.time.tell()
        try:
            yield
        finally:
            self.engine.finish()
            server.settle()

    def vhost(self, name: str) -> Vhost:
        """The vhost that an address names. Raises Problem (404)."""
        found = self.engine.vhosts.get(name)
        if found is None:
            raise object_not_found()
        return found

    def vhost_for_command(self, name: str) -> Vhost:
        """The vhost that a command is for; its absence is worded otherwise. Raises Problem (404)."""
        found = self.engine.vhosts.get(name)
        if found is None:
            raise not_found("vhost_not_found")
        return found

    @contextmanager
    def channel(self, vhost: str, user: str) -> Iterator[Channel]:
        """A channel for one command. What the command leaves in hand goes back to its queue."""
        connection = self.engine.connect(self.vhost_for_command(vhost).name, user)
        try:
            yield connection.open_channel(1)
        finally:
            self.engine.disconnect(connection)

    def take_effects_of(self, channel: Channel) -> list[Effect]:
        """What the engine wants sent to that channel."""
        mine = [effect for effect in self.engine.effects if effect.channel is channel]
        self.engine.effects[:] = [effect for effect in self.engine.effects if effect.channel is not channel]
        return mine

    def clients(self) -> list["Client"]:
        """Everybody connected over AMQP."""
        server = self.broker._running()
        return [Client(self, connection) for connection in self.engine.connections if connection in server._sessions]

    def close(self, connection: Connection, text: str) -> None:
        """connection.close with 320 and that text."""
        server = self.broker._running()
        session = server._sessions.get(connection)
        if session is not None:
            server.close_connection(session, text)


class VhostNote:
    """What people wrote about a vhost; the engine has no use for it."""

    __slots__ = ("description", "tags")

    def __init__(self, description: str = "", tags: list[str] | None = None) -> None:
        self.description = description
        self.tags = tags or []


class Client:
    """A connection with what its socket tells."""

    def __init__(self, house: House, connection: Connection) -> None:
        self.connection = connection
        server = house.broker._running()
        session = server._sessions[connection]
        self.heartbeat_s = session.wire.heartbeat_s
        self.frame_max = server.server_limits.frame_max
        self.channel_max = server.server_limits.channel_max
        self._consumer_arguments = session.consumer_arguments
        self.properties: dict[str, Any] = session.client_properties
        transport = server._clients[session]._transport
        peer = None if transport is None else transport.get_extra_info("peername")
        own = None if transport is None else transport.get_extra_info("sockname")
        self.peer_host, self.peer_port = ("", 0) if peer is None else (str(peer[0]), int(peer[1]))
        self.host, self.port = (house.broker.host, house.broker.port) if own is None else (str(own[0]), int(own[1]))

    @property
    def name(self) -> str:
        """As RabbitMQ names connections: both ends."""
        return f"{self.peer_host}:{self.peer_port} -> {self.host}:{self.port}"

    def arguments_of(self, channel: int, tag: str) -> Mapping[str, Any]:
        """What a consumer was asked for with."""
        return self._consumer_arguments.get((channel, tag), {})
