"""What real brokers write on a message that fails again and again, beside the number of runs that truly failed.

Each scenario plays one message's life with pika, classic and quorum, and notes every delivery as a consumer sees it.
The recordings are kept in tests/unit/core/recorded, one file a version: the unit tests count attempts in them, the live
test next door plays them again and compares. REDRIVE_RECORD=1 writes them anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pika

from redrive.core import COPY_DROPS, Counter, headers

RECORDED = Path(__file__).parents[2] / "unit" / "core" / "recorded"
WAIT_MS = 50
ARRIVES_S_MAX = 20.0
EXCHANGE, ROUTING_KEY = "events", "orders.placed"


class Stage:
    """The queues of one scenario: `main` (rejects go to `wait`, which returns them after 50 ms) and `parked`."""

    def __init__(self, connection: Any, name: str, kind: str, arguments: Mapping[str, Any], *, dies_to: str) -> None:
        self._connection = connection
        self._channel = connection.channel()
        self.name = name
        self.main, self.wait, self.parked = (f"{name}.{kind}.{part}" for part in ("main", "wait", "parked"))
        self.kind = kind
        self.deliveries: list[dict[str, Any]] = []
        self._declare(self.parked, {})
        self._declare(self.wait, _dead_letters_to(self.main) | {"x-message-ttl": WAIT_MS})
        self._declare(self.main, {**_dead_letters_to(self.wait if dies_to == "wait" else self.parked), **arguments})
        self._channel.exchange_declare(EXCHANGE, "topic", durable=True)
        self._channel.queue_bind(self.main, EXCHANGE, ROUTING_KEY)
        self._channel.confirm_delivery()

    def publish(self) -> None:
        """The message, as its producer sends it."""
        self._send(EXCHANGE, ROUTING_KEY, {})
        self._channel.queue_unbind(self.main, EXCHANGE, ROUTING_KEY)

    def take(self, failed_runs: int, counter: Counter, queue: str | None = None) -> tuple[Any, dict[str, Any]]:
        """The next delivery, noted."""
        queue = self.main if queue is None else queue
        deadline = time.monotonic() + ARRIVES_S_MAX
        while True:
            method, properties, _ = self._channel.basic_get(queue)
            if method is not None:
                break
            assert time.monotonic() < deadline, f"nothing came to {queue}"
            time.sleep(0.02)
        found = properties.headers or {}
        self.deliveries.append(
            {
                "counter": counter.value,
                "failed_runs": failed_runs,
                "queue": queue,
                "exchange": method.exchange,
                "routing_key": method.routing_key,
                "redelivered": method.redelivered,
                "headers": _plain(found),
            }
        )
        return method, found

    def copy(self, method: Any, found: Mapping[str, Any], to: str, **changes: Any) -> None:
        """A copy with these headers to a queue, confirmed; then the ack."""
        self._send("", to, {**found, **changes})
        self._channel.basic_ack(method.delivery_tag)

    def reject(self, method: Any, *, requeue: bool = False) -> None:
        self._channel.basic_reject(method.delivery_tag, requeue=requeue)

    def nack(self, method: Any) -> None:
        self._channel.basic_nack(method.delivery_tag, requeue=True)

    def drop_channel(self) -> None:
        """What a consumer's death looks like to the broker."""
        self._channel.close()
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def close(self) -> None:
        for queue in (self.main, self.wait, self.parked):
            self._channel.queue_delete(queue)
        self._channel.close()

    def _declare(self, queue: str, arguments: Mapping[str, Any]) -> None:
        self._channel.queue_declare(queue, durable=True, arguments={"x-queue-type": self.kind, **arguments})

    def _send(self, exchange: str, routing_key: str, found: Mapping[str, Any]) -> None:
        properties = pika.BasicProperties(delivery_mode=2, headers=dict(found))
        self._channel.basic_publish(exchange, routing_key, b"{}", properties, mandatory=True)


