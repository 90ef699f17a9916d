"""What is measured: the workloads, the clients, and how many messages each client gets in each workload.

Slow clients get fewer messages, so that every case takes between one and four seconds; the counts are shown with the
results. Where two clients are compared most closely (W3: redrive and pika) they get the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Workload = Literal["W1", "W2", "W3", "W4"]
WORKLOADS: Mapping[Workload, str] = {
    "W1": "publish with confirms, at most 1,000 unconfirmed",
    "W2": "consume with prefetch 500, an outcome for each message",
    "W3": "three rejects through a 1 ms dead-letter queue, then park (publish, confirm, ack)",
    "W4": "move from one queue to another (publish mandatory, confirm, ack)",
}
WINDOW = 1000
PREFETCH = 500
BODY_BYTES = 256
QUICK_DIVISOR = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client and its messages per workload; it has no other workloads. Peers run only when they are asked for.

    `body` is for one that can read nothing but a format of its own; SOURCE in it stands for the queue's name.
    """

    name: str
    title: str
    messages: Mapping[Workload, int]
    is_peer: bool = False
    body: str | None = None


CLIENTS: tuple[Client, ...] = (
    Client(name="c", title="C, librabbitmq", messages={"W1": 60_000, "W2": 100_000, "W4": 50_000}),
    Client(name="redrive", title="redrive", messages={"W1": 60_000, "W2": 100_000, "W3": 4_000, "W4": 50_000}),
    Client(
        name="pika",
        title="pika AsyncioConnection",
        messages={"W1": 30_000, "W2": 30_000, "W3": 4_000, "W4": 16_000},
    ),
    Client(
        name="aio-pika",
        title="aio-pika (robust)",
        messages={"W1": 8_000, "W2": 8_000, "W3": 1_000, "W4": 4_000},
    ),
    Client(name="shovel", title="shovel plugin", messages={"W4": 40_000}),
    Client(
        name="aiormq",
        title="aiormq",
        messages={"W1": 8_000, "W2": 8_000, "W3": 600, "W4": 3_000},
        is_peer=True,
    ),
    Client(
        name="faststream",
        title="FastStream",
        messages={"W1": 4_000, "W2": 2_000, "W3": 300, "W4": 1_000},
        is_peer=True,
    ),
    Client(
        name="amqplib",
        title="amqplib (Node)",
        messages={"W1": 40_000, "W2": 40_000, "W3": 4_000, "W4": 20_000},
        is_peer=True,
    ),
    Client(
        name="rascal",
        title="rascal (Node)",
        messages={"W1": 4_000, "W2": 30_000, "W3": 800, "W4": 3_000},
        is_peer=True,
    ),
)


def make_body() -> str:
    """A JSON document of exactly BODY_BYTES, the same for every client."""
    start = json.dumps({"order": 4711, "customer": "c-1042", "items": [{"sku": "A-1", "count": 1}], "note": ""})[:-2]
    return start + "x" * (BODY_BYTES - len(start) - 2) + '"}'
