"""Is there what the app needs? Asked of the broker before anything is consumed, without declaring anything.

A user with least privilege may not be allowed to ask; what can't be asked is taken to be there.
"""

import re
from collections.abc import Iterable

from redrive.client import AccessRefused, Client, NotFound, ResourceLocked
from redrive.runtime.app import Consumption
from redrive.runtime.errors import UnsupportedBroker

NATIVE_SINCE = (4, 3, 1)


def check_version(consumptions: Iterable[Consumption], server_version: str) -> None:
    """Raises `UnsupportedBroker` where a shape needs a newer broker: below 4.3.1 `native` would retry without a
    pause."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", server_version)
    numbers = tuple(int(one or 0) for one in found.groups()) if found else (0, 0, 0)
    if numbers >= NATIVE_SINCE:
        return
    for one in consumptions:
        if one.plan.shape_name == "native":
            raise UnsupportedBroker(
                f"queue {one.plan.name} has shape native, which needs RabbitMQ 4.3.1 or newer, and this broker is"
                f" {server_version or 'of an unknown version'}; use shape ladder, which runs on every version"
            )


async def find_missing(client: Client, consumptions: Iterable[Consumption]) -> list[str]:
    """Addresses of the queues and exchanges that do not exist. Raises `ConnectionClosed`."""
    missing: list[str] = []
    queues, exchanges = _needed(consumptions)
    channel = await client.channel()
    for kind, names in (("queue", queues), ("exchange", exchanges)):
        for name in names:
            if not channel.is_open:
                channel = await client.channel()
            try:
                if kind == "queue":
                    await channel.declare_queue(name, passive=True)
                else:
                    await channel.declare_exchange(name, passive=True)
            except NotFound:
                missing.append(f"{kind} {name}")
            except (AccessRefused, ResourceLocked):
                pass
    if channel.is_open:
        await channel.close()
    return missing


def _needed(consumptions: Iterable[Consumption]) -> tuple[list[str], list[str]]:
    queues: dict[str, None] = {}
    exchanges: dict[str, None] = {}
    for one in consumptions:
        queues[one.plan.name] = None
        arrangement = one.plan.arrangement
        if arrangement is None:
            continue
        places = [(wait.queue, wait.exchange) for wait in arrangement.waits]
        for queue, exchange in (*places, (arrangement.parking.queue, arrangement.parking.exchange)):
            queues[queue] = None
            if exchange:
                exchanges[exchange] = None
    return list(queues), list(exchanges)
