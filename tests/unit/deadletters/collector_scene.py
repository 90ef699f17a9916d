"""A broker, a store and collectors for tests of collecting."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from redrive.client import Client, Confirmed, Outgoing
from redrive.deadletters.collect.collect_loop import CollectOptions, CollectorParts
from redrive.deadletters.collect.collector import Collector
from redrive.deadletters.collect.sources import Source
from redrive.embedded import EmbeddedBroker
from redrive.records import ID_RANDOM_BITS, DeadLetter, Filter
from redrive.stores import Store, open_store
from redrive.wire import Properties
from tests.unit.client.scenario import Notes


class Killed(BaseException):
    """What a process feels of SIGKILL, as far as one process can play it: nothing after it runs on purpose."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def random_bits() -> int:
    return random.getrandbits(ID_RANDOM_BITS)


PROMPT = CollectOptions(lease_s=2.0, idle_s=0.5, retry_s_max=0.5, once_s=20.0)


def make_collector(
    client: Client,
    store: Store,
    sources: Sequence[Source],
    *,
    owner: str = "test",
    notes: Notes | None = None,
    options: CollectOptions = PROMPT,
    pause_at: Callable[[str], Awaitable[None]] | None = None,
) -> Collector:
    return Collector(
        CollectorParts(
            client=client,
            store=store,
            owner=owner,
            clock_ms=now_ms,
            random_bits=random_bits,
            observer=Notes() if notes is None else notes,
            options=options,
            pause_at=pause_at,
        ),
        sources,
    )


@asynccontextmanager
async def sqlite_store(folder: Path) -> AsyncIterator[Store]:
    async with await open_store(f"sqlite:///{folder}/dead-letters.db") as store:
        yield store


async def park(client: Client, queue: str, messages: Sequence[tuple[Properties, bytes]]) -> None:
    """Puts messages into a queue; each is confirmed."""
    publisher = await client.publisher()
    try:
        outcomes = await publisher.publish_many(
            [Outgoing("", queue, body, properties, True) for properties, body in messages]
        )
    finally:
        await publisher.close()
    assert all(outcome == Confirmed() for outcome in outcomes)


def numbered(count: int, *, start: int = 0) -> list[tuple[Properties, bytes]]:
    return [
        (Properties.of(message_id=f"m{number}", delivery_mode=2), b"body %d" % number)
        for number in range(start, start + count)
    ]


async def ready(client: Client, queue: str) -> int:
    channel = await client.channel()
    try:
        return (await channel.declare_queue(queue, passive=True)).messages_ready
    finally:
        await channel.close()


async def stored_letters(store: Store) -> list[DeadLetter]:
    """All rows, in the order they were collected."""
    found: list[DeadLetter] = []
    cursor = None
    while True:
        page = await store.letters.page(Filter(), limit=500, cursor=cursor, newest_first=False, now_ms=now_ms())
        found += page.letters
        cursor = page.next_cursor
        if cursor is None:
            return found


async def stored_bodies(store: Store) -> list[bytes]:
    """The bodies of all rows, sorted."""
    bodies: list[bytes] = []
    for letter in await stored_letters(store):
        content = await store.letters.content(letter.id)
        assert content is not None
        bodies.append(content.body)
    return sorted(bodies)


def kill_at(place: str, *, times: int = 1) -> Callable[[str], Awaitable[None]]:
    """Kills the collector there, the first so many times."""
    left = times

    async def pause(name: str) -> None:
        nonlocal left
        if name == place and left:
            left -= 1
            raise Killed

    return pause


async def wait_for(condition: Callable[[], Awaitable[bool]], *, timeout_s: float = 60.0) -> None:
    """Until the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 - conditions are of many kinds, and a deadline bounds the wait
            await asyncio.sleep(0.05)


def source(kind: str = "classic", dlq: str = "orders.dlq", **changes: object) -> Source:
    return Source(vhost="/", dlq=dlq, queue_type=kind, **changes)  # type: ignore[arg-type]


async def declare(client: Client, kind: str = "classic", dlq: str = "orders.dlq") -> None:
    channel = await client.channel()
    await channel.declare_queue(dlq, arguments={"x-queue-type": kind})
    await channel.close()


async def die(broker: EmbeddedBroker, store: Store, kind: str, place: str) -> None:
    """A collector on a connection of its own, killed at a place: its connection closes, its batch is requeued."""
    async with Client(broker.url) as client:
        collector = make_collector(client, store, [source(kind)], pause_at=kill_at(place))
        with pytest.raises(Killed):
            await collector.run(once=True)
