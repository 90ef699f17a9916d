"""Where parts are put together: the only place that chooses a client, a broker, a store for a use case."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from redrive.client import Client, parse_url
from redrive.deploy import Difference, Inspection, apply, inspect
from redrive.embedded import PROFILES as EMBEDDED_PROFILES
from redrive.embedded import EmbeddedBroker
from redrive.files import load
from redrive.simulation import Entrance, simulate
from redrive.simulation import as_json as tell_as_json
from redrive.simulation import tell as tell_life
from redrive.topology import Topology

__all__ = [
    "PROFILES",
    "Applied",
    "Difference",
    "Entrance",
    "Inspection",
    "apply_topology",
    "declare_on",
    "load_topology",
    "simulate",
    "tell_as_json",
    "tell_life",
]

PROFILES = tuple(EMBEDDED_PROFILES)
"""The versions the embedded broker can play, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What an apply found and did; `declared` is None if it was not confirmed or something differed."""

    inspection: Inspection
    declared: tuple[str, ...] | None
    bindings: int
    server_version: str


def apply_topology(topology: Topology, *, url: str, vhost: str, confirm: Callable[[Inspection], bool]) -> Applied:
    """Inspects, asks `confirm`, applies. Raises `ConnectionFailed`, `InvalidUrl`, `ApplyFailed`."""
    target = replace(parse_url(url), vhost=vhost)

    async def run() -> Applied:
        async with Client(target, name="redrive apply") as client:
            version = (await client.connection()).server_version
            inspection = await inspect(client, topology)
            declared = None
            if not inspection.differences and confirm(inspection):
                declared = await apply(client, topology, inspection)
            return Applied(
                inspection=inspection, declared=declared, bindings=len(topology.bindings), server_version=version
            )

    return asyncio.run(run())


def load_topology(path: str) -> Topology:
    """The topology of a file. Raises `UnreadableFile`, `InvalidDeclaration`, `InvalidDefinitions`."""
    return load(path).topology


async def declare_on(broker: EmbeddedBroker, topology: Topology) -> None:
    """Declares a topology on a running embedded broker, through the same client and order as on a real one."""
    for vhost in topology.used_vhosts():
        broker.add_vhost(vhost)
        part = topology.only(vhost)
        for policy in part.policies:
            broker.set_policy(policy)
        async with Client(broker.url_for(vhost), name="redrive broker") as client:
            await apply(client, part, await inspect(client, part))
