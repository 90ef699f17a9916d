"""event-bus with default settings while its service is down: what is declared happens, and nothing else."""

import asyncio
import itertools
import time

import pika
import pytest
from rig.brokers import Vhost

from redrive import App, Message
from redrive.client import Client
from redrive.core import Answered
from redrive.topology import compile_declaration, read_declaration
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import drain
from tests.unit.client.scenario import Notes, run_scenario, wait_until

DECLARED = "services: {wms-cincout: {retry: {delays: [200ms]}}}"
QUEUE, RETRY_QUEUE, DLQ = "wms.queue.wms-cincout", "wms.retry-queue.wms-cincout", "wms.dlq.wms-cincout"
MESSAGES, RUNS = 30, 11


def send(url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(MESSAGES):
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"m{number}")
        channel.basic_publish("wms.main-exchange", "stock.changed", b"{}", properties, mandatory=True)
    connection.close()


@pytest.mark.live
def test_503s_reach_the_dlq_after_ten_retries_each_as_long_as_declared(vhost: Vhost) -> None:
    runs: dict[str, list[float]] = {}
    notes = Notes()

    async def scenario() -> None:
        compiled = compile_declaration(read_declaration(DECLARED, file="redrive.yaml"))
        app = App(compiled)

        @app.consumer(QUEUE)
        async def handle(body: bytes, message: Message) -> Answered:
            runs.setdefault(message.id or "", []).append(time.monotonic())
            return Answered(status=503, detail="down")

        await declare_missing(compiled, lambda _: Client(vhost.amqp_url))
        async with running(app, url=vhost.amqp_url, observer=notes):
            await asyncio.to_thread(send, vhost.amqp_url)
            await wait_until(lambda: sum(map(len, runs.values())) >= MESSAGES * RUNS, timeout_s=40)

    run_scenario(scenario(), timeout_s=60)
    assert notes.count("runtime.paused") == 0
    assert {name: len(at) for name, at in runs.items()} == {f"m{number}": RUNS for number in range(MESSAGES)}
    assert all(later - earlier >= 0.199 for at in runs.values() for earlier, later in itertools.pairwise(at))
    dead = drain(vhost.amqp_url, DLQ)
    assert sorted(one.properties.message_id for one in dead) == sorted(runs)
    for one in dead:
        assert one.properties.headers["x-final-retry-count"] == 10
        assert one.properties.headers["x-final-status-code"] == 503
        rejected = [death for death in one.properties.headers["x-death"] if death["reason"] == "rejected"]
        assert [(death["queue"], death["count"]) for death in rejected] == [(QUEUE, 10)]
    assert drain(vhost.amqp_url, QUEUE) == drain(vhost.amqp_url, RETRY_QUEUE) == []
