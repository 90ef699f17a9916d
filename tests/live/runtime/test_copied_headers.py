"""A plain client publishes new messages with every header we read, forged or copied from a retry: all seven shapes
handle each as the new message it is, on every version."""

import asyncio
from collections import defaultdict
from typing import Any

import pika
import pytest
from rig.brokers import Vhost

from redrive import App, Message
from redrive.client import Client
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import drain
from tests.live.runtime.flows import EVERYWHERE, FLOWS, Flow, compiled, decisions, parking_of
from tests.unit.client.scenario import Notes, run_scenario, wait_until
from tests.unit.runtime.forged_headers import forged

FIRST = "first"
REJECT_LOOPS = ("service", "per-queue", "quorum")
"""Where a reject is the retry: an x-death that a client sends straight to the queue can't be told from its own."""


def send(url: str, exchange: str, key: str, name: str, headers: dict[str, Any]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2, message_id=name, headers=headers)
        channel.basic_publish(exchange, key, name.encode(), properties, mandatory=True)
    finally:
        connection.close()


def play(vhost: Vhost, shape: str) -> None:
    flow: Flow = FLOWS[shape]
    url, ways = vhost.amqp_url, {"exchange": (flow.exchange, flow.key), "name": ("", flow.queue)}
    if shape == "tiered":
        ways["way back"] = (flow.exchange, "user.retry")
    sent: dict[str, tuple[str, str]] = {f"forged by {way}": route for way, route in ways.items()}
    copied = {f"copied by {way}": route for way, route in ways.items() if way != "name" or shape not in REJECT_LOOPS}
    runs: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    taken: list[dict[str, Any]] = []
    notes = Notes()

    async def scenario() -> None:
        app = App(compiled(flow))

        @app.consumer(flow.queue)
        async def handle(body: bytes, message: Message) -> None:
            name = body.decode()
            runs[name].append((message.attempt, message.exchange, message.routing_key))
            if name == FIRST and message.attempt == 2:
                taken.append(message.headers)
                return
            raise ValueError("no")

        await declare_missing(compiled(flow), lambda _: Client(url))
        async with running(app, url=url, observer=notes):
            await asyncio.to_thread(send, url, flow.exchange, flow.key, FIRST, {"mine": "kept"})
            for name, route in sent.items():
                await asyncio.to_thread(send, url, *route, name, forged(flow.queue))
            await wait_until(lambda: taken, timeout_s=20)
            sent.update(copied)
            for name, route in copied.items():
                await asyncio.to_thread(send, url, *route, name, taken[0])
            await wait_until(lambda: decisions(notes)["park"] >= len(sent), timeout_s=30)

    run_scenario(scenario(), timeout_s=70)
    assert decisions(notes)["skipped"] == 0
    expected = {name: [(n, *route) for n in range(1, flow.attempts + 1)] for name, route in sent.items()}
    assert {name: seen for name, seen in runs.items() if name != FIRST} == expected
    dead = {one.properties.message_id: one.properties.headers for one in drain(url, parking_of(flow))}
    assert dead.keys() == sent.keys()
    for name, headers in dead.items():
        assert headers["mine"] == "kept"
        assert headers["x-final-retry-count"] == flow.attempts - 1
        assert headers["x-original-queue"] == flow.queue
        assert (headers["x-original-exchange"], headers["x-original-routing-key"]) == sent[name]
        assert "x-redriven-id" not in headers
    assert drain(url, flow.queue) == []


@pytest.mark.live
@pytest.mark.parametrize("shape", EVERYWHERE)
def test_a_message_with_the_headers_of_another_is_handled_as_a_new_one(vhost: Vhost, shape: str) -> None:
    play(vhost, shape)


@pytest.mark.live(versions=("4.3",))
def test_native_handles_it_so_too(vhost: Vhost) -> None:
    play(vhost, "native")
