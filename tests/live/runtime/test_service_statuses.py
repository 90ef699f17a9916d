"""Shape `service`, its document's table of statuses line by line: where each answer sends a message, and what a dead
one says."""

import asyncio
import io
import itertools
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pika
import pytest
from rig.brokers import Vhost

from redrive import App, Message
from redrive.client import Client
from redrive.core import Answered
from redrive.telemetry import Level, Log, Telemetry
from redrive.topology import Compiled, compile_declaration, read_declaration
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import Held, drain
from tests.unit.client.scenario import run_scenario, wait_until

MAIN = "wms.main-exchange"
QUEUE, RETRY_QUEUE, DLQ = "wms.queue.wms-cincout", "wms.retry-queue.wms-cincout", "wms.dlq.wms-cincout"
NEIGHBOUR = "wms.queue.wms-stock"
KEY = "stock.changed"
TAG = "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"
SLACK_S = 1.0
"""What a busy machine may take longer than it should."""


class ConsumerBug(Exception):
    """A handler's own error, which has no status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the handler, as it saw the message."""

    at_s: float
    attempt: int
    routing_key: str
    deaths: dict[tuple[str, str], int]


@dataclass
class Events:
    """A service whose answers are scripted, the last one repeated, and what it was asked; everything it logs."""

    scripts: Mapping[str, list[int | None]]
    runs: dict[str, list[Run]] = field(default_factory=dict)
    log: io.StringIO = field(default_factory=io.StringIO)

    async def handle(self, _body: bytes, message: Message) -> Answered:
        name = message.id or ""
        deaths = {(one["queue"], one["reason"]): one["count"] for one in message.header("x-death", ())}
        mine = self.runs.setdefault(name, [])
        mine.append(Run(at_s=time.time(), attempt=message.attempt, routing_key=message.routing_key, deaths=deaths))
        script = self.scripts[name]
        status = script[min(len(mine), len(script)) - 1]
        if status is None:
            raise ConsumerBug(f"no {name}")
        return Answered(status=status, detail=f"said {status}")

    def attempts(self, name: str) -> list[int]:
        return [run.attempt for run in self.runs.get(name, [])]

    def pauses_s(self, name: str) -> list[float]:
        runs = self.runs[name]
        return [later.at_s - earlier.at_s for earlier, later in itertools.pairwise(runs)]

    def decided(self, name: str) -> list[dict[str, Any]]:
        """The lines of the log that say what became of a message."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line.get("messageId") == name and "decision" in line]

    def statuses(self, name: str) -> Counter[str]:
        """In the document's words. Not in order: a copy may have run before its confirm, and so its line, is there."""
        return Counter(line["consumerStatus"] for line in self.decided(name))


def declared(delay: str, **options: object) -> Compiled:
    """Two services behind one fanout exchange; nobody consumes the second."""
    text = json.dumps({"services": {"wms-cincout": {"retry": {"delays": [delay], **options}}, "wms-stock": {}}})
    return compile_declaration(read_declaration(text, file="redrive.yaml"))


def play(
    vhost: Vhost,
    compiled: Compiled,
    scripts: Mapping[str, list[int | None]],
    *,
    bodies: Mapping[str, bytes] | None = None,
    properties: Mapping[str, dict[str, Any]] | None = None,
    runs: int,
    crashes_max: int | None = 3,
) -> Events:
    """Publishes a message of each name to the main exchange, until the handler has run so often in all, then stops."""
    events = Events(scripts)
    log = Log(events.log, level=Level.DEBUG, form="json")

    async def scenario() -> None:
        app = App(compiled)
        app.consumer(QUEUE, pause_after=None, crashes_max=crashes_max)(events.handle)
        await declare_missing(compiled, lambda _: Client(vhost.amqp_url))
        telemetry = Telemetry(log)
        async with running(app, url=vhost.amqp_url, observer=telemetry):
            await asyncio.to_thread(send, vhost.amqp_url, scripts, bodies or {}, properties or {})
            await wait_until(lambda: sum(map(len, events.runs.values())) >= runs, timeout_s=25)
        telemetry.close()

    run_scenario(scenario(), timeout_s=60)
    assert sum(map(len, events.runs.values())) == runs
    neighbours = [one.properties.message_id for one in drain(vhost.amqp_url, NEIGHBOUR)]
    assert sorted(neighbours) == sorted(scripts), "the other service has each message once: retries are not fanned out"
    assert drain(vhost.amqp_url, QUEUE) == drain(vhost.amqp_url, RETRY_QUEUE) == []
    return events


