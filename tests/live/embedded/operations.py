"""Random but repeatable sequences of operations, as values: the same for every broker that plays them.

Time is a grid of one-second slots. Operations happen in the first 450 ms of a slot; every deadline is chosen so that it
falls between 500 and 950 ms of one. So no observation is ever near a deadline, and a real broker's few milliseconds
make no difference. On a busy machine REDRIVE_DIFFERENTIAL_SCALE=3 makes all of this three times as long.
"""

import os
from dataclasses import dataclass, field
from random import Random
from typing import Any

SCALE = int(os.environ.get("REDRIVE_DIFFERENTIAL_SCALE", "1"))
SLOT_S = 1.0 * SCALE
WINDOW_S = 0.45 * SCALE
DEADLINES_MS = (500 * SCALE, 1500 * SCALE)
"""One of them for all TTLs, expirations and delays of a sequence: what is published first is due first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """A queue to declare; names are short and get the sequence's prefix."""

    name: str
    kind: str
    arguments: dict[str, Any]
    may_expire_messages: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """One step: a verb and its numbers. `pick` chooses among whatever there is when the step comes."""

    verb: str
    queue: str = ""
    pick: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sequence:
    """Queues, bindings and slots of operations."""

    seed: int
    queues: tuple[QueuePlan, ...]
    bindings: tuple[tuple[str, str], ...]
    slots: tuple[tuple[Operation, ...], ...]


def make_sequence(seed: int, profile: str, *, slots: int = 4, steps: int = 6) -> Sequence:
    """The sequence of that seed. What a version does not have does not occur in its sequences."""
    random = Random(f"{profile}:{seed}")
    names = ["main", "retry", "park", "other"][: random.randint(2, 4)]
    kinds = {name: random.choice(("classic", "quorum")) for name in names}
    due_ms = random.choice(DEADLINES_MS)
    expiring = random.random() < 0.8
    ttl = {name: due_ms if name == "retry" and expiring else None for name in names}
    queues = tuple(_queue(random, name, kinds[name], ttl, names, profile, due_ms) for name in names)
    # A fanned-out message that makes one queue overflow into another races with its own copy there.
    bindable = [queue.name for queue in queues if ttl[queue.name] is None and "x-max-length" not in queue.arguments]
    bindings = tuple(
        (name, key)
        for name in bindable
        for key in random.sample(["a.*", "#", "a.b", "*.b.#", "c", ""], random.randint(0, 2))
    )
    body = iter(range(10_000))
    planned = tuple(tuple(_operation(random, queues, body, due_ms) for _ in range(steps)) for _ in range(slots))
    return Sequence(seed, queues, bindings, planned)


def _queue(
    random: Random, name: str, kind: str, ttl: dict[str, int | None], names: list[str], profile: str, due_ms: int
) -> QueuePlan:
    arguments: dict[str, Any] = {"x-queue-type": kind}
    target = None
    if random.random() < 0.8:
        # A queue whose messages expire may die only into queues without a TTL: see the grid above.
        choices = [one for one in names if ttl[name] is None or ttl[one] is None]
        target = random.choice(choices) if choices else None
    if target is not None:
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    if ttl[name] is not None:
        arguments["x-message-ttl"] = ttl[name]
    # Nor may it overflow into one with a TTL: its overflow may come of another queue's expiry.
    overflows_safely = target is None or ttl[target] is None
    if random.random() < 0.35 and overflows_safely:
        arguments["x-max-length"] = random.randint(0, 3)
        if random.random() < 0.5:
            arguments["x-overflow"] = random.choice(
                ["drop-head", "reject-publish"] + (["reject-publish-dlx"] if kind == "classic" else [])
            )
    if kind == "quorum":
        if random.random() < 0.5:
            arguments["x-delivery-limit"] = random.randint(0, 3)
        if profile == "4.3" and ttl[name] is None and random.random() < 0.25:
            arguments |= {
                "x-delayed-retry-type": random.choice(["all", "failed", "returned"]),
                "x-delayed-retry-min": due_ms,
                "x-delayed-retry-max": due_ms,
            }
            if "x-max-length" in arguments:
                arguments["x-overflow"] = "reject-publish"  # 4.3.6 hangs otherwise: see relaxations
            target_expires = target is not None and ttl[target] is not None
            if target_expires:
                del arguments["x-dead-letter-exchange"], arguments["x-dead-letter-routing-key"]
    elif random.random() < 0.2:
        arguments["x-max-priority"] = random.randint(1, 5)
    safe = target is None or ttl[target] is None
    return QueuePlan(
        name=name, kind=kind, arguments=arguments, may_expire_messages=safe and "x-delayed-retry-type" not in arguments
    )


_VERBS = (
    ("publish", 34),
    ("get", 24),
    ("ack", 6),
    ("nack", 10),
    ("reject", 10),
    ("consume", 6),
    # It takes more of a slot than a machine busy with four brokers has: only in the long run.
    ("meet", 4 if os.environ.get("REDRIVE_MATRIX") else 0),
    ("close", 4),
    ("recover", 2),
    ("count", 4),
    ("purge", 1),
    ("tx", 2),
    ("route", 7),
)


def _operation(random: Random, queues: tuple[QueuePlan, ...], body: Any, due_ms: int) -> Operation:
    verb = random.choices([name for name, _ in _VERBS], [weight for _, weight in _VERBS])[0]
    queue = random.choice(queues)
    options: dict[str, Any] = {}
    match verb:
        case "publish":
            options = {"bodies": [f"b{next(body)}" for _ in range(random.randint(1, 3))], "properties": {}}
            if queue.may_expire_messages and random.random() < 0.25:
                options["properties"]["expiration"] = str(due_ms)
            if random.random() < 0.3:
                options["properties"]["priority"] = random.randint(0, 9)
            if random.random() < 0.3:
                options["properties"]["headers"] = {"k": random.randint(0, 3)}
            options["mandatory"] = random.random() < 0.3
        case "route":
            key = random.choice(["a.b", "a.c", "c", "", "x.b.y", "a"])
            options = {"key": key, "bodies": [f"r{next(body)}"], "mandatory": random.random() < 0.5}
        case "get":
            options = {"no_ack": random.random() < 0.3, "times": random.randint(1, 3)}
        case "nack" | "ack":
            options = {"multiple": random.random() < 0.3, "requeue": random.random() < 0.6}
        case "reject":
            options = {"requeue": random.random() < 0.5}
        case "consume":
            options = {
                "prefetch": random.randint(1, 4),
                "no_ack": random.random() < 0.2,
                "own_channel": random.random() < 0.6,
            }
        case "meet":
            shared = queue.kind == "classic" and random.random() < 0.5
            options = {
                "bodies": [f"w{next(body)}" for _ in range(random.randint(1, 3))],
                "mandatory": False,
                "properties": {},
                "consumers": random.randint(1, 3),
                "prefetch": random.randint(1, 3),
                "shared": shared,
                # What a quorum queue gives out next after a nack by one of several consumers differs on 3.10 still.
                "settled": random.choice(["", "", "nack", "ack"] if queue.kind == "classic" else ["", "ack"]),
            }
            if queue.may_expire_messages and random.random() < 0.5:
                options["properties"]["expiration"] = str(due_ms)
        case "tx":
            options = {"bodies": [f"t{next(body)}"], "commit": random.random() < 0.6}
    return Operation(verb, queue.name, random.random(), options)
