"""The messages of a scenario: who publishes what, when, and with which oddities.

Every body carries its message's number as `#7#`, whatever else it is: the auditor knows a message by that, not by its
id, which not every message has.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from redrive import wire
from redrive.wire import Timestamp

BEGIN_S = 1_700_000_000
"""When a scenario begins, in seconds since 1970."""
OUTSIDE = "outside"
"""The broker's user who publishes the workload."""
Unit = tuple[int, str]
"""A message in a queue that consumes it: what the auditor accounts for."""
_NUMBER = re.compile(rb"#(\d+)#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One message as it is published."""

    number: int
    at_s: float
    exchange: str
    routing_key: str
    body: bytes
    properties: wire.Properties
    user_headers: dict[str, Any] = field(default_factory=dict)
    """Headers that mean nothing to anybody here, and must arrive wherever the message does."""
    is_forged: bool = False
    """It bears the headers of another message's life: it is a new one all the same."""
    is_decodable: bool = True
    may_expire: bool = False
    is_transient: bool = False


def number_of(body: bytes) -> int | None:
    """Which message a body is, None if it is none of ours."""
    found = _NUMBER.search(body)
    return None if found is None else int(found.group(1))


def body_of(number: int) -> bytes:
    """A body that can be decoded."""
    return b'{"id":"#%d#","amount":%d}' % (number, number * 7)


def draw_workload(random: Random, routes: Sequence[tuple[str, str]], queues: Sequence[str]) -> tuple[Sent, ...]:
    """Ten to sixty messages over the first minutes, sent to `routes` (exchange, key) or straight to a queue."""
    lasts_s = random.choice((0.0, 5.0, 60.0, 600.0))
    count = random.choices((10, 12, 15, 20, 30, 60), (30, 25, 20, 10, 4, 2))[0]
    return tuple(_draw_sent(random, number, random.random() * lasts_s, routes, queues) for number in range(count))


def _draw_sent(
    random: Random, number: int, at_s: float, routes: Sequence[tuple[str, str]], queues: Sequence[str]
) -> Sent:
    exchange, routing_key = random.choice(routes)
    if random.random() < 0.1:
        exchange, routing_key = "", random.choice(queues)
    user_headers: dict[str, Any] = {}
    if random.random() < 0.3:
        user_headers = {"tenant": f"t{number}", "nested": {"list": [1, "two", None], "flag": True}}
    headers: dict[str, Any] = dict(user_headers)
    oddity = random.random()
    if oddity < 0.04:
        headers["x-retry-count"] = random.choice(("many", -3, 1.5, [1]))
    elif oddity < 0.07:
        headers["x-retry-count"] = random.choice((1, 2))
    elif oddity < 0.10:
        headers["x-original-queue"] = "somewhere.else"
    elif oddity < 0.13:
        headers["x-death"] = [{"queue": "elsewhere", "reason": "rejected", "count": 4, "exchange": "x"}, "junk"]
    elif oddity < 0.16:
        headers["CC"] = [random.choice(routes)[1]]
    elif oddity < 0.18:
        headers["BCC"] = [key for _, key in random.sample(routes, 1) if key != routing_key]
    delay = random.random()
    expiration_ms = None
    if delay < 0.05:
        expiration_ms = random.choice((0, 50, 5_000, 3_600_000))
    elif delay < 0.09:
        headers["processAfterDelayMs"] = random.choice((1, 900, 4_000))
    delivery_mode = random.choices((2, 1, None), (18, 1, 1))[0]
    has_time = random.random() < 0.5
    is_decodable = random.random() > 0.06
    properties = wire.Properties.of(
        headers=headers or None,
        delivery_mode=delivery_mode,
        message_id=f"m{number}" if random.random() < 0.7 else None,
        correlation_id="c" if random.random() < 0.2 else None,
        priority=random.choice((None, None, None, 0, 7)),
        expiration=None if expiration_ms is None else str(expiration_ms),
        user_id=OUTSIDE if random.random() < 0.1 else None,
        timestamp=Timestamp(BEGIN_S + int(at_s)) if has_time else None,
        type="order.placed" if random.random() < 0.3 else None,
    )
    return Sent(
        number=number,
        at_s=at_s,
        exchange=exchange,
        routing_key=routing_key,
        body=body_of(number) if is_decodable else b"{not json #%d#" % number,
        properties=properties,
        user_headers=user_headers,
        is_decodable=is_decodable,
        may_expire=expiration_ms is not None,
        is_transient=delivery_mode != 2,
    )
