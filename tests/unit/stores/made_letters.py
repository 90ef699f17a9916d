"""Dead letters for the tests of reading: whole ones, as another store would have exported them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redrive.core import Attempt
from redrive.records import DeadLetter, LifecycleEntry, MessageContent, RetryRule, Status, make_id
from redrive.stores import EarlierContent, ExportedEdit, ExportedLetter, Store, open_store
from redrive.wire import Properties

NOW_MS = 1_800_000_000_000
Result = TypeVar("Result")


def on_store(url: str, work: Callable[[Store], Awaitable[Result]]) -> Result:
    """What the work gives, on the store at the URL."""

    async def run() -> Result:
        async with asyncio.timeout(120), await open_store(url) as store:
            return await work(store)

    return asyncio.run(run())


def make_letter(number: int = 0, **fields: Any) -> DeadLetter:
    """A pending letter of the queue `orders`; `number` sets it apart and in order. A retrying one was sent."""
    values: dict[str, Any] = {
        "id": make_id(NOW_MS + number, number),
        "version": 1,
        "status": Status.PENDING,
        "vhost": "/",
        "dlq": "orders.parked",
        "dlq_exchange": "",
        "dlq_routing_key": "orders.parked",
        "queue": "orders",
        "exchange": "events",
        "routing_key": "orders.created",
        "reason": "rejected",
        "told_by": "redrive",
        "error_type": "TimeoutError",
        "error_message": "it took too long",
        "status_code": None,
        "stack": None,
        "attempts": 4,
        "message_id": f"m{number}",
        "correlation_id": None,
        "type": "OrderCreated",
        "service": "shop",
        "group_id": "timeouts",
        "size_bytes": 2,
        "dead_at_ms": NOW_MS + number,
        "collected_at_ms": NOW_MS + number,
        "updated_at_ms": NOW_MS + number,
        "redrives": 0,
        "returns": 0,
        "is_poison": False,
        "due_at_ms": None,
        "silent_at_ms": NOW_MS + 10**12 if fields.get("status") is Status.RETRYING else None,
        "status_reason": None,
        "resolved_by": None,
        "copy_of": None,
        "operation_id": None,
        "is_edited": False,
    }
    return DeadLetter(**{**values, **fields})


def make_exported(
    letter: DeadLetter,
    *,
    body: Any = None,
    headers: dict[str, Any] | None = None,
    title: str = "TimeoutError: it took too long",
    history: tuple[Attempt, ...] = (),
    past: tuple[EarlierContent, ...] = (),
    edits: tuple[ExportedEdit, ...] = (),
    life: tuple[tuple[int, LifecycleEntry], ...] = (),
) -> ExportedLetter:
    """The letter with a JSON body (or any, given as bytes) and headers."""
    encoded = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    return ExportedLetter(
        letter=letter,
        content=MessageContent(properties=Properties.of(headers=headers or {}).raw, body=encoded),
        history=history,
        earlier_contents=past,
        edits=edits,
        lifecycle=life,
        group_title=title,
    )


async def put(store: Store, exported: Sequence[ExportedLetter | DeadLetter]) -> None:
    """Puts letters into the store."""
    whole = [make_exported(each) if isinstance(each, DeadLetter) else each for each in exported]
    if any(one.letter.due_at_ms is not None for one in whole) and not await store.rules.all():
        # Nothing is due in a store that has no rule for it.
        await store.rules.set(RetryRule(scope="*", attempts=1_000), now_ms=NOW_MS)
    imported = await store.letters.insert_exported(whole, who="test", now_ms=NOW_MS)
    assert imported.inserted == len(whole)
