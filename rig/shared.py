"""The nodes a test run shares: one for each version, started when the first test needs one and ended with the run.

Must not know pytest: what is needed comes in, nodes go out.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rig.cluster import Cluster
from rig.config import NodeOptions, Tls
from rig.management import JSON
from rig.node import START_S_MAX, Node
from rig.run import Run
from rig.versions import Installation


class SharedNodes:
    """`expect` what will be needed, in order; the first `node` starts all of it, so later tests find their node up."""

    def __init__(self) -> None:
        self._expected: list[Installation] = []
        self._starting: dict[Installation, Future[Node]] = {}
        self._lock = threading.Lock()
        self._run: Run | None = None
        # Booting is work for the processor: more at a time than there are cores only delays the first.
        self._threads = ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2), thread_name_prefix="rig")

    @property
    def run(self) -> Run:
        with self._lock:
            if self._run is None:
                self._run = Run()
            return self._run

    def expect(self, installations: Iterable[Installation]) -> None:
        self._expected = list(dict.fromkeys(installations))

    def node(self, installation: Installation) -> Node:
        """The shared node of this installation, up. Raises NodeFailed, again for every test, when it does not start."""
        run = self.run
        with self._lock:
            for each in (installation, *self._expected):
                if each not in self._starting:
                    self._starting[each] = self._threads.submit(_started_node, run, each)
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
        if self._run is not None:
            self._run.close()
        self._threads.shutdown(wait=True)


class OwnNodes:
    """Makes nodes for one test alone, to kill, pause, restart, cluster or configure; all are ended after the test."""

    def __init__(self, run: Run, installation: Installation) -> None:
        self._run = run
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
        node = Node(self._run, self._installation, options)
        self._nodes.append(node)
        if start:
            node.start()
        return node

    def cluster(
        self, *, size: int = 3, conf: str = "", advanced: str = "", plugins: tuple[str, ...] = (), start: bool = True
    ) -> Cluster:
        """A cluster of `size` nodes, formed unless `start` is false. Raises NodeFailed."""
        options = NodeOptions(conf=conf, advanced=advanced, plugins=plugins)
        cluster = Cluster(self._run, self._installation, size=size, options=options)
        self._nodes += cluster.nodes
        if start:
            cluster.start()
        return cluster

    def end(self) -> None:
        """Kill every node this made; its data are of no further use."""
        for node in self._nodes:
            node.kill()


def _started_node(run: Run, installation: Installation) -> Node:
    node = Node(run, installation)
    node.start()
    return node
