"""Messages as a collector hands them over, made up; and what the store must say of them by counting anew."""

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

from redrive.core import Attempt
from redrive.records import (
    Arrival,
    Explanation,
    ItemState,
    MessageContent,
    NewOperation,
    OperationKind,
    Selection,
    SendResult,
    make_id,
    make_mark,
)
from redrive.stores import Lease, Store
from redrive.stores.database import Database

NOW_MS = 1_800_000_000_000
LATER_MS = NOW_MS + 10_000_000
OTHER_OPERATION_ID = make_id(NOW_MS, 1 << 21)
DLQ = "orders.parked"
_NUMBERS = itertools.count()
_SENT = """
SELECT o.id, o.secret FROM items AS i JOIN operations AS o ON o.seq = i.operation_seq
WHERE i.letter_id = $1 AND i.redrives = $2 ORDER BY o.seq DESC LIMIT 1
"""


def make_arrival(number: int, **changes: Any) -> Arrival:
    """Message `number`; `changes` go to the arrival or to its explanation, wherever the name is."""
    explanation: dict[str, Any] = {
        "queue": "orders",
        "exchange": "shop",
        "routing_key": "orders.placed",
        "reason": "rejected",
        "told_by": "redrive",
        "error_type": "TimeoutError",
        "error_message": f"no answer for order {number}",
        "status_code": None,
        "stack": "File shop.py, line 7",
        "attempts": 4,
        "history": (Attempt(number=1, at_ms=NOW_MS - 5_000, error="TimeoutError: no answer"),),
        "message_id": f"m-{number}",
        "correlation_id": None,
        "type": "order",
        "service": None,
        "died_at_ms": NOW_MS + number,
        "group_id": "timeouts",
        "group_title": "TimeoutError in orders",
    }
    arrival: dict[str, Any] = {
        "id": make_id(NOW_MS, number),
        "vhost": "/",
        "dlq": DLQ,
        "dlq_exchange": "",
        "dlq_routing_key": DLQ,
        "content": MessageContent(properties=b"properties %d" % number, body=b"body %d" % number),
        "fingerprint": b"fingerprint %d" % number,
        "search_text": f"order {number}",
        "collected_at_ms": NOW_MS + 1_000,
    }
    for name, value in changes.items():
        (explanation if name in explanation else arrival)[name] = value
    return Arrival(**arrival, explanation=Explanation(**explanation))


async def proven(store: Store, arrival: Arrival) -> Arrival:
    """The arrival as the copy that the store had sent: with the mark of the redrive that it names."""
    if arrival.redriven_id is None or arrival.redriven_mark is not None:
        return arrival
    async with database_of(store).read() as tx:
        sent = await tx.row(_SENT, arrival.redriven_id, arrival.redriven_count)
    if sent is None:
        return arrival
    operation_id, secret = sent
    mark = make_mark(
        bytes(secret),
        operation_id=operation_id,
        vhost=arrival.vhost,
        letter_id=arrival.redriven_id,
        count=arrival.redriven_count,
        message_id=arrival.own_id,
        body=arrival.content.body,
    )
    return replace(arrival, redriven_mark=mark)


async def collect(
    store: Store, *arrivals: Arrival, batch_id: str | None = None, now_ms: int = NOW_MS
) -> tuple[str, ...]:
    """Stores arrivals as one owned hand; the ids of their rows. What says it was redriven bears the right mark."""
    lease = await collecting_lease(store)
    arrivals = tuple([await proven(store, one) for one in arrivals])
    batch = batch_id or f"batch of {arrivals[0].id}"
    stored = await store.batches.store(arrivals, lease=lease, batch_id=batch, now_ms=now_ms)
    await store.batches.close(batch)
    return (*stored.inserted, *stored.came_back)


async def collecting_lease(store: Store, owner: str = "collector") -> Lease:
    """The lease of the queue that arrivals come from."""
    lease = await store.leases.acquire(f"collect://{DLQ}", owner, ttl_ms=60_000)
    assert lease is not None
    return lease


async def run_out(store: Store, lease: Lease) -> None:
    """The lease's time is over, by the database's clock."""
    await store.leases.renew(lease, ttl_ms=0)


async def begin(store: Store, *ids: str, **changes: Any) -> tuple[str, Lease]:
    """A running redrive of these dead letters, or of all; its id and its lease."""
    asked: dict[str, Any] = {"kind": OperationKind.REDRIVE, "selection": Selection(ids=ids), "who": "ada"}
    operation_id = make_id(NOW_MS, next(_NUMBERS))
    await store.operations.create(NewOperation(**asked | changes), id=operation_id, now_ms=NOW_MS)
    return operation_id, await claim(store, operation_id)


async def claim(store: Store, operation_id: str, owner: str = "runner", now_ms: int = NOW_MS) -> Lease:
    """A runner's lease of an operation, which it has begun."""
    lease = await store.leases.acquire(f"operation:{operation_id}", owner, ttl_ms=600_000)
    assert lease is not None
    await store.operations.claim(operation_id, lease, now_ms=now_ms)
    return lease


async def redrive(store: Store, *ids: str, state: ItemState = ItemState.SENT, **changes: Any) -> str:
    """Sends these dead letters back, all with the same end; the operation's id."""
    operation_id, lease = await begin(store, *ids, **changes)
    for taken in await store.operations.take(operation_id, lease, limit=1_000, now_ms=NOW_MS):
        await store.operations.record(
            operation_id, lease, [SendResult(id=taken.id, state=state, reason="told")], now_ms=NOW_MS
        )
    await store.leases.release(lease)
    return operation_id


async def statuses(store: Store, *ids: str) -> list[str]:
    """The statuses of dead letters; `gone` where there is none."""
    found = [await store.letters.get(id) for id in ids]
    return ["gone" if letter is None else letter.status.value for letter in found]


async def counts_kept(store: Store) -> dict[tuple[str, str, str], int]:
    """What the store counts as it goes."""
    async with database_of(store).read() as tx:
        rows = await tx.rows("SELECT dimension, key, status, n FROM tallies")
        groups = await tx.rows("SELECT seq, letters FROM groups WHERE letters <> 0")
    return {(dimension, key, status): n for dimension, key, status, n in rows} | {
        ("groups", str(seq), ""): n for seq, n in groups
    }


async def counts_anew(store: Store) -> dict[tuple[str, str, str], int]:
    """The same, counted from the rows."""
    counted: Counter[tuple[str, str, str]] = Counter()
    async with database_of(store).read() as tx:
        for status, queue, dlq, topic, service, type, group in await tx.rows(
            "SELECT status, queue, dlq, routing_key, service, type, group_seq FROM letters"
        ):
            keys = {"all": "", "queue": queue, "dlq": dlq, "topic": topic, "service": service, "type": type}
            for dimension, key in (keys | {"group": str(group)}).items():
                if key is not None:
                    counted[dimension, key, status] += 1
            counted["groups", str(group), ""] += 1
    return dict(counted)


def database_of(store: Store) -> Database:
    """The database below a store, for looking at rows."""
    return store._database
