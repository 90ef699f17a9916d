"""Bookly: three immediate requeues, then {queue}.dlq through {exchange}.dlx; its runbook, with events that auto-retry
gave up; and a queue that was there before it had a dead-letter exchange."""

import asyncio
import json
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from rig.brokers import Vhost
from rig.dlq_operator import Operator
from rig.serve_process import Served, serving

from redrive import App
from redrive.wiring import running
from tests.live.admin.bookly_runbook import LIST, RESOLVE, RETRY, STATS, by_event
from tests.live.client.accounts import drain
from tests.live.documents.document_apps import (
    RecordingService,
    assert_other_queues_empty,
    bindings_of,
    document,
    exchanges_of,
    publish,
    queues_of,
    redrive,
    run_services,
)

FILE = str(document("bookly"))
EXCHANGE, DLX, KEY = "bookly.events", "bookly.events.dlx", "availability.checked"
QUEUE, DLQ = "availability", "availability.dlq"
DEAD_LETTERS = {"x-dead-letter-exchange": DLX, "x-dead-letter-routing-key": DLQ}


def fail(name: str, _message: object) -> None:
    raise TimeoutError(f"the hotel is away for {name}")


@contextmanager
def failing(url: str, service: RecordingService) -> Iterator[None]:
    """A consumer whose handler always fails, at work beside the test."""
    stop = threading.Event()
    app = App(FILE)
    app.consumer(QUEUE)(service.handle)

    async def run() -> None:
        async with running(app, url=url):
            await asyncio.to_thread(stop.wait, 300)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=60)


@pytest.mark.live
def test_the_topology_and_three_requeues_are_the_documents(vhost: Vhost) -> None:
    assert redrive(vhost, "apply", FILE, "--yes").returncode == 0
    queues = queues_of(vhost)
    assert queues[QUEUE] == ("classic", DEAD_LETTERS)
    assert queues[DLQ] == ("classic", {})
    assert exchanges_of(vhost) == {EXCHANGE: "topic", DLX: "topic"}
    assert {(EXCHANGE, QUEUE, "availability.#"), (DLX, DLQ, DLQ)} <= bindings_of(vhost)

    service = RecordingService(fail)
    run_services(
        vhost.amqp_url,
        FILE,
        {QUEUE: service},
        lambda: publish(vhost.amqp_url, EXCHANGE, KEY, "poison"),
        lambda: len(service.runs.get("poison", ())) == 4,
        timeout_s=20,
    )
    assert service.attempts("poison") == [1, 2, 3, 4]
    assert service.elapsed_s("poison")[-1] < 5, "at once"
    (dead,) = drain(vhost.amqp_url, DLQ)
    assert (dead.exchange, dead.routing_key) == (DLX, DLQ)
    assert dead.properties.headers["x-final-retry-count"] == 3
    assert dead.properties.headers["x-original-routing-key"] == KEY
    assert_other_queues_empty(vhost)


@pytest.mark.live
def test_the_runbook_with_events_that_auto_retry_gave_up(vhost: Vhost, tmp_path: Path) -> None:
    """On 4.3 at the document's own pace, a look every 30 s; on the others a look every second."""
    operator = Operator(vhost, tmp_path)
    operator.fine("apply", FILE, "--yes")
    operator.publish(EXCHANGE, KEY, "a", "b")
    service = RecordingService(fail)
    is_paced = vhost.label == "4.3"
    flags = [] if is_paced else ["--no-auto-retry"]
    with failing(vhost.amqp_url, service), serving(tmp_path, operator.environment, FILE, *flags) as served:
        with looking(operator, is_wanted=not is_paced):
            check_given_up(served, until_s=150)
        assert {name: service.attempts(name) for name in "ab"} == {name: [1, 2, 3, 4] * 4 for name in "ab"}
        # A person's retry begins anew: the event fails again, and is no lost case at once.
        entries = by_event(served)
        retried = served.sh(RETRY.replace("{dlqId}", entries["a"]["id"]))
        assert (retried.status, retried.json["id"]) == (202, entries["a"]["id"]), retried.text
        served.wait(f"/dlq/{entries['a']['id']}", lambda told: bool(told["status"] == "PENDING"))
        again = by_event(served)["a"]
        assert (again["retryCount"], again["nextRetryAt"] is not None) == (4, True)
        assert again["topic"] == KEY

        resolved = served.sh(RESOLVE.replace("{dlqId}", entries["b"]["id"]).replace("\\\n", ""))
        shown = {name: resolved.json[name] for name in ("status", "resolvedBy", "resolution")}
        assert shown == {"status": "RESOLVED", "resolvedBy": "admin", "resolution": "Data corrected manually"}
        reopened = served.sh(RETRY.replace("{dlqId}", entries["b"]["id"]))
        assert reopened.status == 202, reopened.text
        served.wait(f"/dlq/{entries['b']['id']}", lambda told: told["status"] == "PENDING" and told["retryCount"] == 4)
        for one in entries.values():
            assert served.ask(f"/dlq/{one['id']}", "-X", "DELETE").status == 204
        assert served.sh(STATS).json["total"] == 0
        assert served.stop() == 0
    assert_other_queues_empty(vhost)