def reject_cycles(stage: Stage, cycles: int = 5, before: int = 0) -> tuple[Any, dict[str, Any]]:
    """Rejected, waits, comes back; the last delivery is left in hand."""
    for failed in range(cycles):
        method, _ = stage.take(before + failed, Counter.REJECTIONS)
        stage.reject(method)
    return stage.take(before + cycles, Counter.REJECTIONS)


def play_rejections(stage: Stage) -> None:
    """reject → wait → main, five times."""
    stage.publish()
    method, _ = reject_cycles(stage)
    stage.reject(method)


def play_republished(stage: Stage) -> None:
    """Three rejections; a client republishes the message with all its headers; two more rejections."""
    stage.publish()
    method, found = reject_cycles(stage, 3)
    stage.copy(method, found, stage.main)
    reject_cycles(stage, 2, before=3)


def play_republished_carrying(stage: Stage) -> None:
    """Three rejections; a copy without the broker's headers but with the count so far; two more rejections."""
    stage.publish()
    method, found = reject_cycles(stage, 3)
    stage.copy(method, stripped(found), stage.main, **{headers.ATTEMPTS_BEFORE: 3})
    reject_cycles(stage, 2, before=3)


def play_redriven(stage: Stage) -> None:
    """Parked after two rejections, its x-death kept as evidence; redriven with it stripped: it starts afresh."""
    stage.publish()
    method, found = reject_cycles(stage, 2)
    stage.copy(method, found, stage.parked)
    method, found = stage.take(2, Counter.HEADER, stage.parked)
    stage.deliveries.pop()  # what is parked is not counted by anybody
    stage.copy(method, stripped(found), stage.main)
    reject_cycles(stage, 2)


def play_redriven_unstripped(stage: Stage) -> None:
    """The same, redriven with its x-death: it should start afresh."""
    stage.publish()
    method, found = reject_cycles(stage, 2)
    stage.copy(method, found, stage.parked)
    method, found = stage.take(2, Counter.HEADER, stage.parked)
    stage.deliveries.pop()
    stage.copy(method, found, stage.main)
    reject_cycles(stage, 2)


def play_copies(stage: Stage) -> None:
    """Retries by copies into the wait, counted in x-retry-count; then a redrive that keeps the count beside it."""
    stage.publish()
    for failed in range(4):
        method, found = stage.take(failed, Counter.HEADER)
        stage.copy(method, stripped(found), stage.wait, **{headers.RETRY_COUNT: failed + 1})
    method, found = stage.take(4, Counter.HEADER)
    stage.copy(method, stripped(found), stage.main, **{headers.RETRY_COUNT: 0, headers.ATTEMPTS_BEFORE: 4})
    stage.take(4, Counter.HEADER)


def play_nacks(stage: Stage) -> None:
    """Returned with nack, four times."""
    stage.publish()
    for failed in range(4):
        method, _ = stage.take(failed, Counter.DELIVERIES)
        stage.nack(method)
    stage.take(4, Counter.DELIVERIES)


def play_returns(stage: Stage) -> None:
    """Returned with reject, four times."""
    stage.publish()
    for failed in range(4):
        method, _ = stage.take(failed, Counter.DELIVERIES)
        stage.reject(method, requeue=True)
    stage.take(4, Counter.DELIVERIES)


def play_deaths_of_consumers(stage: Stage) -> None:
    """The channel closes with the message in hand, three times."""
    stage.publish()
    for failed in range(3):
        stage.take(failed, Counter.DELIVERIES)
        stage.drop_channel()
    stage.take(3, Counter.DELIVERIES)


def play_delivery_limit(stage: Stage) -> None:
    """Returned until the limit of two; the queue sends it to the parking itself."""
    stage.publish()
    for failed in range(3):
        method, _ = stage.take(failed, Counter.DELIVERIES)
        stage.reject(method, requeue=True)
    stage.take(3, Counter.DELIVERIES, stage.parked)


