"""W4 by the shovel plugin: the client that lives in the broker, told what to do through the management API.

It takes a while to connect before it moves anything, so its clock runs from the first look at which the target has
messages; those are not counted. What it costs in CPU is part of the broker's and is not shown.
"""

from __future__ import annotations

import time
from typing import Any

from bench.amqp.broker import Broker, Queues

LOOK_S = 0.004
MOVE_S_MAX = 60.0
NAME = "bench"
VHOST = "/"
# For the last acks, as in the clients' contract.
LINGER_S = 0.5


class ShovelStuck(Exception):
    """The shovel did not move everything in time."""


def move(broker: Broker, queues: Queues, messages: int) -> tuple[int, float]:
    """The messages moved while the clock ran, and the seconds. Raises ShovelStuck."""
    value = {
        "src-protocol": "amqp091",
        "src-uri": broker.url,
        "src-queue": queues.source,
        "dest-protocol": "amqp091",
        "dest-uri": broker.url,
        "dest-queue": queues.target,
        "ack-mode": "on-confirm",
    }
    with broker.channel() as channel:
        broker.management.put("parameters", "shovel", VHOST, NAME, body={"value": value})
        try:
            moved = _watch(channel, queues.target, messages)
            time.sleep(LINGER_S)
            return moved
        finally:
            broker.management.delete("parameters", "shovel", VHOST, NAME)


def _watch(channel: Any, target: str, messages: int) -> tuple[int, float]:
    deadline = time.monotonic() + MOVE_S_MAX
    first: tuple[int, float] | None = None
    while time.monotonic() < deadline:
        count = int(channel.queue_declare(target, passive=True).method.message_count)
        now = time.perf_counter()
        if first is None and count > 0:
            first = (count, now)
        if first is not None and count >= messages:
            return messages - first[0], now - first[1]
        time.sleep(LOOK_S)
    raise ShovelStuck(f"the shovel had not moved {messages} messages after {MOVE_S_MAX:.0f} s")