def send(
    url: str, names: Mapping[str, object], bodies: Mapping[str, bytes], properties: Mapping[str, dict[str, Any]]
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in names:
            made = pika.BasicProperties(delivery_mode=2, message_id=name, **properties.get(name, {}))
            channel.basic_publish(MAIN, KEY, bodies.get(name, b"{}"), made, mandatory=True)
    finally:
        connection.close()


def dead(vhost: Vhost) -> dict[str, Held]:
    return {one.properties.message_id: one for one in drain(vhost.amqp_url, DLQ)}


def deaths_of(one: Held) -> dict[tuple[str, str], int]:
    return {(death["queue"], death["reason"]): death["count"] for death in one.properties.headers["x-death"]}


@pytest.mark.live
def test_a_2xx_ends_it_and_what_is_transient_comes_back_through_the_retry_queue(vhost: Vhost) -> None:
    transient: dict[str, list[int | None]] = {
        "rate-limit": [429, 200],
        "lock": [409, 200],
        "timeout": [408, 200],
        "server": [500, 204],
        "gateway": [503, 204],
        "exception": [None, 200],
    }
    scripts: dict[str, list[int | None]] = {"ok": [200], "no-content": [204], "accepted": [202], **transient}
    events = play(vhost, declared("300ms"), scripts, runs=3 + 2 * len(transient))
    assert dead(vhost) == {}
    for name in ("ok", "no-content", "accepted"):
        assert (events.attempts(name), events.statuses(name)) == ([1], {"ACK": 1})
    for name in transient:
        assert (events.attempts(name), events.statuses(name)) == ([1, 2], {"DROP": 1, "ACK": 1})
        first, second = events.runs[name]
        assert first.deaths == {}
        assert second.deaths == {(QUEUE, "rejected"): 1, (RETRY_QUEUE, "expired"): 1}
        assert second.routing_key == KEY
        assert 0.29 <= second.at_s - first.at_s < 0.3 + SLACK_S


@pytest.mark.live
@pytest.mark.parametrize("crashes_max", [3, None], ids=["by-copy", "by-nack"])
def test_a_425_waits_here_goes_back_to_its_queue_and_counts_no_attempt(vhost: Vhost, crashes_max: int | None) -> None:
    early = [f"early-{number}" for number in range(6)]
    scripts: dict[str, list[int | None]] = {"late": [503, 425, 200], **{name: [425, 425, 200] for name in early}}
    # One without a timestamp goes back by a copy in any case, which says when it was first seen.
    stamped = {name: {"timestamp": int(time.time())} for name in scripts}
    events = play(vhost, declared("100ms"), scripts, properties=stamped, runs=3 * 7, crashes_max=crashes_max)
    assert dead(vhost) == {}
    pauses_s = [events.pauses_s("late")[1]]
    for name in early:
        assert events.attempts(name) == [1, 1, 1]
        assert [run.deaths for run in events.runs[name]] == [{}, {}, {}], "it has never been in the retry queue"
        assert events.statuses(name) == {"REQUEUE": 2, "ACK": 1}
        pauses_s += events.pauses_s(name)
    assert events.attempts("late") == [1, 2, 2]
    assert events.statuses("late") == {"DROP": 1, "REQUEUE": 1, "ACK": 1}
    once = {(QUEUE, "rejected"): 1, (RETRY_QUEUE, "expired"): 1}
    # A copy begins a new x-death and carries the count; the document's nack leaves it as it is.
    assert [run.deaths for run in events.runs["late"]] == [{}, once, once if crashes_max is None else {}]
    # Thirteen of them: were they not random, they would hardly lie so far apart.
    assert 0.49 <= min(pauses_s) < max(pauses_s) - 0.1
    assert max(pauses_s) < 1.5 + SLACK_S


@pytest.mark.live
def test_process_after_delay_ms_holds_a_message_and_costs_it_no_attempt(vhost: Vhost) -> None:
    published_s = time.time()
    scripts: dict[str, list[int | None]] = {"in-header": [200], "in-body": [200], "stamped": [200], "over": [200]}
    events = play(
        vhost,
        declared("100ms"),
        scripts,
        bodies={"in-body": b'{"processAfterDelayMs": 1200}'},
        properties={
            "in-header": {"headers": {"processAfterDelayMs": 1200}},
            "stamped": {"headers": {"processAfterDelayMs": 2500}, "timestamp": int(published_s)},
            "over": {"headers": {"processAfterDelayMs": 60_000}, "timestamp": int(published_s) - 61},
        },
        runs=4,
    )
    assert dead(vhost) == {}
    for name in scripts:
        assert events.attempts(name) == [1]
        assert events.runs[name][0].deaths == {}
        statuses = events.statuses(name)
        assert (statuses["ACK"], statuses["DROP"], statuses["REQUEUE"] > 0) == (1, 0, name != "over")
    # It is looked at again after 0.5 to 1.5 s each time.
    for name in ("in-header", "in-body"):
        assert published_s + 1.2 <= events.runs[name][0].at_s < published_s + 2.7 + 2 * SLACK_S
    assert int(published_s) + 2.5 <= events.runs["stamped"][0].at_s < published_s + 4.0 + 2 * SLACK_S
    assert events.runs["over"][0].at_s < min(events.runs[name][0].at_s for name in scripts if name != "over")


@pytest.mark.live
def test_another_4xx_is_dead_after_one_run(vhost: Vhost) -> None:
    scripts: dict[str, list[int | None]] = {"bad": [400], "unknown": [404], "invalid": [422]}
    events = play(vhost, declared("100ms"), scripts, runs=3)
    held = dead(vhost)
    assert set(held) == set(scripts)
    for name, script in scripts.items():
        assert events.attempts(name) == [1]
        headers = held[name].properties.headers
        assert headers["x-final-status-code"] == script[0]
        assert headers["x-final-retry-count"] == 0
        assert headers["x-redrive-reason"] == "status"
        assert "x-death" not in headers
    assert TAG not in events.log.getvalue()


@pytest.mark.live
def test_another_4xx_is_dead_lettered_like_any_failure_in_the_documents_own_form(vhost: Vhost) -> None:
    events = play(vhost, declared("100ms", other_4xx="retry", attempts=3), {"bad": [400]}, runs=3)
    assert (events.attempts("bad"), events.statuses("bad")) == ([1, 2, 3], {"DROP": 2, "ACK": 1})
    held = dead(vhost)
    assert set(held) == {"bad"}
    assert held["bad"].properties.headers["x-final-status-code"] == 400
    assert deaths_of(held["bad"]) == {(QUEUE, "rejected"): 2, (RETRY_QUEUE, "expired"): 2}


@pytest.mark.live
def test_after_ten_retries_it_is_moved_to_the_dlq_with_what_is_known_of_its_end(vhost: Vhost) -> None:
    scripts: dict[str, list[int | None]] = {"answered": [503], "raised": [None], "limited": [500, 429]}
    began_ms = int(time.time() * 1000)
    events = play(vhost, declared("50ms"), scripts, runs=3 * 11)
    held = dead(vhost)
    assert set(held) == set(scripts)
    errors = {"answered": "said 503", "raised": "ConsumerBug: no raised", "limited": "said 429"}
    for name, one in held.items():
        assert events.attempts(name) == list(range(1, 12))
        headers = one.properties.headers
        assert headers["x-original-queue"] == QUEUE
        assert headers["x-final-retry-count"] == 10
        assert errors[name] in headers["x-final-error"]
        assert headers.get("x-final-status-code") == {"answered": 503, "raised": None, "limited": 429}[name]
        assert deaths_of(one) == {(QUEUE, "rejected"): 10, (RETRY_QUEUE, "expired"): 10}
        assert headers["x-original-exchange"] == MAIN
        assert headers["x-original-routing-key"] == KEY
        assert headers["x-redrive-reason"] == "attempts"
        assert headers["x-redrive-parked-at"] >= began_ms
        assert (one.body, one.properties.delivery_mode) == (b"{}", 2)
        assert events.statuses(name) == {"DROP": 10, "ACK": 1}
        tags = [(line["decision"], line.get("tag")) for line in events.decided(name)]
        assert Counter(tags) == {("retry", None): 10, ("park", TAG): 1}
