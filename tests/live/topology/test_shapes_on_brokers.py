"""The commands of every shape on real brokers: a failing message runs as often, and ends where, its document says.

The same walk is done in virtual time on the embedded broker; here RabbitMQ is the judge. A third run asks for more time
than any wait has, which must cost no attempt.
"""

import asyncio
from typing import Any

import pytest
from rig.brokers import Vhost

from redrive.client import Client, Confirmed, Delivery
from redrive.core import (
    AckDelivery,
    Command,
    Decision,
    Defer,
    Pause,
    PlainMessage,
    PublishCopy,
    Raised,
    RejectDelivery,
    Report,
    RequeueDelivery,
    RetryAfter,
    Situation,
    Skip,
    count_retries,
    decide,
    describe_outcome,
)
from redrive.deploy import apply, inspect
from redrive.topology import Compiled, QueuePlan, compile_declaration, declare
from redrive.wire import Properties
from tests.unit.client.scenario import run_scenario

CLOCK_START_MS = 1_700_000_000_000
LONG = "2500ms"

QUEUES: dict[str, dict[str, Any]] = {
    "ladder": {"retry": ["200ms", "400ms", "1s"]},
    "e.tiered": {"retry": {"shape": "tiered", "delays": ["200ms", "400ms", "1s"]}},
    "wms.queue.wms-a": {"retry": {"shape": "service", "service": "wms-a", "delays": ["300ms"], "attempts": 5}},
    "loop": {"retry": {"shape": "per-queue", "delays": ["300ms"], "attempts": 4}},
    "loop.quorum": {"retry": {"shape": "quorum", "delays": ["300ms"]}},
    "again": {"retry": {"shape": "requeue", "dlx": "again.dlx"}},
}
NATIVE = {"native": {"retry": {"shape": "native", "min": "200ms", "max": "1s"}}}
ENDS = {
    "ladder": ("ladder.parked", 4),
    "e.tiered": ("e.dlq", 4),
    "wms.queue.wms-a": ("wms.dlq.wms-a", 5),
    "loop": ("loop.dlq", 4),
    "loop.quorum": ("loop.quorum.dlq", 4),
    "again": ("again.dlq", 4),
    "native": ("native.parked", 4),
}


def compiled(vhost: str, queues: dict[str, dict[str, Any]]) -> Compiled:
    bound = {
        name: {**queue, "from": {"e": ["tiered.*"] if name == "e.tiered" else [f"{name}.made"]}}
        for name, queue in queues.items()
    }
    return compile_declaration(declare(exchanges={"e": "topic"}, queues=bound), vhost=vhost)


class Consumption:
    """Runs one queue's handler, which always fails, and obeys the plan."""

    def __init__(self, client: Client, plan: QueuePlan) -> None:
        self.client, self.plan = client, plan
        self.runs: list[tuple[int, str, int]] = []

    async def take(self, delivery: Delivery) -> None:
        message = PlainMessage(
            queue=self.plan.name,
            exchange=delivery.exchange,
            routing_key=delivery.routing_key,
            redelivered=delivery.redelivered,
            headers=dict(delivery.properties.headers),
        )
        now_ms = CLOCK_START_MS + round(asyncio.get_running_loop().time() * 1000)
        retries = count_retries(message, self.plan.counted_by)
        not_before_ms = message.header("x-redrive-not-before") or 0
        report = Report(retries=retries, now_ms=now_ms)
        decision: Decision
        if self.plan.is_foreign(message):
            decision = Skip()
        elif not_before_ms > now_ms:
            decision = Defer(wait_ms=not_before_ms - now_ms, not_before_ms=not_before_ms)
        else:
            self.runs.append((retries + 1, self.plan.handler_routing_key(message), now_ms))
            outcome = Raised(RetryAfter(LONG) if retries == 2 else ValueError("no"))
            decision = decide(outcome, Situation(retries=retries, now_ms=now_ms), self.plan.policy)
            report = Report(retries=retries, now_ms=now_ms, failure=describe_outcome(outcome))
        for command in self.plan.commands(decision, message, report):
            await self._obey(command, delivery)

    async def _obey(self, command: Command, delivery: Delivery) -> None:
        match command:
            case PublishCopy():
                expiration = None if command.expiration_ms is None else str(command.expiration_ms)
                properties = delivery.properties.edit(
                    headers=command.set_headers, drop=command.drop_headers, expiration=expiration
                )
                publisher = await self.client.publisher()
                outcome = await publisher.publish(command.exchange, command.routing_key, delivery.body, properties)
                assert outcome == Confirmed()
            case Pause(pause_ms=pause_ms):
                await asyncio.sleep(pause_ms / 1000)
            case AckDelivery():
                delivery.ack()
            case RejectDelivery():
                delivery.reject(requeue=False)
            case RequeueDelivery(counted=True):
                delivery.reject(requeue=True)
            case RequeueDelivery():
                delivery.nack(requeue=True)


async def walk(vhost: Vhost, queues: dict[str, dict[str, Any]]) -> None:
    topology = compiled(vhost.name, queues)
    async with Client(vhost.amqp_url) as client, Client(vhost.amqp_url) as copies:
        await apply(client, topology.topology, await inspect(client, topology.topology))
        consumptions = {name: Consumption(copies, topology.queue(name)) for name in queues}
        for name, one in consumptions.items():
            await client.consume(name, one.take)
        publisher = await client.publisher()
        for name in queues:
            key = "tiered.made" if name == "e.tiered" else f"{name}.made"
            assert await publisher.publish("e", key, name.encode(), Properties.of(delivery_mode=2)) == Confirmed()
        channel = await client.channel()
        ends = {}
        for name in queues:
            dlq, _ = ENDS[name]
            got = None
            for _ in range(300):
                got = await channel.get_message(dlq, no_ack=True)
                if got is not None:
                    break
                await asyncio.sleep(0.05)
            assert got is not None, f"{name} is not in {dlq} after {len(consumptions[name].runs)} runs"
            ends[name] = (got.body, got.properties.headers)
        for name, one in consumptions.items():
            _, runs = ENDS[name]
            key = "tiered.made" if name == "e.tiered" else f"{name}.made"
            assert [(attempt, seen) for attempt, seen, _ in one.runs] == [(n, key) for n in range(1, runs + 1)], name
            assert one.runs[3][2] - one.runs[2][2] >= 2500, name
            body, headers = ends[name]
            assert body == name.encode()
            assert (headers["x-retry-count"], headers["x-original-routing-key"]) == (runs - 1, key)
            assert headers["x-original-exchange"] == "e"
        for queue in topology.topology.queues:
            assert (await channel.declare_queue(queue.name, passive=True)).messages_ready == 0, queue.name


@pytest.mark.live
def test_a_failing_message_runs_as_often_as_its_document_says_on_a_real_broker(vhost: Vhost) -> None:
    run_scenario(walk(vhost, QUEUES))


@pytest.mark.live(versions=("4.3",))
def test_a_failing_message_of_the_native_shape_is_delayed_and_counted_by_the_broker(vhost: Vhost) -> None:
    run_scenario(walk(vhost, NATIVE))
