"""Runs the documents' systems: their example files, the objects on the broker, services that record their runs.

The files are the examples unchanged. Where a document's delay is too long to wait for, a policy shortens the TTL on the
broker: names and arguments stay those of the document, and a queue's TTL is the shorter of the two.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
from rig.brokers import Vhost

from redrive import App, Message
from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from redrive.runtime import AppRunOptions
from redrive.topology import Compiled, compile_declaration, read_declaration
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import Held, drain
from tests.unit.client.scenario import Notes, run_scenario, wait_until

ROOT = Path(__file__).parents[3]
Fails = Callable[[str, Message], object]
"""What a handler does with a message of a name: raises, or returns what it answers."""


def document(name: str) -> Path:
    """The example that is a document's system."""
    return ROOT / "examples" / name / "redrive.yaml"


def compiled(text: str) -> Compiled:
    return compile_declaration(read_declaration(text, file="redrive.yaml"))


def redrive(vhost: Vhost, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command line, on this vhost."""
    environment = {**os.environ, "NO_COLOR": "1", "REDRIVE_URL": vhost.amqp_url}
    environment["REDRIVE_MANAGEMENT_URL"] = vhost.management_url
    return subprocess.run(
        [sys.executable, "-m", "redrive", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env=environment,
    )


def queues_of(vhost: Vhost) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every queue's type and its arguments, the type not among them, as the broker has them."""
    shown = vhost.management.get("queues", vhost.name)
    found = {}
    for one in shown:
        arguments = dict(one["arguments"] or {})
        kind = arguments.pop("x-queue-type", one.get("type", "classic"))
        found[one["name"]] = (str(kind), arguments)
    return found


def exchanges_of(vhost: Vhost) -> dict[str, str]:
    """Every declared exchange, with its type."""
    shown = vhost.management.get("exchanges", vhost.name)
    return {one["name"]: one["type"] for one in shown if one["name"] and not one["name"].startswith("amq.")}


def bindings_of(vhost: Vhost) -> set[tuple[str, str, str]]:
    """Source, destination and key of every binding but the default ones."""
    shown = vhost.management.get("bindings", vhost.name)
    return {(one["source"], one["destination"], one["routing_key"]) for one in shown if one["source"]}


def shorten_waits(vhost: Vhost, pattern: str, ttl_ms: int) -> None:
    """Shortens the TTL of these queues by a policy, whatever longer one they were declared with."""
    body = {"pattern": pattern, "definition": {"message-ttl": ttl_ms}, "apply-to": "queues", "priority": 1}
    vhost.management.put("policies", vhost.name, "shorter-waits", body=body)


def publish(url: str, exchange: str, key: str, *names: str, **properties: Any) -> None:
    """One message each by pika, its name as its id and in its body; unroutable ones fail."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in names:
            made = pika.BasicProperties(delivery_mode=2, message_id=name, content_type="application/json", **properties)
            channel.basic_publish(exchange, key, json.dumps({"id": name}).encode(), made, mandatory=True)
    finally:
        connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a handler, as it saw the message."""

    at_s: float
    attempt: int
    exchange: str
    routing_key: str
    headers: Mapping[str, Any]


@dataclass
class RecordingService:
    """A handler that records its runs and behaves as the test says."""

    fails: Fails
    now_s: Callable[[], float] = time.monotonic
    runs: dict[str, list[Run]] = field(default_factory=dict)

    async def handle(self, _body: bytes, message: Message) -> object:
        name = message.id or ""
        self.runs.setdefault(name, []).append(
            Run(
                at_s=self.now_s(),
                attempt=message.attempt,
                exchange=message.exchange,
                routing_key=message.routing_key,
                headers=dict(message.headers),
            )
        )
        return self.fails(name, message)

    def attempts(self, name: str) -> list[int]:
        return [one.attempt for one in self.runs.get(name, [])]

    def elapsed_s(self, name: str) -> list[float]:
        """When each run was, counted from the first."""
        runs = self.runs[name]
        return [one.at_s - runs[0].at_s for one in runs]


def run_services(
    url: str,
    source: str | Compiled,
    services: Mapping[str, RecordingService],
    publishing: Callable[[], None],
    is_over: Callable[[], bool],
    *,
    timeout_s: float,
    declare: bool = False,
) -> Notes:
    """Runs an app with these services, all of its settings left as they are, until it is over and everything decided is
    done."""
    notes = Notes()

    async def scenario() -> None:
        app = App(source)
        for queue, service in services.items():
            app.consumer(queue)(service.handle)
        async with running(app, url=url, observer=notes, declare=declare):
            await asyncio.to_thread(publishing)
            await wait_until(is_over, timeout_s=timeout_s)

    run_scenario(scenario(), timeout_s=timeout_s + 30)
    return notes


def run_in_virtual_time(
    name: str, profile: str, queue: str, exchange: str, key: str, *messages: str, fails: Fails, over: str
) -> tuple[RecordingService, dict[str, Held], float]:
    """A document's file as it is on the embedded broker, whose time jumps: the service's runs, what lies in the queue
    `over` when all messages do, and how long that took."""
    plan = compiled(document(name).read_text(encoding="utf-8"))
    services: list[RecordingService] = []
    took: list[float] = []
    held: dict[str, Held] = {}

    async def scenario() -> None:
        async with EmbeddedBroker(profile, time="automatic") as broker:
            await declare_missing(plan, lambda _: Client(broker.url))
            service = RecordingService(fails, now_s=lambda: broker.now_s)
            services.append(service)
            app = App(plan)
            app.consumer(queue)(service.handle)
            options = AppRunOptions(now_ms=lambda: round(broker.now_s * 1000), linger_s=0)
            started_s = broker.now_s
            async with running(app, url=broker.url, options=options):
                await asyncio.to_thread(publish, broker.url, exchange, key, *messages)
                await wait_until(lambda: broker.depths()[over] == len(messages), timeout_s=20)
                took.append(broker.now_s - started_s)
            found = await asyncio.to_thread(drain, broker.url, over)
            held.update({one.properties.message_id: one for one in found})

    run_scenario(scenario(), timeout_s=60)
    return services[0], held, took[0]


def assert_other_queues_empty(vhost: Vhost, *but: str) -> None:
    """Asserts that every queue but these is empty."""
    for queue in queues_of(vhost):
        if queue not in but:
            assert drain(vhost.amqp_url, queue) == [], f"something is left in {queue}"
