"""A broker that is short of memory says so in health checks and to whoever publishes, the embedded one as the real."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from rig.errors import ManagementRefused
from rig.management import Management
from rig.node_pool import OwnNodes

from redrive.client import Client, Delivery
from redrive.embedded import EmbeddedBroker
from redrive.embedded.management import ManagementServer
from tests.unit.client.scenario import Notes

CHECKS = ("alarms", "local-alarms", "virtual-hosts")
PATIENCE_S = 30.0
A_MOMENT_S = 1.0


def health(management: Management) -> dict[str, tuple[int, Any]]:
    """What the health checks say; nodes have names of their own."""
    said: dict[str, tuple[int, Any]] = {}
    (node,) = management.get("nodes")
    for check in CHECKS:
        try:
            said[check] = (200, management.get("health", "checks", check))
        except ManagementRefused as refused:
            said[check] = (refused.status, json.loads(refused.detail.replace(node["name"], "NODE")))
    return said


async def wait_alarm(management: Management, wanted: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            (node,) = await asyncio.to_thread(management.get, "nodes")
            if bool(node.get("mem_alarm")) == wanted:
                return
            await asyncio.sleep(0.1)


def hold(_: Delivery) -> None:
    """A handler that keeps what it gets."""


async def told(url: str, management: Management, begin: Callable[[], object], end: Callable[[], object]) -> list[Any]:
    """Who hears of an alarm, when, and what becomes of a message that is published meanwhile."""
    facts: list[Any] = [await asyncio.to_thread(health, management)]
    notes = [Notes() for _ in range(3)]

    def heard() -> list[tuple[int, int]]:
        return [(one.count("client.blocked"), one.count("client.unblocked")) for one in notes]

    clients = [Client(url, observer=one) for one in notes]
    async with clients[0] as publishes, clients[1] as consumes, Client(url) as looks:
        channel = await looks.channel()
        await channel.declare_queue("q")
        publisher = await publishes.publisher()
        facts.append(await publisher.publish("", "q", b"before"))
        await consumes.consume("q", hold, prefetch=1)
        await asyncio.to_thread(begin)
        await wait_alarm(management, True)
        await asyncio.sleep(A_MOMENT_S)
        facts += [heard(), await asyncio.to_thread(health, management)]
        async with clients[2] as late:
            publishing = [asyncio.create_task(publisher.publish("", "q", b"during"))]
            late_publisher = await late.publisher()
            publishing.append(asyncio.create_task(late_publisher.publish("", "q", b"late")))
            await asyncio.sleep(A_MOMENT_S)
            ready = (await channel.declare_queue("q", passive=True)).messages_ready
            facts += [heard(), [one.done() for one in publishing], ready]
            await asyncio.to_thread(end)
            async with asyncio.timeout(PATIENCE_S):
                facts += [await one for one in publishing]
            facts += [heard(), (await channel.declare_queue("q", passive=True)).messages_ready]
        await wait_alarm(management, False)
        facts.append(await asyncio.to_thread(health, management))
    return facts


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_an_alarm_is_told_alike_and_holds_publishers_up_alike(own_node: OwnNodes) -> None:
    node = own_node()

    async def steps() -> tuple[list[Any], list[Any]]:
        theirs = await told(
            node.amqp_url(),
            node.management,
            lambda: node.ctl("set_vm_memory_high_watermark", "0.000001"),
            lambda: node.ctl("set_vm_memory_high_watermark", "absolute", "1GB"),
        )
        async with EmbeddedBroker(node.profile) as broker, ManagementServer(broker) as server:
            loop = asyncio.get_running_loop()
            ours = await told(
                broker.url,
                Management(server.url),
                lambda: loop.call_soon_threadsafe(broker.block),
                lambda: loop.call_soon_threadsafe(broker.unblock),
            )
        return ours, theirs

    ours, theirs = asyncio.run(steps())
    assert ours == theirs
