"""`EmbeddedBroker`: a RabbitMQ for tests and development, in this process, in virtual time if you like.

    async with EmbeddedBroker(profile="4.3", time="automatic") as broker:
        ...                                  # any AMQP client, at broker.url
        await broker.advance(30)             # thirty seconds pass at once
        print(*broker.life("order-7"), sep="\\n")

A Redrive client of the same event loop needs no port: `Client(broker.url, dial=broker.dial)` connects in memory.

It is for development and tests and keeps everything in memory. Production is RabbitMQ.
"""

import asyncio
import time as real_time
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

from redrive.embedded.engine import PROFILES, Engine, Hop, MessageLocation
from redrive.embedded.errors import NotRunning, UnknownProfile
from redrive.embedded.faults import Faults
from redrive.embedded.server import Server, ServerLimits
from redrive.embedded.virtual_time import TimeMode, VirtualClock
from redrive.topology import Policy

IDLE_S = 0.002
"""How long no client must send anything before automatic time jumps."""
ADMINISTRATOR = "administrator"
NOWHERE = "embedded.invalid"
"""The host of a broker that does not listen: a name that never resolves (RFC 2606)."""


class EmbeddedBroker:
    """A broker of one profile (`3.10`, `4.0`, `4.3`) on a port of its own (0: any free one).

    `time` is `real` (the event loop's), `manual` (passes only by `advance`) or `automatic` (jumps to the next deadline
    when no message is unacked and no client sends anything). It begins at `begin_s`, seconds since 1970; by default
    now. Without `listen` there is no port, and clients connect by `dial`. `users` are names with passwords; `tags` are
    RabbitMQ's user tags, for users who are not to be administrators. `faults` are what goes wrong.
    """

    def __init__(
        self,
        profile: str = "4.3",
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listen: bool = True,
        time: str = "real",
        begin_s: float | None = None,
        users: Mapping[str, str] | None = None,
        tags: Mapping[str, Iterable[str]] | None = None,
        vhosts: Iterable[str] = ("/",),
        limits: ServerLimits | None = None,
        seed: int = 0,
        idle_s: float = IDLE_S,
        faults: Faults | None = None,
    ) -> None:
        if profile not in PROFILES:
            raise UnknownProfile(profile, list(PROFILES))
        self.host = host
        self.port = port
        self.users = {"guest": "guest"} if users is None else dict(users)
        given = {} if tags is None else tags
        self.tags = {user: tuple(given.get(user, (ADMINISTRATOR,))) for user in self.users}
        self._mode = TimeMode(time)
        self._limits = ServerLimits() if limits is None else limits
        self._idle_s = idle_s
        self._listens = listen
        self.faults = Faults() if faults is None else faults
        """What goes wrong, and when."""
        start_ms = real_time.time_ns() // 1_000_000 if begin_s is None else round(begin_s * 1000)
        self.engine = Engine(PROFILES[profile], start_ms, seed=seed)
        for vhost in vhosts:
            self.engine.add_vhost(vhost)
        # No time passes before `start`: a scenario that begins at a given moment begins exactly there.
        self._clock = VirtualClock(self._mode, start_ms=start_ms, monotonic_s=lambda: 0.0)
        self._server: Server | None = None

    async def __aenter__(self) -> "EmbeddedBroker":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen. Raises PortTaken."""
        self._clock.follow(asyncio.get_running_loop().time)
        server = Server(
            self.engine,
            self._clock,
            users=self.users,
            tags=self.tags,
            limits=self._limits,
            idle_s=self._idle_s,
            faults=self.faults,
        )
        if self._listens:
            self.port = await server.listen(self.host, self.port)
        server.timekeeper.rearm()
        self._server = server

    async def stop(self) -> None:
        """Close all connections; queues and messages stay in memory as long as the object."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def dial(self, client: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
        """Connect a client of this event loop in memory: `Client(broker.url, dial=broker.dial)`.

        Raises ConnectionRefusedError while the broker does not run, as a socket would. `host` and `port` are only names
        here.
        """
        if self._server is None:
            raise ConnectionRefusedError("the embedded broker is not running")
        self._server.dial(client(), name=(host, port))

    @property
    def url(self) -> str:
        """Where clients connect to, with the first user's name and password."""
        return self.url_for("/")

    def url_for(self, vhost: str) -> str:
        """The same for another vhost."""
        user, password = next(iter(self.users.items()))
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        where = f"{self.host}:{self.port}" if self._listens else NOWHERE
        return f"amqp://{login}@{where}/{quote(vhost, safe='')}"

    @property
    def profile(self) -> str:
        """The RabbitMQ version that it behaves like."""
        return self.engine.profile.name

    @property
    def now_s(self) -> float:
        """The present moment in virtual seconds since 1970."""
        return self._clock.now_ms() / 1000

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass; clients react to each deadline before the next comes."""
        await self.running_server().timekeeper.advance(seconds)

    def life(self, message_id: str) -> list[Hop]:
        """Every hop of a message, with the rule that fired; the ids of messages without one are their x-redrive-id."""
        return self.engine.life(message_id)

    def whereabouts(self, message_id: str) -> list[MessageLocation]:
        """Where the copies of a message are now."""
        return self.engine.whereabouts(message_id)

    def depths(self, vhost: str = "/") -> dict[str, int]:
        """Every queue of a vhost, and how many messages are in it: ready, unacked, delayed or held."""
        return {queue.name: queue.stored for queue in self.engine.vhosts[vhost].queues.values()}

    def add_vhost(self, name: str) -> None:
        """Create a vhost."""
        self.engine.add_vhost(name)

    def remove_vhost(self, name: str) -> None:
        """Delete a vhost with everything in it; its connections are closed. Raises KeyError where there is none."""
        server = self.running_server()
        server.timekeeper.sync_engine()
        server.close_connections(name, f"vhost '{name}' is deleted")
        self.engine.remove_vhost(name)
        server.finish_turn()

    def set_policy(self, policy: Policy) -> None:
        """Add or replace a policy or operator policy, in the policy's own vhost."""
        self.engine.add_vhost(policy.vhost).set_policy(policy)
        self.engine.flush_dead_letters()
        self.running_server().finish_turn()

    def remove_policy(self, name: str, *, vhost: str = "/", operator: bool = False) -> None:
        """Remove a policy."""
        self.engine.add_vhost(vhost).remove_policy(name, operator=operator)
        self.running_server().finish_turn()

    def block(self, reason: str = "low on memory") -> None:
        """A client that publishes from now on gets connection.blocked, and its message waits."""
        self.running_server().block(reason)

    @property
    def blocked(self) -> str | None:
        """Why publishers are blocked, None while they are not."""
        return self.running_server().blocked

    def unblock(self) -> None:
        """Unblock publishers."""
        server = self.running_server()
        server.timekeeper.sync_engine()
        server.unblock()
        server.finish_turn()

    async def restart(self) -> None:
        """Cut all connections and forget what is not durable; durable queues, exchanges and messages stay."""
        self.running_server().restart()

    def running_server(self) -> Server:
        """The server. Raises NotRunning."""
        if self._server is None:
            raise NotRunning
        return self._server
