"""An embedded broker as a program: wiring of its own, so that it starts without what it does not need.

What declares a topology and what serves a management API is imported only for those who ask for it.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from redrive.embedded import PROFILES as EMBEDDED_PROFILES
from redrive.embedded import EmbeddedBroker
from redrive.topology import Topology

PROFILES = tuple(EMBEDDED_PROFILES)
"""The versions the embedded broker can play, oldest first."""


def run_broker(
    *,
    host: str,
    port: int,
    management_port: int | None,
    profile: str,
    time: str,
    topology: Topology | None,
    users: Mapping[str, tuple[str, tuple[str, ...]]],
    started: Callable[[str], None],
) -> None:
    """Runs an embedded broker until SIGINT or SIGTERM; `users` are there beside guest, with passwords and tags.

    Raises `PortTaken`, and what a topology is refused with.
    """

    async def run() -> None:
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Also where SIGINT is ignored, as for whatever a script starts in the background.
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        async with AsyncExitStack() as stack:
            passwords = {"guest": "guest"} | {name: password for name, (password, _) in users.items()}
            tags = {name: given for name, (_, given) in users.items()}
            embedded = EmbeddedBroker(profile, host=host, port=port, time=time, users=passwords, tags=tags)
            broker = await stack.enter_async_context(embedded)
            if topology is not None:
                from redrive.wiring.topology_apply import declare_on

                await declare_on(broker, topology)
            management = None
            if management_port is not None:
                from redrive.embedded import ManagementServer

                server = ManagementServer(broker, host=host, port=management_port)
                management = await stack.enter_async_context(server)
            # Nothing is said before everything is up: a port that is taken is then the only word.
            started(f"{broker.url}  RabbitMQ {profile} embedded, in memory, for development and tests; Ctrl-C ends it")
            if management is not None:
                started(f"{management.url}  its management API")
            await ended.wait()

    asyncio.run(run())
