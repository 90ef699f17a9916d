"""Dead letters for tests, as a collector would have stored them."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redrive.core import headers, read_count
from redrive.records import Arrival, Explanation, MessageContent, make_id
from redrive.stores import BatchResult, Store
from redrive.wire import Properties

_numbers = itertools.count(1)
_EXPLANATION = Explanation(
    queue="orders",
    exchange="",
    routing_key="orders.placed",
    reason="rejected",
    told_by="x-death",
    error_type=None,
    error_message=None,
    status_code=None,
    stack=None,
    attempts=4,
    history=(),
    message_id=None,
    correlation_id=None,
    type=None,
    service=None,
    died_at_ms=None,
    group_id="group1",
    group_title="rejected in orders",
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def random_bits() -> int:
    return next(_numbers)


def arrival(
    properties: Properties,
    body: bytes = b"{}",
    *,
    vhost: str = "/",
    queue: str = "orders",
    dlq: str = "orders.parked",
    **explained: Any,
) -> Arrival:
    """A dead letter of a queue; `explained` are fields of its explanation."""
    redriven_id = properties.header(headers.REDRIVEN_ID)
    known = {"queue": queue, "message_id": properties.message_id, "died_at_ms": now_ms(), **explained}
    return Arrival(
        id=make_id(now_ms(), random_bits()),
        vhost=vhost,
        dlq=dlq,
        dlq_exchange="",
        dlq_routing_key=dlq,
        content=MessageContent(properties=properties.raw, body=body),
        fingerprint=b"%d" % random_bits(),
        explanation=replace(_EXPLANATION, **known),
        search_text=body.decode("utf-8", "replace")[:1000],
        collected_at_ms=now_ms(),
        redriven_id=redriven_id if isinstance(redriven_id, str) else None,
        redriven_count=read_count(properties.header(headers.REDRIVEN_COUNT)),
        redriven_mark=properties.header(headers.REDRIVEN_MARK),
        own_id=properties.message_id or properties.header(headers.MESSAGE_ID) or "",
    )


async def store_arrivals(store: Store, arrivals: Sequence[Arrival]) -> BatchResult:
    """Stores them as a collector on a day without crashes."""
    lease = await store.leases.acquire("collect:test", f"collector{random_bits()}", ttl_ms=60_000)
    assert lease is not None
    batch_id = make_id(now_ms(), random_bits())
    stored = await store.batches.store(arrivals, lease=lease, batch_id=batch_id, now_ms=now_ms())
    await store.batches.close(batch_id)
    await store.leases.release(lease)
    return stored
