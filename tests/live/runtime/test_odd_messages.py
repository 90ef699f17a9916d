"""Strangers' headers that brokers pass on: an x-death that no broker wrote, on which 3.10 crashes when the message
dies, and headers nested deeper than anybody reads. Every message runs and is parked, and the broker lives.

If one of these fails on 3.10, its node may be broken for everything after it.
"""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from rig.brokers import Vhost

from redrive import App, Park
from redrive.client import Client, Confirmed
from redrive.wire import Properties
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import drain
from tests.live.runtime.flows import EVERYWHERE, FLOWS, LITERAL, Flow, compiled, parking_of
from tests.unit.client.scenario import Notes, run_scenario
from tests.unit.runtime.odd_messages import messages, unreadable

WITHOUT_RETRY = Flow(
    text="""
exchanges: {events: topic, dead: fanout}
queues:
  once: {from: {events: ["#"]}, retry: false, arguments: {x-dead-letter-exchange: dead}}
  once.dead: {from: dead, retry: false}
""",
    queue="once",
    attempts=1,
    exchange="events",
    key="thing.happened",
)
CASES = {
    **{name: FLOWS[name] for name in EVERYWHERE},
    **{f"{name}, park: reject": flow for name, flow in LITERAL.items()},
    "per-queue, quorum": replace(
        FLOWS["per-queue"], text=FLOWS["per-queue"].text.replace("retry: {", "type: quorum, retry: {")
    ),
    "none": WITHOUT_RETRY,
}


def play(vhost: Vhost, flow: Flow, sent: dict[str, Properties]) -> Counter[str]:
    """Every message fails until it is parked: how often each ran. A plain one that comes last shows that the broker has
    kept its dead-lettering."""
    url, runs, notes = vhost.amqp_url, Counter[str](), Notes()
    parking = "once.dead" if flow is WITHOUT_RETRY else parking_of(flow)
    parked: list[str] = []

    async def scenario() -> None:
        app = App(compiled(flow))

        @app.consumer(flow.queue)
        async def handle(body: bytes) -> None:
            runs[body.decode()] += 1
            raise Park("no") if "park: reject" in flow.text else ValueError("no")

        await declare_missing(compiled(flow), lambda _: Client(url))
        async with Client(url) as client, running(app, url=url, observer=notes):
            publisher, channel = await client.publisher(), await client.channel()

            async def send(name: str, properties: Properties) -> None:
                for way, route in {"exchange": (flow.exchange, flow.key), "name": ("", flow.queue)}.items():
                    assert await publisher.publish(*route, f"{name} by {way}".encode(), properties) == Confirmed()

            async def wait_parked(count: int, timeout_s: float) -> None:
                async with asyncio.timeout(timeout_s):
                    while (await channel.declare_queue(parking, passive=True)).messages_ready < count:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)

            for name, properties in sent.items():
                await send(name, properties)
            await wait_parked(2 * len(sent), 40)
            await send("plain", Properties.of(delivery_mode=2, message_id="plain"))
            await wait_parked(2 * len(sent) + 2, 20)

    run_scenario(scenario(), timeout_s=80)
    assert notes.count("runtime.failed") == 0
    parked += [one.body.decode() for one in drain(url, parking)]
    assert sorted(parked) == sorted(f"{name} by {way}" for name in [*sent, "plain"] for way in ("exchange", "name"))
    for queue in (one.name for one in compiled(flow).topology.queues):
        if queue != "freeflow.audit":
            assert drain(url, queue) == [], f"something is left in {queue}"
    return runs


@pytest.mark.live
@pytest.mark.parametrize("case", CASES)
def test_an_x_death_that_no_broker_wrote_never_dies_with_its_message(vhost: Vhost, case: str) -> None:
    flow = CASES[case]
    runs = play(vhost, flow, messages(flow.queue))
    if "park: reject" in flow.text:
        assert set(runs.values()) == {1}
        return
    assert {name for name, count in runs.items() if name.endswith("by exchange") and count < flow.attempts} == set()


@pytest.mark.live
@pytest.mark.parametrize("case", ["ladder", "tiered", "quorum", "requeue", "none"])
def test_headers_nested_too_deep_count_for_nothing(vhost: Vhost, case: str) -> None:
    flow = CASES[case]
    runs = play(vhost, flow, unreadable())
    assert {name for name, count in runs.items() if count < flow.attempts} == set()


@pytest.mark.live(versions=("4.3",))
def test_native_too(vhost: Vhost) -> None:
    flow = FLOWS["native"]
    runs = play(vhost, flow, {**messages(flow.queue), **unreadable()})
    assert set(runs.values()) == {flow.attempts}
