"""The server: listens for AMQP clients, keeps their sessions, and passes time and commands to the engine.

Everything runs in one event loop, and one turn handles one client's bytes from end to end: it sets the engine's time,
runs the commands, sends the effects to the clients they are for, and writes.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from redrive import wire
from redrive.embedded.client_session import ClientSession
from redrive.embedded.engine import Connection, Engine
from redrive.embedded.errors import PortTaken
from redrive.embedded.faults import Faults
from redrive.embedded.pipe import connect
from redrive.embedded.transport import ClientTransport
from redrive.embedded.virtual_time import Timekeeper, VirtualClock

_MEBIBYTE = 1024 * 1024
_MEMORY_CHECK_TURNS = 256
"""Turns between two checks of how much memory the queues take."""
MEMORY_ALARM = "low on memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The server's limits. `memory_bytes_max` counts ready messages; above it publishers are blocked."""

    connections_max: int = 1000
    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_s: int = 60
    # Twice the most that any version takes, so that the engine refuses what is too large, as RabbitMQ does it.
    body_bytes_max: int = 256 * _MEBIBYTE
    memory_bytes_max: int = 1024 * _MEBIBYTE


class Server:
    """Serves one engine to many clients. Start it with `listen`, end it with `close`."""

    def __init__(
        self,
        engine: Engine,
        clock: VirtualClock,
        *,
        users: Mapping[str, str],
        tags: Mapping[str, Collection[str]],
        limits: ServerLimits,
        idle_s: float,
        faults: Faults,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.users = users
        self.tags = tags
        self.faults = faults
        self.server_limits = limits
        self.limits = wire.Limits(
            channel_max=limits.channel_max,
            frame_max=limits.frame_max,
            frame_min=engine.profile.frame_min,
            other_protocol=engine.profile.other_protocol,
            heartbeat_s=limits.heartbeat_s,
            body_size_max=limits.body_bytes_max,
        )
        self.loop = asyncio.get_running_loop()
        self.timekeeper = Timekeeper(self, idle_s=idle_s)
        self.blocked: str | None = None
        self._clients: dict[ClientSession, ClientTransport] = {}
        self._sessions: dict[Connection, ClientSession] = {}
        self._dirty: dict[ClientSession, None] = {}
        self._turns = 0
        self._delayed_calls = 0
        self._is_short_of_memory = False
        self._fault_blocks = False
        self._dialled = 0
        self._is_closed = False
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen; the port, which for 0 is one that was free. Raises PortTaken."""
        try:
            self._listener = await self.loop.create_server(lambda: ClientTransport(self), host, port)
        except OSError as error:
            raise PortTaken(host, port, error) from None
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    def dial(self, client: asyncio.Protocol, *, name: tuple[str, int]) -> None:
        """Connect a client of this event loop in memory; `name` is the broker's address as the client sees it."""
        self._dialled += 1
        here = ClientTransport(self)
        connect(self.loop, client, here, client_name=("memory", self._dialled), server_name=name)

    async def close(self) -> None:
        """Close all connections and stop listening."""
        self._is_closed = True
        self.timekeeper.close()
        if self._listener is not None:
            self._listener.close()
        for session in list(self._clients):
            session.close(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
            self._clients[session].flush()
            self._clients[session].abort()
        await asyncio.sleep(0)

    def cut_all(self) -> None:
        """Cut every connection without connection.close."""
        for session, client in list(self._clients.items()):
            session.end()
            client.abort()
        self.finish_turn()

    def close_connections(self, vhost: str, text: str) -> None:
        """Close every connection to a vhost, with 320 and that text."""
        for connection, session in list(self._sessions.items()):
            if connection.vhost.name == vhost:
                self.close_connection(session, text)

    def close_connection(self, session: ClientSession, text: str) -> None:
        """connection.close from our side, with 320 and that text; `finish_turn` sends it."""
        session.close(320, f"CONNECTION_FORCED - {text}")
        self._dirty[session] = None

    def restart(self) -> None:
        """Cut all connections and forget what is not durable."""
        self.cut_all()
        self.engine.restart()
        self.finish_turn()

    # A client's transport

    def admit(self, client: ClientTransport) -> bool:
        """Accept a client, unless there are too many already."""
        if len(self._clients) >= self.server_limits.connections_max:
            return False
        self._clients[client.session] = client
        if self.blocked is not None:
            client.session.block(self.blocked)
        return True

    def receive(self, client: ClientTransport, data: bytes) -> None:
        """Handle one client's bytes: a turn."""
        self.timekeeper.sync_engine()
        session = client.session
        self._dirty[session] = None
        session.receive(data)
        if session.holds_publish:
            client.stop_reading()
        self.finish_turn()

    def lost(self, client: ClientTransport) -> None:
        """A client's connection is lost."""
        session = client.session
        connection = session.connection
        session.end()
        if connection is not None:
            self._sessions.pop(connection, None)
        self._clients.pop(session, None)
        self._dirty.pop(session, None)
        if self._is_closed:
            return  # another server may have the engine by now, and its effects are not ours to send
        self.timekeeper.sync_engine()
        self.finish_turn()

    # For the management API

    def session_of(self, connection: Connection) -> ClientSession | None:
        """The session of a connection; None for one without a client, as the management API's own."""
        return self._sessions.get(connection)

    def addresses_of(self, session: ClientSession) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
        """The client's address and the broker's own, None where the socket is gone."""
        return self._clients[session].addresses

    # A session's host

    def attach(self, connection: Connection, session: ClientSession) -> None:
        """The session speaks for that connection from now on."""
        self._sessions[connection] = session
        self._clients[session].begin_heartbeats()

    def cut(self, session: ClientSession) -> None:
        """Cut a session's transport without connection.close."""
        session.end()
        client = self._clients.get(session)
        if client is not None:
            client.abort()

    def dispatch_effects(self) -> None:
        """Pass the engine's effects to the sessions they are for."""
        engine, sessions = self.engine, self._sessions
        while engine.effects:
            for effect in engine.take_effects():
                session = sessions.get(effect.channel.connection)
                if session is not None:
                    self._dirty[session] = None
                    session.send_effect(effect)
            if engine.stalled:
                self._write()  # pauses the clients that don't read fast enough
                engine.resume()

    # The end of a turn

    def finish_turn(self) -> None:
        """Send the effects of a turn, and set the timer for what is due next."""
        self.dispatch_effects()
        self._write()
        self._turns += 1
        if self.blocked is not None or self._turns % _MEMORY_CHECK_TURNS == 0:
            self._check_memory()
            self.dispatch_effects()
            self._write()
        self.timekeeper.rearm()

    def _write(self) -> None:
        while self._dirty:
            session, _ = self._dirty.popitem()
            client = self._clients.get(session)
            if client is not None:
                client.flush()

    @property
    def is_busy(self) -> bool:
        """Whether a client holds messages or is in its handshake, and no fault delays anything."""
        if self._delayed_calls:
            return False
        return self.engine.unacked_count > 0 or any(session.is_opening for session in self._clients)

    @property
    def has_clients(self) -> bool:
        """Whether any client is connected."""
        return bool(self._clients)

    # Alarms

    def block(self, reason: str) -> None:
        """From now on a client that publishes gets connection.blocked, and the server stops reading from it."""
        if self.blocked is not None:
            return
        self.blocked = reason
        for session in self._clients:
            session.block(reason)

    def unblock(self) -> None:
        """Send connection.unblocked to the clients that were blocked; `finish_turn` sends what comes of it."""
        if self.blocked is None:
            return
        self.blocked = None
        self._is_short_of_memory = self._fault_blocks = False
        for session, client in list(self._clients.items()):
            client.start_reading()
            session.unblock()
            self._dirty[session] = None

    # Faults

    def call_after(self, delay_ms: int, session: ClientSession | None, action: Callable[[], None]) -> None:
        """Run something after so many of the broker's milliseconds, then send what it made the session queue."""
        self._delayed_calls += 1
        self.engine.timers.set(self.engine.now_ms + delay_ms, _DelayedCall(self, session, action))
        self.timekeeper.rearm()

    def run_delayed_call(self, session: ClientSession | None, action: Callable[[], None]) -> None:
        """Run what `call_after` delayed."""
        self._delayed_calls -= 1
        if session is not None:
            self._dirty[session] = None
        action()

    def block_for(self, delay_ms: int) -> None:
        """Block publishers for so long, unless they are blocked already."""
        if self.blocked is None:
            self.block(MEMORY_ALARM)
            self._fault_blocks = True
            self.call_after(delay_ms, None, self._unblock_after_fault)

    def _unblock_after_fault(self) -> None:
        if self._fault_blocks:
            self.unblock()

    def _check_memory(self) -> None:
        queued = sum(queue.ready_bytes for queue in self.engine.queues())
        if queued > self.server_limits.memory_bytes_max:
            if self.blocked is None:
                self.block(MEMORY_ALARM)
                self._is_short_of_memory = True
        elif self._is_short_of_memory:
            self.unblock()  # a block that a caller asked for stays


class _DelayedCall:
    """An action that waits among the engine's timers."""

    __slots__ = ("_action", "_server", "_session")

    def __init__(self, server: Server, session: ClientSession | None, action: Callable[[], None]) -> None:
        self._server = server
        self._session = session
        self._action = action

    def wake(self, now_ms: int) -> None:
        """Run it."""
        self._server.run_delayed_call(self._session, self._action)
