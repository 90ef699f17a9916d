"""An embedded broker as a program, for `redrive broker`.

What declares a topology and what serves a management API is imported only if asked for: the broker starts fast.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from redrive.embedded import PROFILES as EMBEDDED_PROFILES
from redrive.embedded import EmbeddedBroker
from redrive.topology import Topology
from redrive.wiring.stop_signals import on_stop_signals

PROFILES = tuple(EMBEDDED_PROFILES)
"""The versions the embedded broker can play, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedBrokerOptions:
    """How an embedded broker is run; `users` are there beside guest, each with a password and tags."""

    host: str
    port: int
    profile: str
    time: str
    management_port: int | None = None
    users: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)


def run_broker(options: EmbeddedBrokerOptions, *, topology: Topology | None, started: Callable[[str], None]) -> None:
    """Runs an embedded broker until SIGINT or SIGTERM. `started` hears where it listens.

    Raises `PortTaken`, and what a topology is refused with.
    """

    async def run() -> None:
        ended = asyncio.Event()
        on_stop_signals(ended.set)
        host, profile, users = options.host, options.profile, options.users
        async with AsyncExitStack() as stack:
            passwords = {"guest": "guest"} | {name: password for name, (password, _) in users.items()}
            tags = {name: given for name, (_, given) in users.items()}
            embedded = EmbeddedBroker(
                profile, host=host, port=options.port, time=options.time, users=passwords, tags=tags
            )
            broker = await stack.enter_async_context(embedded)
            if topology is not None:
                from redrive.wiring.topology_apply import declare_on

                await declare_on(broker, topology)
            management = None
            if options.management_port is not None:
                from redrive.embedded import ManagementServer

                server = ManagementServer(broker, host=host, port=options.management_port)
                management = await stack.enter_async_context(server)
            # Nothing is printed before everything is up: if a port is taken, the error is the only output.
            started(f"{broker.url}  RabbitMQ {profile} embedded, in memory, for development and tests; Ctrl-C ends it")
            if management is not None:
                started(f"{management.url}  its management API")
            await ended.wait()

    asyncio.run(run())
