"""The broker the clients are measured on, and the queues of one case.

The node comes from the tests' rig: its own data, ports and processes, on loopback, gone with the run. Queues are looked
at by AMQP's passive declare, which asks the queue itself; the management API's numbers are seconds old.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pika
from rig.build import build
from rig.management import Management
from rig.node import Node
from rig.node_config import NodeOptions
from rig.process_group import ProcessGroup
from rig.versions import Installation, cache_folder, choose_installations, find_installations, installation_for

from bench.amqp.cases import Workload

RETRY_DELAY_MS = 1
PLUGINS = ("rabbitmq_shovel", "rabbitmq_shovel_management")
# Quorum queues keep in memory what their write-ahead log holds, half a gigabyte by default: with the rig's limit of one
# gigabyte the broker might block publishers in the middle of a measurement.
ADVANCED = '[{rabbit, [{vm_memory_high_watermark, {absolute, "4GB"}}]}].\n'
COUNT_S_MAX = 10.0
COUNT_PAUSE_S = 0.1


class BrokerMissing(Exception):
    """The version asked for can't be had; the text says why and what to do."""


class Miscount(Exception):
    """Messages are not where they have to be after a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """The queues of one case. `wait` is there in W3 only, `target` in W3 and W4."""

    source: str
    target: str
    wait: str


class Broker:
    """A running node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._cases = 0

    @property
    def url(self) -> str:
        return self._node.amqp_url()

    @property
    def management(self) -> Management:
        return self._node.management

    @property
    def management_url(self) -> str:
        return self._node.management_url

    def versions(self) -> dict[str, str]:
        """RabbitMQ's and Erlang's."""
        overview = self.management.get("overview")
        return {"RabbitMQ": str(overview["rabbitmq_version"]), "Erlang/OTP": str(overview["erlang_version"])}

    @contextmanager
    def queues_for(self, workload: Workload) -> Iterator[Queues]:
        """New quorum queues, deleted afterwards: no case meets what another has left behind."""
        self._cases += 1
        prefix = f"bench.{self._cases}"
        queues = Queues(source=prefix, target=f"{prefix}.parked", wait=f"{prefix}.wait")
        with self.channel() as channel:
            for name, arguments in _declarations(workload, queues).items():
                channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})
        try:
            yield queues
        finally:
            with self.channel() as channel:
                for name in _declarations(workload, queues):
                    channel.queue_delete(name)

    def expect(self, counts: Mapping[str, int]) -> None:
        """Return when every queue has no consumer and its count of messages; raise Miscount when it does not come.

        A second look makes sure: what a client had not acked is given back a moment after its connection has gone.
        """
        deadline = time.monotonic() + COUNT_S_MAX
        looks = 0
        with self.channel() as channel:
            while looks < 2:
                found = {name: count_messages(channel, name) for name in counts}
                looks = looks + 1 if found == counts else 0
                if looks == 0 and time.monotonic() > deadline:
                    shown = ", ".join(f"{name} has {found[name]} of {counts[name]}" for name in counts)
                    raise Miscount(f"messages are not where they should be: {shown}")
                time.sleep(COUNT_PAUSE_S)

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel of a short-lived connection."""
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            yield connection.channel()
        finally:
            connection.close()


@contextmanager
def start_broker(label: str) -> Iterator[Broker]:
    """The node, up, until the block ends. Raises BrokerMissing, or NodeFailed when it does not start."""
    installation = _installation(label)
    with ProcessGroup() as run:
        node = Node(run, installation, NodeOptions(plugins=PLUGINS, advanced=ADVANCED))
        node.start()
        yield Broker(node)


def count_messages(channel: Any, queue: str) -> int:
    """The messages that are ready; -1 while someone consumes, so that nobody trusts the number."""
    answer = channel.queue_declare(queue, passive=True).method
    return -1 if answer.consumer_count else int(answer.message_count)


def _installation(label: str) -> Installation:
    unavailable = build([label], cache=cache_folder(), say=lambda text: print(f"bench: {text}", flush=True))
    installation = installation_for(label, choose_installations(find_installations(cache_folder())))
    if installation is None:
        why = "; ".join(str(each) for each in unavailable)
        raise BrokerMissing(why or f"RabbitMQ {label} is not here: run `python -m rig build {label}`")
    return installation


def _declarations(workload: Workload, queues: Queues) -> dict[str, dict[str, Any]]:
    """Each queue with its arguments, targets before sources."""
    match workload:
        case "W1" | "W2":
            return {queues.source: {}}
        case "W3":
            to_wait = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queues.wait}
            back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queues.source}
            return {
                queues.target: {},
                queues.wait: {**back, "x-message-ttl": RETRY_DELAY_MS},
                queues.source: to_wait,
            }
        case "W4":
            return {queues.target: {}, queues.source: {}}