@contextmanager
def looking(operator: Operator, *, is_wanted: bool) -> Iterator[None]:
    """Auto-retry that looks every second, as a process of its own."""
    if not is_wanted:
        yield
        return
    command = [sys.executable, "-m", "redrive", "dlq", "auto-retry", "run", "--every", "1s", "--file", FILE]
    process = subprocess.Popen(command, env=operator.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def check_given_up(served: Served, *, until_s: float) -> None:
    started_s = time.monotonic()
    while True:
        listed = served.sh(LIST)
        assert listed.status == 200
        items = listed.json["items"]
        if len(items) == 2:
            break
        assert time.monotonic() < started_s + until_s, served.sh(STATS).text
        time.sleep(0.5)
    for one in items:
        assert (one["status"], one["retryCount"], one["topic"]) == ("FAILED", 3, KEY)
        assert one["service"] == "availability-service"
        assert one["error"] == f"TimeoutError: the hotel is away for {one['eventId']}"
    stats = served.sh(STATS).json
    assert stats["byStatus"]["FAILED"] == 2
    assert stats["byTopic"] == {KEY: {"FAILED": 2}}


@pytest.mark.live
@pytest.mark.parametrize("declare", [False, True], ids=["run", "run --apply"])
def test_a_queue_that_was_there_without_its_dead_letter_exchange_is_used_as_it_is(vhost: Vhost, declare: bool) -> None:
    """CloudAMQP refuses to change it, says the document; RabbitMQ does so everywhere."""
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.basic_publish("", QUEUE, b"{}", pika.BasicProperties(message_id="old", delivery_mode=2))
    command = ""
    if not declare:
        applied = redrive(vhost, "apply", FILE, "--yes", "--format", "json")
        assert applied.returncode == 1, applied.stderr
        told = json.loads(applied.stdout)
        (left,) = told["left_as_they_are"]
        assert (left["queue"], left["argument"], told["applied"]) == (QUEUE, "x-dead-letter-exchange", True)
        command = left["migrate_with"]
        assert queues_of(vhost)[DLQ] == ("classic", {})

    service = RecordingService(fail)
    notes = run_services(
        vhost.amqp_url,
        FILE,
        {QUEUE: service},
        lambda: publish(vhost.amqp_url, "", QUEUE, "new"),
        lambda: len(service.runs.get("new", ())) == len(service.runs.get("old", ())) == 4,
        timeout_s=20,
        declare=declare,
    )
    (warning,) = [fields for name, fields in notes.heard if name == "runtime.queue_differs"]
    assert warning["queue"] == QUEUE
    assert str(warning["difference"]).startswith("x-dead-letter-exchange is not set")
    assert {one.properties.message_id for one in drain(vhost.amqp_url, DLQ)} == {"old", "new"}
    assert queues_of(vhost)[QUEUE] == ("classic", {})

    assert command in ("", warning["migrate_with"])
    migrate(vhost, str(warning["migrate_with"]))
    channel.basic_publish("", QUEUE, b"{}", pika.BasicProperties(message_id="rejected", delivery_mode=2))
    method, _, _ = channel.basic_get(QUEUE)
    channel.basic_reject(method.delivery_tag, requeue=False)
    connection.close()
    (dead,) = drain(vhost.amqp_url, DLQ)
    assert dead.properties.message_id == "rejected"
    assert_other_queues_empty(vhost)


def migrate(vhost: Vhost, command: str) -> None:
    """Does what the line that was printed does, through the management API."""
    words = shlex.split(command)
    assert words[:2] == ["rabbitmqctl", "set_policy"]
    at = {words[index]: words[index + 1] for index in (2, 4)}
    assert at == {"-p": vhost.name, "--apply-to": "queues"}
    name, pattern, definition = words[6:]
    body: dict[str, Any] = {"pattern": pattern, "definition": json.loads(definition), "apply-to": "queues"}
    vhost.management.put("policies", vhost.name, name, body=body)
