"""Every shape, end to end, on every version: each message runs as often as it should and ends where it should."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pika
import pytest
from rig.brokers import Vhost

from redrive import App, Message, Park, Requeue, RetryAfter
from redrive.client import Client
from redrive.topology import Compiled, compile_declaration, read_declaration
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import Held, drain
from tests.unit.client.scenario import Notes, run_scenario, wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A shape with delays a test can wait for: its declaration, how a message comes in, what it says in the end."""

    text: str
    queue: str
    attempts: int
    exchange: str = ""
    key: str = ""


FLOWS = {
    "ladder": Flow(
        text="""
exchanges: {domain.events: topic}
queues: {orders: {from: {domain.events: ["orders.#"]}, retry: [200ms, 400ms]}}
""",
        queue="orders",
        attempts=3,
        exchange="domain.events",
        key="orders.placed",
    ),
    "tiered": Flow(
        text="""
exchanges: {freeflow.events: topic}
defaults: {retry: {shape: tiered, exchange: freeflow.events, delays: [200ms, 300ms, 400ms],
                   wait: "freeflow.{domain}.retry.{delay}"}}
queues:
  freeflow.user: {from: {freeflow.events: ["user.*"]}, retry: {domain: user}}
  freeflow.audit: {from: {freeflow.events: ["#"]}, retry: {domain: audit}}
""",
        queue="freeflow.user",
        attempts=4,
        exchange="freeflow.events",
        key="user.created",
    ),
    "service": Flow(
        text="services: {wms-cincout: {retry: {delays: [100ms]}}}",
        queue="wms.queue.wms-cincout",
        attempts=11,
        exchange="wms.main-exchange",
        key="stock.changed",
    ),
    "per-queue": Flow(
        text="""
exchanges: {domain.events: topic}
queues:
  q.thumbnail: {from: {domain.events: ["files.validated.*"]}, retry: {shape: per-queue, delays: [200ms], attempts: 3}}
""",
        queue="q.thumbnail",
        attempts=3,
        exchange="domain.events",
        key="files.validated.png",
    ),
    "quorum": Flow(
        text="""
exchanges: {events: topic}
queues: {my-service.events: {from: {events: ["#"]}, retry: {shape: quorum, delays: [200ms]}}}
""",
        queue="my-service.events",
        attempts=4,
        exchange="events",
        key="thing.happened",
    ),
    "requeue": Flow(
        text="""
exchanges: {bookly.events: topic}
queues: {bookings: {from: {bookly.events: ["booking.*"]}, retry: {shape: requeue}}}
""",
        queue="bookings",
        attempts=4,
        exchange="bookly.events",
        key="booking.made",
    ),
    "native": Flow(
        text="""
exchanges: {domain.events: topic}
queues: {orders: {from: {domain.events: ["orders.#"]}, retry: {shape: native, min: 100ms, max: 300ms}}}
""",
        queue="orders",
        attempts=4,
        exchange="domain.events",
        key="orders.placed",
    ),
}
EVERYWHERE = [name for name in FLOWS if name != "native"]


def compiled(flow: Flow) -> Compiled:
    return compile_declaration(read_declaration(flow.text, file="redrive.yaml"))


def parking_of(flow: Flow) -> str:
    routes = compiled(flow).queue(flow.queue).routes
    assert routes is not None
    return routes.parking.queue


def send(url: str, flow: Flow, kinds: list[str]) -> None:
    """One message of each kind, its kind in its body and its id."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        for kind in kinds:
            body = b"{" if kind == "broken" else json.dumps({"kind": kind}).encode()
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=kind, correlation_id="flow", content_type="application/json"
            )
            channel.basic_publish(flow.exchange, flow.key, body, properties, mandatory=True)
    finally:
        connection.close()


class Recorder:
    """A handler that does what a message says, and remembers every run."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, int]] = []
        self.keys: set[tuple[str, str]] = set()

    async def handle(self, body: dict[str, str], message: Message) -> None:
        kind = body["kind"]
        seen = sum(1 for one, _ in self.runs if one == kind)
        self.runs.append((kind, message.attempt))
        self.keys.add((message.exchange, message.routing_key))
        if kind.startswith("fail"):
            raise ValueError(f"no {kind}")
        if kind.startswith("once") and message.attempt == 1:
            raise ConnectionError("gone")
        if kind == "park":
            raise Park("not ours")
        if kind == "later" and message.attempt == 1:
            raise RetryAfter(1.3)
        if kind == "requeue" and seen < 2:
            raise Requeue(0.05)

    def attempts(self, kind: str) -> list[int]:
        return [attempt for one, attempt in self.runs if one == kind]


async def play(url: str, flow: Flow, kinds: list[str], ended: Callable[[Counter[str]], bool]) -> tuple[Recorder, Notes]:
    recorder, notes = Recorder(), Notes()
    app = App(compiled(flow))
    app.consumer(flow.queue)(recorder.handle)
    await declare_missing(compiled(flow), lambda _: Client(url))
    async with running(app, url=url, observer=notes):
        await asyncio.to_thread(send, url, flow, kinds)
        await wait_until(lambda: ended(decisions(notes)), timeout_s=25)
    return recorder, notes


def decisions(notes: Notes) -> Counter[str]:
    return Counter(str(fields["decision"]) for name, fields in notes.heard if name == "runtime.decided")


