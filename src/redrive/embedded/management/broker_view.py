"""The broker as the handlers see it: everything they need of `EmbeddedBroker` beyond its public methods.

One request is one turn, as a client's bytes are: set the engine's time, run commands, send effects. A command runs on
a connection of its own that is closed afterwards, as the management plugin's are; that connection has no session, so
its effects are taken out here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from redrive.embedded.broker import EmbeddedBroker
from redrive.embedded.client_session import ClientSession
from redrive.embedded.engine import Channel, Connection, Effect, Engine
from redrive.embedded.engine.vhosts import Vhost
from redrive.embedded.management.api_profiles import API_PROFILES, ApiProfile
from redrive.embedded.management.replies import not_found, object_not_found

NODE = "redrive@embedded"
"""The broker's name, as a node and as a cluster."""


class BrokerView:
    """The broker as the handlers see it."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.notes: dict[str, VhostNote] = {"/": VhostNote("Default virtual host", [])}

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.broker.engine

    @property
    def api_profile(self) -> ApiProfile:
        """How this version answers."""
        return API_PROFILES[self.engine.profile.name]

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run commands at the present moment, then send their effects to the clients. Raises NotRunning."""
        server = self.broker.running_server()
        server.timekeeper.sync_engine()
        try:
            yield
        finally:
            self.engine.flush_dead_letters()
            server.finish_turn()

    def vhost(self, name: str) -> Vhost:
        """The vhost that a path names. Raises ApiError (404)."""
        found = self.engine.vhosts.get(name)
        if found is None:
            raise object_not_found()
        return found

    def vhost_for_command(self, name: str) -> Vhost:
        """The vhost of a command; a missing one has another text there. Raises ApiError (404)."""
        found = self.engine.vhosts.get(name)
        if found is None:
            raise not_found("vhost_not_found")
        return found

    @contextmanager
    def channel(self, vhost: str, user: str) -> Iterator[Channel]:
        """A channel for one command. What the command leaves unacked is requeued."""
        connection = self.engine.connect(self.vhost_for_command(vhost).name, user)
        try:
            yield connection.open_channel(1)
        finally:
            self.engine.disconnect(connection)

    def take_effects_of(self, channel: Channel) -> list[Effect]:
        """Take the effects for that channel out of the engine's."""
        mine = [effect for effect in self.engine.effects if effect.channel is channel]
        self.engine.effects[:] = [effect for effect in self.engine.effects if effect.channel is not channel]
        return mine

    def clients(self) -> list["ClientConnection"]:
        """Every client connected over AMQP."""
        server = self.broker.running_server()
        sessions = [(connection, server.session_of(connection)) for connection in self.engine.connections]
        return [ClientConnection(self, connection, session) for connection, session in sessions if session is not None]

    def close(self, connection: Connection, text: str) -> None:
        """connection.close with 320 and that text."""
        server = self.broker.running_server()
        session = server.session_of(connection)
        if session is not None:
            server.close_connection(session, text)


class VhostNote:
    """A vhost's description and tags; the engine does not need them."""

    __slots__ = ("description", "tags")

    def __init__(self, description: str = "", tags: list[str] | None = None) -> None:
        self.description = description
        self.tags = tags or []


class ClientConnection:
    """A client's connection with its session and socket."""

    def __init__(self, view: BrokerView, connection: Connection, session: ClientSession) -> None:
        self.connection = connection
        server = view.broker.running_server()
        self.heartbeat_s = session.wire.heartbeat_s
        self.frame_max = server.server_limits.frame_max
        self.channel_max = server.server_limits.channel_max
        self._consumer_arguments = session.consumer_arguments
        self.properties: dict[str, Any] = session.client_properties
        peer, own = server.addresses_of(session)
        self.peer_host, self.peer_port = ("", 0) if peer is None else (str(peer[0]), int(peer[1]))
        self.host, self.port = (view.broker.host, view.broker.port) if own is None else (str(own[0]), int(own[1]))

    @property
    def name(self) -> str:
        """The connection's name as RabbitMQ makes it: both ends."""
        return f"{self.peer_host}:{self.peer_port} -> {self.host}:{self.port}"

    def arguments_of(self, channel: int, tag: str) -> Mapping[str, Any]:
        """The arguments of a consumer's basic.consume."""
        return self._consumer_arguments.get((channel, tag), {})
