"""The server: the engine behind a port. It listens, keeps the sessions, tells the engine the time and spreads effects.

Everything runs in one event loop and one turn handles one client's bytes from end to end: tell the time, run the
commands, put the effects on everybody's wire, write.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from redrive import wire
from redrive.embedded.clock import VirtualClock
from redrive.embedded.engine import Connection, Engine
from redrive.embedded.errors import PortTaken
from redrive.embedded.faults import Faults
from redrive.embedded.session import Session
from redrive.embedded.timekeeper import Timekeeper
from redrive.embedded.transport import ClientTransport
from redrive.wire import methods

_MEBIBYTE = 1024 * 1024
_LOOKS_EVERY = 256
"""Turns between two looks at how much memory the queues take."""
MEMORY_ALARM = "low on memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What the server bears. `memory_bytes_max` counts what is ready in queues; above it publishers are blocked."""

    connections_max: int = 1000
    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_s: int = 60
    # Twice the most that any version takes, so that what is too large is refused by the engine, as RabbitMQ does it.
    body_bytes_max: int = 256 * _MEBIBYTE
    memory_bytes_max: int = 1024 * _MEBIBYTE


class Server:
    """The engine for many clients. Start it with `listen`, end it with `close`."""

    def __init__(
        self,
        engine: Engine,
        clock: VirtualClock,
        *,
        users: Mapping[str, str],
        limits: ServerLimits,
        idle_s: float,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.users = users
        self.faults = Faults()
        self.server_limits = limits
        self.limits = wire.Limits(
            channel_max=limits.channel_max,
            frame_max=limits.frame_max,
            heartbeat_s=limits.heartbeat_s,
            body_size_max=limits.body_bytes_max,
        )
        self.loop = asyncio.get_running_loop()
        self.time = Timekeeper(self, idle_s=idle_s)
        self.blocked: str | None = None
        self._clients: dict[Session, ClientTransport] = {}
        self._sessions: dict[Connection, Session] = {}
        self._dirty: dict[Session, None] = {}
        self._turns = 0
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen; the port, which for 0 is one that was free. Raises PortTaken."""
        try:
            self._listener = await self.loop.create_server(lambda: ClientTransport(self), host, port)
        except OSError as error:
            raise PortTaken(host, port, error.strerror or str(error)) from None
        self.time.rearm()
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Hang up on everybody and stop listening."""
        self.time.stop()
        if self._listener is not None:
            self._listener.close()
        for session in list(self._clients):
            session.close(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
            self._clients[session].flush()
            self._clients[session].abort()
        await asyncio.sleep(0)

    def cut_everybody(self) -> None:
        """Every client is gone, without a word."""
        for session, client in list(self._clients.items()):
            session.end()
            client.abort()
        self.settle()

    # A client's transport

    def admit(self, client: ClientTransport) -> bool:
        """Whether there is room for one more."""
        if len(self._clients) >= self.server_limits.connections_max:
            return False
        self._clients[client.session] = client
        return True

    def receive(self, client: ClientTransport, data: bytes) -> None:
        """One turn: a client's bytes, from end to end."""
        self.time.tell()
        session = client.session
        self._dirty[session] = None
        session.receive(data)
        self.settle()

    def lost(self, client: ClientTransport) -> None:
        """A client is gone."""
        session = client.session
        connection = session.connection
        session.end()
        if connection is not None:
            self._sessions.pop(connection, None)
        self._clients.pop(session, None)
        self._dirty.pop(session, None)
        self.time.tell()
        self.settle()

    # A session's host

    def attach(self, connection: Connection, session: Session) -> None:
        """The session speaks for that connection from now on."""
        self._sessions[connection] = session
        self._clients[session].begin_heartbeats()
        if self.blocked is not None and session.knows_blocked:
            session.wire.send(0, methods.ConnectionBlocked(reason=self.blocked))

    def drop(self, session: Session) -> None:
        """Cut a session's transport, without a word."""
        session.end()
        client = self._clients.get(session)
        if client is not None:
            client.abort()

    def spread(self) -> None:
        """Put the engine's effects on the wire of whom they are for."""
        engine, sessions = self.engine, self._sessions
        while engine.effects:
            for effect in engine.take_effects():
                session = sessions.get(effect.channel.connection)
                if session is not None:
                    self._dirty[session] = None
                    session.send_effect(effect)
            if engine.stalled:
                self._write()  # whoever does not read fast enough is paused by this, and gets no more
                engine.resume()

    # The end of a turn

    def settle(self) -> None:
        """Spread effects, write to everybody concerned, and see what is due next."""
        self.spread()
        self._write()
        self._turns += 1
        if self.blocked is not None or self._turns % _LOOKS_EVERY == 0:
            self._look_at_memory()
        self.time.rearm()

    def _write(self) -> None:
        while self._dirty:
            session, _ = self._dirty.popitem()
            client = self._clients.get(session)
            if client is not None:
                client.flush()

    @property
    def is_busy(self) -> bool:
        """Whether a client holds messages or is in the middle of its handshake."""
        return self.engine.in_hand > 0 or any(session.is_opening for session in self._clients)

    @property
    def has_clients(self) -> bool:
        """Whether anybody is connected."""
        return bool(self._clients)

    # Alarms

    def block(self, reason: str) -> None:
        """Tell publishers to stop, and read no more from those that publish."""
        if self.blocked is not None:
            return
        self.blocked = reason
        for session, client in self._clients.items():
            if session.connection is not None and session.knows_blocked:
                session.wire.send(0, methods.ConnectionBlocked(reason=reason))
                client.flush()
            if session.published:
                client.stop_reading()

    def unblock(self) -> None:
        """Tell publishers to go on."""
        if self.blocked is None:
            return
        self.blocked = None
        for session, client in self._clients.items():
            client.start_reading()
            if session.connection is not None and session.knows_blocked:
                session.wire.send(0, methods.ConnectionUnblocked())
                client.flush()

    def _look_at_memory(self) -> None:
        queued = sum(queue.ready_bytes for queue in self.engine.queues())
        if queued > self.server_limits.memory_bytes_max:
            self.block(MEMORY_ALARM)
        elif self.blocked == MEMORY_ALARM:
            self.unblock()