def check_flow(vhost: Vhost, name: str) -> None:
    flow = FLOWS[name]
    kinds = ["fail", "once", "fine", "park", "later", "broken", "requeue"]
    results: list[tuple[Recorder, Notes]] = []

    async def scenario() -> None:
        # Four are done in the end, three are dead.
        results.append(await play(vhost.amqp_url, flow, kinds, lambda seen: (seen["ack"], seen["park"]) == (4, 3)))

    run_scenario(scenario(), timeout_s=60)
    recorder, notes = results[0]
    assert recorder.attempts("fail") == list(range(1, flow.attempts + 1))
    assert recorder.attempts("once") == [1, 2]
    assert recorder.attempts("fine") == [1]
    assert recorder.attempts("park") == [1]
    assert recorder.attempts("later") == [1, 2]
    assert recorder.attempts("requeue") == [1, 1, 1]
    assert recorder.attempts("broken") == []
    assert recorder.keys == {(flow.exchange, flow.key)}
    check_parked(vhost, flow)
    for queue in (one.name for one in compiled(flow).topology.queues):
        if not (name == "tiered" and queue == "freeflow.audit"):
            assert drain(vhost.amqp_url, queue) == [], f"something is left in {queue}"
    tags = {fields.get("tag") for event, fields in notes.heard if event == "runtime.decided"}
    assert ("RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED" in tags) == (name == "service")


def check_parked(vhost: Vhost, flow: Flow) -> None:
    held: dict[str, Held] = {one.properties.message_id: one for one in drain(vhost.amqp_url, parking_of(flow))}
    assert set(held) == {"fail", "park", "broken"}
    reasons = {"fail": "attempts", "park": "park", "broken": "undecodable"}
    for kind, one in held.items():
        headers = one.properties.headers
        retries = flow.attempts - 1 if kind == "fail" else 0
        assert (headers["x-retry-count"], headers["x-final-retry-count"]) == (retries, retries)
        assert headers["x-redrive-reason"] == reasons[kind]
        assert headers["x-original-queue"] == flow.queue
        assert headers["x-original-exchange"] == flow.exchange
        assert headers["x-original-routing-key"] == flow.key
        assert one.properties.correlation_id == "flow"
        assert one.properties.delivery_mode == 2
        assert one.body == (b"{" if kind == "broken" else json.dumps({"kind": kind}).encode())
    assert held["fail"].properties.headers["x-final-error"] == "ValueError: no fail"
    assert held["park"].properties.headers["x-final-error"] == "Park: not ours"


@pytest.mark.live
@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_shape_runs_retries_and_parks_as_declared(vhost: Vhost, name: str) -> None:
    check_flow(vhost, name)


@pytest.mark.live(versions=("4.3",))
def test_native_runs_retries_and_parks_as_declared(vhost: Vhost) -> None:
    check_flow(vhost, "native")


@pytest.mark.live
def test_another_queues_tiered_retry_is_acked_unhandled_and_counted_as_skipped(vhost: Vhost) -> None:
    flow = FLOWS["tiered"]
    audited: list[str] = []
    notes = Notes()

    async def scenario() -> None:
        recorder = Recorder()
        app = App(compiled(flow))
        app.consumer("freeflow.user")(recorder.handle)

        @app.consumer("freeflow.audit")
        async def audit(body: bytes, message: Message) -> None:
            audited.append(message.routing_key)

        await declare_missing(compiled(flow), lambda _: Client(vhost.amqp_url))
        async with running(app, url=vhost.amqp_url, observer=notes):
            await asyncio.to_thread(send, vhost.amqp_url, flow, ["fail", "once"])
            await wait_until(lambda: decisions(notes)["park"] == 1 and decisions(notes)["skipped"] == 4, timeout_s=25)

    run_scenario(scenario(), timeout_s=60)
    assert audited == ["user.created", "user.created"]
    assert decisions(notes) == {"ack": 3, "retry": 4, "park": 1, "skipped": 4}


@pytest.mark.live
@pytest.mark.parametrize("name", ["ladder", "service", "requeue"])
def test_three_consumers_on_one_queue_make_exactly_as_many_attempts_as_one_would(vhost: Vhost, name: str) -> None:
    flow = FLOWS[name]
    kinds = [f"fail{number}" for number in range(30)]
    runs: Counter[str] = Counter()

    async def scenario() -> None:
        notes = Notes()
        await declare_missing(compiled(flow), lambda _: Client(vhost.amqp_url))
        async with AsyncExitStack() as stack:
            recorders = [Recorder() for _ in range(3)]
            for recorder in recorders:
                app = App(compiled(flow))
                app.consumer(flow.queue, prefetch=5, pause_after=None)(recorder.handle)
                await stack.enter_async_context(running(app, url=vhost.amqp_url, observer=notes))
            await asyncio.to_thread(send, vhost.amqp_url, flow, kinds)
            await wait_until(lambda: decisions(notes)["park"] == 30, timeout_s=30)
            for recorder in recorders:
                runs.update(kind for kind, _ in recorder.runs)
        assert decisions(notes) == {"retry": 30 * (flow.attempts - 1), "park": 30}

    run_scenario(scenario(), timeout_s=60)
    assert runs == dict.fromkeys(kinds, flow.attempts)
    parked = drain(vhost.amqp_url, parking_of(flow))
    assert sorted(one.properties.message_id for one in parked) == sorted(kinds)
    assert {one.properties.headers["x-final-retry-count"] for one in parked} == {flow.attempts - 1}
