"""A publisher that forges every header we read, by accident: it copies the headers of other messages.

It draws from a random generator of its own, so that old seeds keep their meaning. What it sends is a new message,
whatever its headers say, and the auditor holds the runtime to that. Left out is what can't be told apart, as
documented: an x-death without a digest, published straight to a queue that counts by it. Also left out is an
x-delivery-count in the literal `requeue: nack`: there the first requeue of such a message is a reject, which 4.3
counts, and later ones are not counted (test_seed_regressions has that case).
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from redrive import wire
from redrive.core import Counter, headers
from redrive.topology import Compiled, MoveBy
from tests.simulation.workloads import BEGIN_S, Sent

FAR_MS = (BEGIN_S + 400 * 86_400) * 1000


def forge_some(seed: int, messages: tuple[Sent, ...], compiled: Compiled, queues: Sequence[str]) -> tuple[Sent, ...]:
    """In a third of the seeds the headers of about every third message are another's."""
    random = Random(f"forger {seed}")
    if random.random() > 0.34:
        return messages
    plans = [compiled.queue(name) for name in queues]
    # Where a reject parks, the broker's x-death alone tells the auditor whose a dead letter is.
    may_die = all(plan.routes is not None and plan.routes.park_by is not MoveBy.REJECT for plan in plans)
    may_count = all(plan.counted_by is not Counter.DELIVERIES or plan.shape_name == "native" for plan in plans)
    return tuple(
        _forge(random, sent, random.choice(messages), queues, may_die=may_die, may_count=may_count)
        if random.random() < 0.35
        else sent
        for sent in messages
    )


def _forge(random: Random, sent: Sent, other: Sent, queues: Sequence[str], *, may_die: bool, may_count: bool) -> Sent:
    queue = random.choice(queues)
    digest = wire.digest_of(other.properties, queue, message_id=other.properties.message_id, body=other.body)
    death = {"count": random.choice((1, 3, 99)), "exchange": other.exchange, "routing-keys": [other.routing_key]}
    all_of_them: dict[str, Any] = {
        headers.RETRY_COUNT: random.choice((1, 3, 99)),
        headers.ATTEMPTS_BEFORE: random.choice((1, 3, 99)),
        headers.NOT_BEFORE: FAR_MS,
        headers.DELIVERIES: random.choice((1, 2, 99)),
        headers.FIRST_SEEN: 1,
        headers.MESSAGE_ID: f"m{other.number}",
        headers.ORIGINAL_QUEUE: queue,
        headers.ORIGINAL_EXCHANGE: other.exchange,
        headers.ORIGINAL_ROUTING_KEY: other.routing_key,
        headers.HISTORY: [{"number": 7, "at_ms": 1, "error": "another's"}],
        headers.STRIPPED: {"expiration": "1"},
        headers.REDRIVEN_ID: "a-letter",
        headers.REDRIVEN_COUNT: 1,
        headers.DIGEST: digest if other is not sent else "0" * 32,
    }
    chosen = {name: value for name, value in all_of_them.items() if random.random() < 0.7}
    if may_count and random.random() < 0.3:
        chosen[headers.DELIVERY_COUNT] = chosen["x-acquired-count"] = random.choice((1, 25))
    if may_die and random.random() < 0.5:
        chosen[headers.DEATHS] = [
            {**death, "queue": f"{queue}.wait", "reason": "expired"},
            {**death, "queue": queue, "reason": random.choice(("rejected", "rejected", "expired"))},
        ]
        chosen[headers.DIGEST] = all_of_them[headers.DIGEST]
    if random.random() < 0.2:
        chosen = {name: random.choice(("odd", -3, 1.5, [1], True)) for name in chosen if name != headers.DEATHS}
    return replace(sent, properties=sent.properties.edit(headers=chosen), is_forged=True)
