"""Several nodes of one version as one cluster.

They find each other by RabbitMQ's own peer discovery, from the list of names in their configuration, which needs no
rabbitmqctl and lets them boot side by side.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

from rig.errors import ManagementRefused, NodeFailed
from rig.node import Node, node_name
from rig.node_config import NodeOptions
from rig.process_group import ProcessGroup
from rig.versions import Installation

FORM_S_MAX = 120.0


class Cluster:
    """`nodes` in order; iterable and indexable. Every node is a full Node: kill one, pause one, restart one."""

    def __init__(
        self, group: ProcessGroup, installation: Installation, *, size: int = 3, options: NodeOptions | None = None
    ) -> None:
        names = [group.new_name() for _ in range(size)]
        given = NodeOptions() if options is None else options
        joined = dataclasses.replace(given, peers=tuple(node_name(name) for name in names))
        self.nodes = tuple(Node(group, installation, joined, short_name=name) for name in names)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    def start(self) -> None:
        """Start every node and wait until each sees all of them running. Raises NodeFailed."""
        first, *others = self.nodes
        first.launch()
        # On 3.10 the first founds the cluster alone, lest two found one each; on 4.x it waits for the others to boot.
        if first.profile == "3.10":
            first.wait_ready()
        for node in others:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        for node in self.nodes:
            self._wait_formed(node)

    def running_names(self, node: Node) -> set[str]:
        """The names of the nodes that `node` sees running."""
        return {each["name"] for each in node.management.get("nodes") if each["running"]}

    def stop(self) -> None:
        for node in reversed(self.nodes):
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def _wait_formed(self, node: Node) -> None:
        names = {each.name for each in self.nodes}
        deadline = time.monotonic() + FORM_S_MAX
        seen: set[str] = set()
        while time.monotonic() < deadline:
            try:
                seen = self.running_names(node)
            except (ManagementRefused, OSError):
                seen = set()
            if seen == names:
                return
            time.sleep(0.2)
        raise NodeFailed(node=repr(node), what=f"sees {sorted(seen)} and not all of {sorted(names)}", output=node.log())
