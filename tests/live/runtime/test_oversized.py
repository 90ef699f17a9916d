"""Messages whose headers fill a frame: parked whole, at once, on every version; the queue goes on without them."""

import asyncio

import pika
import pytest
from rig.brokers import Vhost

from redrive import App, wire
from redrive.client import Client
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import drain
from tests.live.runtime.flows import EVERYWHERE, FLOWS, Flow, compiled, decisions, parking_of
from tests.unit.client.scenario import Notes, run_scenario, wait_until

LARGE = "x" * 130_950
BAD, GOOD, PREFETCH = 21, 10, 20


def send(url: str, flow: Flow) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(BAD):
            large = pika.BasicProperties(delivery_mode=2, message_id=f"bad{number}", headers={"large": LARGE})
            channel.basic_publish(flow.exchange, flow.key, b"bad%d" % number, large, mandatory=True)
        for number in range(GOOD):
            plain = pika.BasicProperties(delivery_mode=2, message_id=f"good{number}")
            channel.basic_publish(flow.exchange, flow.key, b"good%d" % number, plain, mandatory=True)
    finally:
        connection.close()


@pytest.mark.live
@pytest.mark.parametrize("shape", EVERYWHERE)
def test_they_stop_no_queue_and_are_parked_whole(vhost: Vhost, shape: str) -> None:
    flow, url, notes = FLOWS[shape], vhost.amqp_url, Notes()
    handled: list[bytes] = []

    async def scenario() -> None:
        app = App(compiled(flow))

        @app.consumer(flow.queue, prefetch=PREFETCH)
        async def handle(body: bytes) -> None:
            if body.startswith(b"bad"):
                raise ValueError("no")
            handled.append(body)

        await declare_missing(compiled(flow), lambda _: Client(url))
        async with running(app, url=url, observer=notes):
            await asyncio.to_thread(send, url, flow)
            await wait_until(lambda: len(handled) >= GOOD and decisions(notes)["park"] >= BAD, timeout_s=40)

    run_scenario(scenario(), timeout_s=60)
    assert sorted(handled) == sorted(b"good%d" % number for number in range(GOOD))
    assert notes.count("runtime.publish_failed") == 0
    dead = {one.properties.message_id: one for one in drain(url, parking_of(flow))}
    assert sorted(dead) == sorted(f"bad{number}" for number in range(BAD))
    for name, one in dead.items():
        assert one.properties.headers["x-redrive-envelope"] == 1
        assert one.properties.headers["x-final-error"] == "ValueError: no"
        inner = wire.unwrap_envelope(one.body)
        assert inner is not None
        assert (inner[0].header("large"), inner[0].message_id, inner[1]) == (LARGE, name, name.encode())
    assert drain(url, flow.queue) == []
