"""The server: the engine behind a port. It listens, keeps the sessions, tells the engine the time and spreads effects.

Everything runs in one event loop and one turn handles one client's bytes from end to end: tell the time, run the
commands, put the effects on everybody's wire, write.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from redrive import wire
from redrive.embedded.clock import VirtualClock
from redrive.embedded.engine import Connection, Engine
from redrive.embedded.errors import PortTaken
from redrive.embedded.faults import Faults
from redrive.embedded.pipe import connect
from redrive.embedded.restart import forget_what_is_not_durable
from redrive.embedded.session import Session
from redrive.embedded.timekeeper import Timekeeper
from redrive.embedded.transport import ClientTransport

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
        faults.stage = self
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
        self.time = Timekeeper(self, idle_s=idle_s)
        self.blocked: str | None = None
        self._clients: dict[Session, ClientTransport] = {}
        self._sessions: dict[Connection, Session] = {}
        self._dirty: dict[Session, None] = {}
        self._turns = 0
        self._put_off = 0
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
        """Connect a client of this event loop in memory; `name` is what the broker is to it."""
        self._dialled += 1
        here = ClientTransport(self)
        connect(self.loop, client, here, client_name=("memory", self._dialled), server_name=name)

    async def close(self) -> None:
        """Hang up on everybody and stop listening."""
        self._is_closed = True
        self.time.close()
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

    def hang_up(self, vhost: str, text: str) -> None:
        """Close every connection to a vhost, with 320 and that text."""
        for connection, session in list(self._sessions.items()):
            if connection.vhost.name == vhost:
                self.close_connection(session, text)

    def close_connection(self, session: Session, text: str) -> None:
        """connection.close from our side, with 320 and that text; `settle` sends it."""
        session.close(320, f"CONNECTION_FORCED - {text}")
        self._dirty[session] = None

    def restart(self) -> None:
        """Cut everybody off and forget what is not durable."""
        self.cut_everybody()
        forget_what_is_not_durable(self.engine)
        self.settle()

    # A client's transport

    def admit(self, client: ClientTransport) -> bool:
        """Whether there is room for one more."""
        if len(self._clients) >= self.server_limits.connections_max:
            return False
        self._clients[client.session] = client
        client.session.blocked = self.blocked
        return True

    def receive(self, client: ClientTransport, data: bytes) -> None:
        """One turn: a client's bytes, from end to end."""
        self.time.tell()
        session = client.session
        self._dirty[session] = None
        session.receive(data)
        if session.is_stopped:
            client.stop_reading()
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
        if self._is_closed:
            return  # another server may have the engine by now, and its effects are not ours to spread
        self.time.tell()
        self.settle()

    # A session's host

    def attach(self, connection: Connection, session: Session) -> None:
        """The session speaks for that connection from now on."""
        self._sessions[connection] = session
        self._clients[session].begin_heartbeats()

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
            self.spread()
            self._write()
        self.time.rearm()

    def _write(self) -> None:
        while self._dirty:
            session, _ = self._dirty.popitem()
            client = self._clients.get(session)
            if client is not None:
                client.flush()

    @property
    def is_busy(self) -> bool:
        """Whether a client holds messages or is in the middle of its handshake, and nobody waits for a fault's end."""
        if self._put_off:
            return False
        return self.engine.in_hand > 0 or any(session.is_opening for session in self._clients)

    @property
    def has_clients(self) -> bool:
        """Whether anybody is connected."""
        return bool(self._clients)

    # Alarms

    def block(self, reason: str) -> None:
        """From now on whoever publishes is told to wait, and not read from any more."""
        if self.blocked is not None:
            return
        self.blocked = reason
        for session in self._clients:
            session.blocked = reason

    def unblock(self) -> None:
        """Tell those who were stopped to go on; `settle` sends what comes of it."""
        if self.blocked is None:
            return
        self.blocked = None
        self._is_short_of_memory = self._fault_blocks = False
        for session, client in list(self._clients.items()):
            client.start_reading()
            session.go_on()
            self._dirty[session] = None

    # Faults' stage

    def call_in(self, delay_ms: int, session: Session | None, action: Callable[[], None]) -> None:
        """Do something after so many of the broker's milliseconds; what it makes a session say is sent."""
        self._put_off += 1
        self.engine.timers.set(self.engine.now_ms + delay_ms, _PutOff(self, session, action))
        self.time.rearm()

    def run_put_off(self, session: Session | None, action: Callable[[], None]) -> None:
        """The moment of `call_in` has come."""
        self._put_off -= 1
        if session is not None:
            self._dirty[session] = None
        action()

    def block_for(self, delay_ms: int) -> None:
        """Block publishers for so long, unless they are blocked already."""
        if self.blocked is None:
            self.block(MEMORY_ALARM)
            self._fault_blocks = True
            self.call_in(delay_ms, None, self._unblock_after_fault)

    def _unblock_after_fault(self) -> None:
        if self._fault_blocks:
            self.unblock()

    def _look_at_memory(self) -> None:
        queued = sum(queue.ready_bytes for queue in self.engine.queues())
        if queued > self.server_limits.memory_bytes_max:
            if self.blocked is None:
                self.block(MEMORY_ALARM)
                self._is_short_of_memory = True
        elif self._is_short_of_memory:
            self.unblock()  # what somebody blocked on purpose stays so


class _PutOff:
    """Something to be done later, asleep among the engine's deadlines."""

    __slots__ = ("_action", "_server", "_session")

    def __init__(self, server: Server, session: Session | None, action: Callable[[], None]) -> None:
        self._server = server
        self._session = session
        self._action = action

    def wake(self, now_ms: int) -> None:
        """Now."""
        self._server.run_put_off(self._session, self._action)
