"""What a simulation shows is what an app on a real RabbitMQ does: the same runs, the same end, the same headers."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from rig.brokers import Broker, Vhost

from redrive import App, Message, wire
from redrive.client import Client, Confirmed, Publisher
from redrive.deploy import apply, inspect
from redrive.simulation import EndState, PublishRoute, Timeline, simulate
from redrive.simulation.script import SimulatedFailure
from redrive.topology import Compiled, compile_declaration, declare
from redrive.wiring import running

EXCHANGE = "shop.events"
DELAY = "300ms"
QUEUES: dict[str, dict[str, Any]] = {
    "ladder": {"retry": {"delays": [DELAY, "600ms"]}},
    "tiered": {"retry": {"shape": "tiered", "domain": "tiered", "delays": [DELAY, "600ms"]}},
    "service": {"retry": {"shape": "service", "service": "shop", "delays": [DELAY], "attempts": 5}},
    "service-quorum": {
        "type": "quorum",
        "retry": {"shape": "service", "service": "shop-quorum", "delays": [DELAY], "attempts": 5},
    },
    "per-queue": {"retry": {"shape": "per-queue", "delays": [DELAY], "attempts": 4}},
    "quorum": {"retry": {"shape": "quorum", "delays": [DELAY], "attempts": 5}},
    "requeue": {"retry": {"shape": "requeue", "attempts": 4, "dlx": "{exchange}.dead"}},
}
NATIVE: dict[str, dict[str, Any]] = {
    "native": {"retry": {"shape": "native", "min": DELAY, "max": "1s", "attempts": 4}},
}
COMPARED = (
    "x-retry-count",
    "x-final-retry-count",
    "x-final-error",
    "x-redrive-reason",
    "x-original-queue",
    "x-original-exchange",
    "x-original-routing-key",
)


def topology_for(profile: str) -> Compiled:
    queues = {**QUEUES, **(NATIVE if profile == "4.3" else {})}
    sources = {name: {"from": {EXCHANGE: [f"{name}.*"]}, **settings} for name, settings in queues.items()}
    return compile_declaration(declare(exchanges={EXCHANGE: "topic"}, queues=sources))


async def perform(
    vhost: Vhost, compiled: Compiled, timelines: dict[str, Timeline]
) -> tuple[Counter[str], dict[str, Any]]:
    """Runs of each queue's handler, and the headers of what lies in each queue's parking."""
    app = App(compiled)
    runs: Counter[str] = Counter()

    def add(queue: str) -> None:
        @app.consumer(queue)
        async def handle(body: bytes, message: Message) -> None:
            runs[queue] += 1
            raise SimulatedFailure("as the script says")

    parked: set[object] = set()
    done = asyncio.Event()

    class Notes:
        def note(self, event: str, /, **fields: object) -> None:
            if event == "runtime.decided" and fields["decision"] == "park":
                parked.add(fields["queue"])
                if parked == set(timelines):
                    done.set()

    for queue in timelines:
        add(queue)
    async with Client(vhost.amqp_url) as client:
        await apply(client, compiled.topology, await inspect(client, compiled.topology))
        publisher = await client.publisher()
        async with running(app, url=vhost.amqp_url, observer=Notes()):
            for queue in timelines:
                await publish(publisher, queue)
            await asyncio.wait_for(done.wait(), 60)
        channel = await client.channel()
        found = {}
        for queue, timeline in timelines.items():
            assert timeline.final_queue is not None
            got = await channel.get_message(timeline.final_queue)
            assert got is not None, f"{queue}: nothing in {timeline.final_queue}"
            assert await channel.get_message(timeline.final_queue) is None, f"{queue}: more than one copy"
            found[queue] = dict(wire.Properties(got.header).headers)
        return runs, found


async def publish(publisher: Publisher, queue: str) -> None:
    properties = wire.Properties.of(message_id=f"{queue}-1", delivery_mode=2)
    assert await publisher.publish(EXCHANGE, f"{queue}.example", b"{}", properties) == Confirmed()


def deaths(headers: Any) -> set[tuple[str, str, int]]:
    return {(one["queue"], one["reason"], one["count"]) for one in headers.get("x-death", ())}


@pytest.mark.live
def test_every_shape_parks_what_always_fails_as_it_was_simulated(vhost: Vhost, rabbit: Broker) -> None:
    profile = rabbit.profile
    compiled = topology_for(profile)
    timelines = {
        one.queue: simulate(
            compiled.topology,
            queue=one.queue,
            compiled=compiled,
            profile=profile,
            publish_to=PublishRoute(exchange=EXCHANGE, key=f"{one.queue}.example"),
        )[0]
        for one in compiled.retry_routes
    }
    assert {timeline.end_state for timeline in timelines.values()} == {EndState.PARKED}

    runs, found = asyncio.run(perform(vhost, compiled, timelines))

    assert runs == {queue: timeline.runs for queue, timeline in timelines.items()}
    for queue, timeline in timelines.items():
        simulated = {name: timeline.headers.get(name) for name in COMPARED}
        assert {name: found[queue].get(name) for name in COMPARED} == simulated, queue
        assert deaths(found[queue]) == deaths(timeline.headers), queue
