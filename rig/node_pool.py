"""The nodes of a test run: one for each version that tests share, and nodes that one test has for itself.

A shared node is started when the first test needs one and ended with the run. Must not know pytest.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rig.cluster import Cluster
from rig.management import JSON
from rig.node import START_S_MAX, Node
from rig.node_config import NodeOptions, Tls
from rig.process_group import ProcessGroup
from rig.versions import Installation


class SharedNodes:
    """`expect` what will be needed, in order; the first `node` starts all of it, so later tests find their node up."""

    def __init__(self) -> None:
        self._expected: list[Installation] = []
        self._starting: dict[Installation, Future[Node]] = {}
        self._lock = threading.Lock()
        self._group: ProcessGroup | None = None
        # Booting is work for the processor: more at a time than there are cores only delays the first.
        self._threads = ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2), thread_name_prefix="rig")

    @property
    def group(self) -> ProcessGroup:
        with self._lock:
            if self._group is None:
                self._group = ProcessGroup()
            return self._group

    def expect(self, installations: Iterable[Installation]) -> None:
        self._expected = list(dict.fromkeys(installations))

    def node(self, installation: Installation) -> Node:
        """The shared node of this installation, up. Raises NodeFailed, again for every test, when it does not start."""
        group = self.group
        with self._lock:
            for each in (installation, *self._expected):
                if each not in self._starting:
                    self._starting[each] = self._threads.submit(_started_node, group, each)
        return self._starting[installation].result(timeout=3 * START_S_MAX)

    def version(self, installation: Installation) -> str:
        """The full version: the node's own word if it runs, else what is installed."""
        starting = self._starting.get(installation)
        if starting is not None and starting.done() and starting.exception() is None:
            return starting.result().version
        return installation.version

    def close(self) -> None:
        """End everything. A node that is still starting is ended too."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._group is not None:
            self._group.close()
        self._threads.shutdown(wait=True)


class OwnNodes:
    """Makes nodes for one test alone, to kill, pause, restart, cluster or configure; all are ended after the test."""

    def __init__(self, group: ProcessGroup, installation: Installation) -> None:
        self._group = group
        self._installation = installation
        self._nodes: list[Node] = []

    def __call__(
        self,
        *,
        conf: str = "",
        advanced: str = "",
        plugins: tuple[str, ...] = (),
        definitions: str | Path | Mapping[str, JSON] | None = None,
        tls: Tls | None = None,
        start: bool = True,
    ) -> Node:
        """A node with these NodeOptions, up unless `start` is false. Raises NodeFailed.

        With `definitions` that bring no user `guest`, the rig adds it after the boot, to look at the result.
        """
        text = json.dumps(definitions) if isinstance(definitions, Mapping) else definitions
        options = NodeOptions(conf=conf, advanced=advanced, plugins=plugins, definitions=text, tls=tls)
        node = Node(self._group, self._installation, options)
        self._nodes.append(node)
        if start:
            node.start()
        return node

    def cluster(
        self, *, size: int = 3, conf: str = "", advanced: str = "", plugins: tuple[str, ...] = (), start: bool = True
    ) -> Cluster:
        """A cluster of `size` nodes, formed unless `start` is false. Raises NodeFailed."""
        options = NodeOptions(conf=conf, advanced=advanced, plugins=plugins)
        cluster = Cluster(self._group, self._installation, size=size, options=options)
        self._nodes += cluster.nodes
        if start:
            cluster.start()
        return cluster

    def end(self) -> None:
        """Kill every node this made; its data are of no further use."""
        for node in self._nodes:
            node.kill()


def _started_node(group: ProcessGroup, installation: Installation) -> Node:
    node = Node(group, installation)
    node.start()
    return node
