"""The examples' topologies, and what a broker has of one."""

import json
from pathlib import Path
from typing import Any

from redrive.topology import Topology, compile_declaration, read_declaration, read_definitions

EXAMPLES = Path(__file__).parents[2] / "examples"
EVERYWHERE = ("freeflow", "event-bus", "file-pipeline", "ratatoskr", "bookly", "ladder")


def compiled(example: str, vhost: str | None = None) -> Topology:
    """The topology of an example."""
    declaration = read_declaration((EXAMPLES / example / "redrive.yaml").read_text(), file=example)
    return compile_declaration(declaration, vhost=vhost).topology


def read_back(answer: Any, vhost: str) -> Topology:
    """What a broker has in one vhost; the exchanges every vhost is born with are not exported."""
    found = read_definitions(json.dumps(answer), vhost=vhost)
    return Topology(
        exchanges=tuple(one for one in found.exchanges if one.vhost == vhost),
        queues=tuple(one for one in found.queues if one.vhost == vhost),
        bindings=tuple(one for one in found.bindings if one.vhost == vhost),
        policies=tuple(one for one in found.policies if one.vhost == vhost),
    )


def without_vhosts(topology: Topology) -> Topology:
    """The same objects without the list of vhosts, which `read_back` leaves out too."""
    return Topology(
        exchanges=topology.exchanges,
        queues=topology.queues,
        bindings=topology.bindings,
        policies=topology.policies,
    )
