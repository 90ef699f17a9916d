"""Is there what the app needs? Asked of the broker before anything is consumed, without declaring anything.

A queue that exists is also asked whether it has the dead-letter settings its shape relies on: what is rejected from one
that has none is dropped by the broker without a word. AMQP can't read settings; to declare a queue that is there with
those it should have changes nothing, and is refused if they are others.

A user with least privilege may not be allowed to ask; what can't be asked is taken to be there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from redrive.client import AccessRefused, Client, NotFound, PreconditionFailed, ResourceLocked, read_told
from redrive.runtime.app import Consumption
from redrive.runtime.errors import UnsupportedBroker
from redrive.topology import Queue, QueuePlan, Way

NATIVE_SINCE = (4, 3, 1)
DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
DEAD_LETTERING = (DEAD_LETTER_EXCHANGE, "x-dead-letter-routing-key")
_SETTINGS_MAX = 40
"""More than a queue has."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`missing`: queues and exchanges that do not exist, or that would drop messages as they are. `different`: queues
    that have other settings than declared, and can be consumed all the same."""

    missing: tuple[str, ...]
    different: tuple[str, ...]


async def find_readiness(client: Client, consumptions: Iterable[Consumption]) -> Readiness:
    """What is not as the app needs it. Raises `ConnectionClosed`."""
    consumptions = tuple(consumptions)
    missing = await _find_missing(client, consumptions)
    different: list[str] = []
    for one in consumptions:
        address = f"queue {one.plan.name}"
        if address in missing or DEAD_LETTER_EXCHANGE not in one.plan.queue.arguments:
            continue
        difference = await _find_difference(client, one.plan.queue)
        if difference is None:
            continue
        said = f"{address} with its dead-letter settings ({difference})"
        (missing if relies_on_dead_lettering(one.plan) else different).append(said)
    return Readiness(missing=tuple(missing), different=tuple(different))


def relies_on_dead_lettering(plan: QueuePlan) -> bool:
    """Whether a message would be lost, or loop without a pause, if the queue dead-letters nothing."""
    arrangement = plan.arrangement
    if arrangement is None:
        return plan.dead_letters
    return Way.REJECT in (arrangement.retry_by, arrangement.park_by) or plan.shape_name == "native"


async def _find_difference(client: Client, queue: Queue) -> str | None:
    """What is different about the dead-lettering of a queue that exists; None if nothing is, or nobody may know.

    Other settings may be somebody's own: they are taken as they are.
    """
    flags = {"durable": queue.durable, "auto_delete": queue.auto_delete}
    arguments: dict[str, object] = {"x-queue-type": queue.type, **queue.arguments.thaw()}
    for _ in range(_SETTINGS_MAX):
        channel = await client.channel()
        try:
            await channel.declare_queue(queue.name, **flags, arguments=arguments)
        except PreconditionFailed as error:
            told = read_told(error.text)
            if told is None:
                return error.text
            if told.name in DEAD_LETTERING:
                return f"{told.name} is {told.text or 'empty'}"
            if not told.learn(flags, arguments):
                return error.text
        except (AccessRefused, ResourceLocked):
            return None
        else:
            await channel.close()
            return None
    return "its settings can't be told apart"


async def _find_missing(client: Client, consumptions: Iterable[Consumption]) -> list[str]:
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
