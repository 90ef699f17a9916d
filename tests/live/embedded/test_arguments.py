"""Declarations with several wrong or different arguments: both brokers name the same one, in the same words."""

from random import Random
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker
from rig.brokers import Vhost

from tests.unit.embedded.threaded import broker_in_a_thread

DECLARATIONS = 60
WRONG: dict[str, Any] = {
    "x-message-ttl": -1,
    "x-expires": 0,
    "x-max-length": -1,
    "x-max-length-bytes": "a",
    "x-max-priority": 300,
    "x-overflow": "nope",
    "x-dead-letter-exchange": 5,
    "x-dead-letter-routing-key": 5,
    "x-dead-letter-strategy": "nope",
    "x-single-active-consumer": "a",
    "x-queue-mode": "nope",
    "x-queue-version": 9,
    "x-queue-leader-locator": "nope",
    "x-consumer-timeout": "a",
    "x-max-age": "1x",
    "x-stream-max-segment-size-bytes": -1,
    "x-initial-cluster-size": 0,
    "x-delivery-limit": "a",
    "x-quorum-initial-group-size": 0,
    "x-max-in-memory-length": -1,
    "x-max-in-memory-bytes": -1,
    "x-stream-filter-size-bytes": "a",
    "x-delayed-retry-type": 5,
}
COMMON: dict[str, tuple[Any, Any]] = {
    "x-message-ttl": (60_000, 70_000),
    "x-expires": (100_000, 200_000),
    "x-max-length": (5, 6),
    "x-max-length-bytes": (500, 600),
    "x-overflow": ("drop-head", "reject-publish"),
    "x-dead-letter-exchange": ("a", "b"),
    "x-dead-letter-routing-key": ("a", "b"),
    "x-single-active-consumer": (True, False),
}
DIFFERENT: dict[str, dict[str, tuple[Any, Any]]] = {
    "classic": {**COMMON, "x-max-priority": (3, 4)},
    "quorum": {
        **COMMON,
        "x-delivery-limit": (3, 4),
        "x-dead-letter-strategy": ("at-most-once", "at-least-once"),
        "x-queue-leader-locator": ("balanced", "client-local"),
        "x-quorum-initial-group-size": (1, 2),
        "x-delayed-retry-type": ("all", "failed"),
        "x-delayed-retry-min": (1000, 2000),
        "x-delayed-retry-max": (3000, 4000),
        "x-consumer-timeout": (5000, 6000),
    },
    "stream": {
        "x-max-age": ("1h", "2h"),
        "x-max-length-bytes": (500, 600),
        "x-stream-max-segment-size-bytes": (5000, 6000),
        "x-initial-cluster-size": (1, 2),
        "x-queue-leader-locator": ("balanced", "client-local"),
        "x-stream-filter-size-bytes": (32, 33),
    },
}


class Declaring:
    """Declares on one broker, over a new channel or connection whenever the last was refused."""

    def __init__(self, url: str, vhost: str) -> None:
        self._parameters = pika.URLParameters(url)
        self._vhost = vhost
        self._connection = pika.BlockingConnection(self._parameters)

    def declare(self, kind: str, arguments: dict[str, Any]) -> str:
        if not self._connection.is_open:
            self._connection = pika.BlockingConnection(self._parameters)
        try:
            self._connection.channel().queue_declare("q", durable=True, arguments={"x-queue-type": kind, **arguments})
        except (ChannelClosedByBroker, ConnectionClosedByBroker) as closed:
            return f"{closed.reply_code} {closed.reply_text}".replace(f"vhost '{self._vhost}'", "vhost")
        return "declared"

    def forget(self) -> None:
        self._connection.channel().queue_delete("q")

    def close(self) -> None:
        try:
            self._connection.close()
        except AMQPError:
            pass


def see(declaring: Declaring) -> list[str]:
    """What is said to each declaration, drawn by one seed."""
    random, seen = Random(16), []
    for _ in range(DECLARATIONS):
        kind = random.choice(["classic", "quorum", "stream", "nope"])
        chosen = random.sample(sorted(WRONG), random.randint(1, 6))
        seen.append(f"{kind} {chosen}: " + declaring.declare(kind, {key: WRONG[key] for key in chosen}))
        if seen[-1].endswith(": declared"):
            declaring.forget()
    for kind, pairs in DIFFERENT.items():
        declaring.declare(kind, {key: before for key, (before, _) in pairs.items()})
        for _ in range(DECLARATIONS // 3):
            chosen = random.sample(sorted(pairs), random.randint(1, len(pairs)))
            table = {key: pair[key in chosen] for key, pair in pairs.items()}
            seen.append(f"{kind} again with other {sorted(chosen)}: " + declaring.declare(kind, table))
        declaring.forget()
    return seen


@pytest.mark.live
def test_of_several_wrong_arguments_both_name_the_same(vhost: Vhost) -> None:
    real_side = Declaring(vhost.amqp_url, vhost.name)
    with broker_in_a_thread(vhost.profile) as (broker, _):
        embedded_side = Declaring(broker.url, "/")
        try:
            real, embedded = see(real_side), see(embedded_side)
        finally:
            real_side.close()
            embedded_side.close()
    assert [pair for pair in zip(embedded, real, strict=True) if pair[0] != pair[1]] == []
