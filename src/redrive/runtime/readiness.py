"""Whether the broker has what the app needs, checked before anything is consumed, without declaring anything.

An existing queue is also checked for the dead-letter settings that its shape relies on: the broker silently drops a
message that is rejected from a queue without them. AMQP can't read settings. But declaring an existing queue with the
settings it should have changes nothing, and is refused if it has others.

A user with least privilege may not be allowed to check; what can't be checked is assumed to exist.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redrive.client import AccessRefused, Client, ResourceLocked
from redrive.inspection import ArgumentsUnreadable, Inspector, find_mismatch
from redrive.runtime.app import Consumption
from redrive.runtime.errors import UnsupportedBroker
from redrive.topology import Queue, QueuePlan

OWN_DEATHS_SINCE = (4, 0, 0)
"""From then on a broker does not read the x-death that a message brings along."""
DEFAULT_LIMIT, DEFAULT_LIMIT_SINCE = 20, (4, 0, 0)
"""The delivery limit of quorum queues that have none of their own."""
DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
DEAD_LETTERING = (DEAD_LETTER_EXCHANGE, "x-dead-letter-routing-key")


def check_version(consumptions: Iterable[Consumption], server_version: str) -> None:
    """Raises `UnsupportedBroker` where a shape needs a newer broker."""
    version = read_version(server_version)
    for one in consumptions:
        needed = one.plan.traits.min_version
        if needed is not None and version < needed:
            raise UnsupportedBroker(
                f"queue {one.plan.name} has shape {one.plan.shape_name}, which needs RabbitMQ"
                f" {'.'.join(map(str, needed))} or newer, and this broker is"
                f" {server_version or 'of an unknown version'}; use shape ladder, which runs on every version"
            )


def read_version(server_version: str) -> tuple[int, ...]:
    """The numbers of a version, zeros if it has none."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", server_version)
    return tuple(int(one or 0) for one in found.groups()) if found else (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyReadiness:
    """`missing`: queues and exchanges that do not exist, or that would drop messages as they are. `different`: plans of
    queues that have other dead-letter settings than declared, and can be consumed all the same, with what is different.
    `weak`: plans of queues whose settings keep less than their shape promises, with what is not kept."""

    missing: tuple[str, ...]
    different: tuple[tuple[QueuePlan, str], ...]
    weak: tuple[tuple[QueuePlan, tuple[str, ...]], ...]


async def find_readiness(client: Client, consumptions: Iterable[Consumption]) -> TopologyReadiness:
    """What is not as the app needs it. Raises `ConnectionClosed`."""
    consumptions = tuple(consumptions)
    missing = await _find_missing(client, consumptions)
    version = (await client.connection()).server_version
    default_limit = DEFAULT_LIMIT if read_version(version) >= DEFAULT_LIMIT_SINCE else None
    different: list[tuple[QueuePlan, str]] = []
    weak: list[tuple[QueuePlan, tuple[str, ...]]] = []
    for plan in (one.plan for one in consumptions):
        address = f"queue {plan.name}"
        if address in missing or DEAD_LETTER_EXCHANGE not in plan.queue.arguments:
            continue
        difference, arguments = await _find_difference(client, plan.queue)
        if difference is None:
            lacking = tuple(plan.not_guaranteed(arguments, default_limit=default_limit))
            if lacking:
                weak.append((plan, lacking))
        elif plan.relies_on_dead_lettering:
            missing.append(f"{address} with its dead-letter settings ({difference})")
        else:
            different.append((plan, difference))
    return TopologyReadiness(missing=tuple(missing), different=tuple(different), weak=tuple(weak))


async def _find_difference(client: Client, queue: Queue) -> tuple[str | None, Mapping[str, object]]:
    """What is different about the dead-lettering of a queue that exists, None if nothing is, or nobody may know; and
    its arguments as far as they are known, else as declared.

    Other settings may be somebody's own: they are taken as they are.
    """
    declared = queue.arguments.thaw()
    flags = {"durable": queue.durable, "auto_delete": queue.auto_delete}
    arguments: dict[str, object] = {"x-queue-type": queue.type, **declared}
    try:
        mismatch = await find_mismatch(client, queue.name, flags, arguments, among=DEAD_LETTERING)
    except ArgumentsUnreadable as error:
        return error.text, declared
    except (AccessRefused, ResourceLocked):
        return None, declared
    if mismatch is not None:
        return f"{mismatch.name} is {mismatch.text or 'empty'}", declared
    return None, arguments


async def _find_missing(client: Client, consumptions: Iterable[Consumption]) -> list[str]:
    """Addresses of the queues and exchanges that do not exist. Raises `ConnectionClosed`."""
    missing: list[str] = []
    queues, exchanges = _needed(consumptions)
    inspector = Inspector(client)
    for name in queues:
        try:
            if await inspector.queue_state(name) is None:
                missing.append(f"queue {name}")
        except (AccessRefused, ResourceLocked):
            pass
    for name in exchanges:
        try:
            if not await inspector.has_exchange(name):
                missing.append(f"exchange {name}")
        except (AccessRefused, ResourceLocked):
            pass
    await inspector.close()
    return missing


def _needed(consumptions: Iterable[Consumption]) -> tuple[list[str], list[str]]:
    queues: dict[str, None] = {}
    exchanges: dict[str, None] = {}
    for one in consumptions:
        queues[one.plan.name] = None
        routes = one.plan.routes
        if routes is None:
            continue
        places = [(wait.queue, wait.exchange) for wait in routes.waits]
        for queue, exchange in (*places, (routes.parking.queue, routes.parking.exchange)):
            queues[queue] = None
            if exchange:
                exchanges[exchange] = None
    return list(queues), list(exchanges)
