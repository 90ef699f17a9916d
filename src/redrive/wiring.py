"""Where parts are put together: the only place that chooses a client, a broker, a store for a use case."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from redrive.client import Client, parse_url
from redrive.deploy import Inspection, apply, inspect
from redrive.topology import Topology

__all__ = ["Applied", "Inspection", "apply_topology", "target_vhost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What an apply found and did; `declared` is None if it was not confirmed or something differed."""

    inspection: Inspection
    declared: tuple[str, ...] | None
    bindings: int
    server_version: str


def target_vhost(url: str) -> str:
    """The vhost a URL leads to. Raises `InvalidUrl`."""
    return parse_url(url).vhost


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
