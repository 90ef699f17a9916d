"""Every shape with delays that a test can wait for, and a handler that does what a message says."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pika

from redrive import App, Message, Park, Requeue, RetryAfter
from redrive.client import Client
from redrive.topology import Compiled, compile_declaration, read_declaration
from redrive.wiring import declare_missing, running
from tests.unit.client.scenario import Notes, wait_until


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


LITERAL = {
    "tiered": replace(
        FLOWS["tiered"], text=FLOWS["tiered"].text.replace("shape: tiered,", "shape: tiered, park: reject,")
    ),
    "requeue": replace(
        FLOWS["requeue"], text=FLOWS["requeue"].text.replace("shape: requeue", "shape: requeue, park: reject")
    ),
}