def play_returns_then_rejection(stage: Stage) -> None:
    """Two returns, one rejection through the wait, one more return: the count of deliveries across a dead-lettering."""
    stage.publish()
    for failed in range(2):
        method, _ = stage.take(failed, Counter.DELIVERIES)
        stage.reject(method, requeue=True)
    method, _ = stage.take(2, Counter.DELIVERIES)
    stage.reject(method)
    method, _ = stage.take(3, Counter.DELIVERIES)
    stage.reject(method, requeue=True)
    stage.take(4, Counter.DELIVERIES)


def play_returned_copy(stage: Stage) -> None:
    """Two returns, then a copy without the broker's headers but with the count so far, and one more return."""
    stage.publish()
    for failed in range(2):
        method, _ = stage.take(failed, Counter.DELIVERIES)
        stage.reject(method, requeue=True)
    method, found = stage.take(2, Counter.DELIVERIES)
    stage.copy(method, stripped(found), stage.main, **{headers.ATTEMPTS_BEFORE: 3})
    method, _ = stage.take(3, Counter.DELIVERIES)
    stage.reject(method, requeue=True)
    stage.take(4, Counter.DELIVERIES)


Play = Callable[[Stage], None]
BOTH, QUORUM = ("classic", "quorum"), ("quorum",)
SCENARIOS: dict[str, tuple[Play, tuple[str, ...], dict[str, Any], str]] = {
    "rejections": (play_rejections, BOTH, {}, "wait"),
    "republished": (play_republished, BOTH, {}, "wait"),
    "republished-carrying-the-count": (play_republished_carrying, BOTH, {}, "wait"),
    "redriven": (play_redriven, BOTH, {}, "wait"),
    "redriven-unstripped": (play_redriven_unstripped, BOTH, {}, "wait"),
    "copies": (play_copies, BOTH, {}, "wait"),
    "nacks": (play_nacks, BOTH, {}, "wait"),
    "returns": (play_returns, BOTH, {}, "wait"),
    "deaths-of-consumers": (play_deaths_of_consumers, BOTH, {}, "wait"),
    "delivery-limit": (play_delivery_limit, QUORUM, {"x-delivery-limit": 2}, "parked"),
    "returns-then-rejection": (play_returns_then_rejection, QUORUM, {}, "wait"),
    "returned-copy": (play_returned_copy, QUORUM, {}, "wait"),
}


def record(url: str) -> list[dict[str, Any]]:
    """Every scenario on the broker there."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    recorded = []
    try:
        for name, (play, kinds, arguments, dies_to) in SCENARIOS.items():
            for kind in kinds:
                stage = Stage(connection, name, kind, arguments, dies_to=dies_to)
                play(stage)
                stage.close()
                recorded.append({"scenario": name, "kind": kind, "deliveries": stage.deliveries})
    finally:
        connection.close()
    return recorded


def stripped(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a copy that lives on takes with it."""
    return {name: value for name, value in found.items() if name not in COPY_DROPS}


def read_recorded(version: str) -> list[dict[str, Any]]:
    """A version's recording."""
    recorded: list[dict[str, Any]] = json.loads((RECORDED / f"{version}.json").read_text(encoding="utf-8"))
    return recorded


def write_recorded(version: str, recorded: list[dict[str, Any]]) -> None:
    """Keeps a recording: a line a delivery, so that a difference can be read."""
    scenarios = []
    for one in recorded:
        deliveries = ",\n  ".join(json.dumps(delivery, sort_keys=True) for delivery in one["deliveries"])
        name, kind = json.dumps(one["scenario"]), json.dumps(one["kind"])
        scenarios.append(f'{{"scenario": {name}, "kind": {kind}, "deliveries": [\n  {deliveries}\n]}}')
    (RECORDED / f"{version}.json").write_text("[\n" + ",\n".join(scenarios) + "\n]\n", encoding="utf-8")


def _dead_letters_to(queue: str) -> dict[str, Any]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Headers as JSON has them; without the time of a death, which is never the same."""
    plain = dict(found)
    if headers.DEATHS in plain:
        plain[headers.DEATHS] = [
            {name: value for name, value in death.items() if name != "time"} for death in plain[headers.DEATHS]
        ]
    return plain
