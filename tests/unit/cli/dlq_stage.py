"""`redrive` in this process, on a database of its own; and an embedded broker with its management API, where needed."""

import asyncio
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from redrive import wire
from redrive.cli import main
from redrive.client import Client, Confirmed
from redrive.embedded import EmbeddedBroker, ManagementServer
from redrive.records import Arrival, Explanation, MessageContent, make_id
from redrive.stores import Store, open_store
from redrive.wiring import declare_on, load_topology
from tests.unit.embedded.threaded import broker_in_a_thread

NOW_MS = 1_794_733_200_000
EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class _Stdin(io.TextIOWrapper):
    def __init__(self, typed: bytes, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(typed), encoding="utf-8")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def redrive(*arguments: str, typed: bytes = b"", is_terminal: bool = False, **environment: str) -> Ran:
    """Runs the program in this process, as `main` does; `is_terminal`: somebody is there to be asked."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stdin = _Stdin(typed, is_terminal=is_terminal)
    code = 0
    with (
        patch.multiple(sys, argv=["redrive", *arguments], stdin=stdin, stdout=out, stderr=err),
        patch.dict("os.environ", {"REDRIVE_USER": "ada", **environment}),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    out.flush()
    err.flush()
    assert isinstance(out.buffer, io.BytesIO)
    assert isinstance(err.buffer, io.BytesIO)
    return Ran(code=code, raw=out.buffer.getvalue(), err=err.buffer.getvalue().decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter to begin with."""

    number: int
    queue: str = "orders"
    error: str | None = "TimeoutError: too slow"
    body: bytes = b'{"order": 7}'
    headers: dict[str, Any] = field(default_factory=dict)
    type: str | None = "OrderPlaced"
    service: str | None = "shop"

    @property
    def id(self) -> str:
        return make_id(NOW_MS + self.number * 1000, self.number * 7919)

    def arrival(self) -> Arrival:
        error_type, _, message = (self.error or "").partition(": ")
        return Arrival(
            id=self.id,
            vhost="/",
            dlq=f"{self.queue}.parked",
            dlq_exchange="",
            dlq_routing_key=f"{self.queue}.parked",
            content=MessageContent(
                properties=wire.Properties.of(
                    message_id=f"m{self.number}", content_type="application/json", headers=self.headers
                ).raw,
                body=self.body,
            ),
            fingerprint=str(self.number).encode(),
            explanation=Explanation(
                queue=self.queue,
                exchange="shop",
                routing_key=f"{self.queue}.new",
                reason="attempts" if self.error else "expired",
                told_by="redrive" if self.error else "x-death",
                error_type=error_type or None,
                error_message=message or None,
                status_code=None,
                stack="  at place\n  at run\x1b[2J" if self.error else None,
                attempts=4,
                history=(),
                message_id=f"m{self.number}",
                correlation_id=None,
                type=self.type,
                service=self.service,
                died_at_ms=NOW_MS + self.number * 1000,
                group_id=f"{self.queue}-{error_type or 'expired'}",
                group_title=f"{error_type or 'expired'} in {self.queue}",
            ),
            search_text=self.body.decode(errors="replace"),
            collected_at_ms=NOW_MS + self.number * 1000 + 10,
        )


def filled(folder: Path, letters: Sequence[Letter]) -> str:
    """The URL of a database with these dead letters."""
    url = f"sqlite:///{folder / 'letters.db'}"

    async def fill() -> None:
        async with await open_store(url) as store:
            for letter in letters:
                await _put(store, letter)

    asyncio.run(fill())
    return url


async def _put(store: Store, letter: Letter) -> None:
    dlq = letter.arrival().dlq
    lease = await store.leases.acquire(f"collect://{dlq}", "test", ttl_ms=60_000)
    assert lease is not None
    stored = await store.batches.store([letter.arrival()], lease=lease, batch_id=letter.id, now_ms=NOW_MS)
    await store.batches.close(stored.batch_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """An embedded broker that tests may ask about messages."""

    broker: EmbeddedBroker
    url: str
    management_url: str

    def depths(self) -> dict[str, int]:
        """How many messages are in each queue that has some."""

        async def ask() -> dict[str, int]:
            return {name: count for name, count in self.broker.depths().items() if count}

        return asyncio.run_coroutine_threadsafe(ask(), self.broker_loop).result(10)

    broker_loop: asyncio.AbstractEventLoop

    @property
    def environment(self) -> dict[str, str]:
        return {"REDRIVE_URL": self.url, "REDRIVE_MANAGEMENT_URL": self.management_url}


@contextmanager
def broker_with(definitions: Path, *, profile: str = "4.3") -> Iterator[Broker]:
    """A broker with a file's topology and the management API."""
    with broker_in_a_thread(profile, time="real") as (broker, loop):

        async def prepare() -> ManagementServer:
            await declare_on(broker, load_topology(str(definitions)))
            return await ManagementServer(broker).__aenter__()

        management = asyncio.run_coroutine_threadsafe(prepare(), loop).result(30)
        try:
            yield Broker(broker=broker, url=broker.url, management_url=management.url, broker_loop=loop)
        finally:
            asyncio.run_coroutine_threadsafe(management.__aexit__(), loop).result(10)


def publish(url: str, exchange: str, key: str, count: int, **properties: Any) -> None:
    """So many messages, `m0` to `m{count - 1}`, each confirmed."""

    async def run() -> None:
        async with Client(url) as client:
            publisher = await client.publisher()
            for number in range(count):
                made = wire.Properties.of(message_id=f"m{number}", delivery_mode=2, **properties)
                assert await publisher.publish(exchange, key, b'{"n": %d}' % number, made) == Confirmed()

    asyncio.run(run())


def taken(url: str, queue: str) -> list[wire.Got]:
    """Everything in a queue, taken out of it."""

    async def run() -> list[wire.Got]:
        found = []
        async with Client(url) as client:
            channel = await client.channel()
            while (got := await channel.get_message(queue, no_ack=True)) is not None:
                found.append(got)
        return found

    return asyncio.run(run())


DECLARED = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.#"]}, retry: [1s]}
  bills: {from: {shop: ["bills.#"]}, retry: {shape: per-queue, delays: [1h], attempts: 3}}
"""


class Scene:
    """A broker, and a database that is empty yet."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.file = str(folder / "redrive.yaml")
        self.environment = {**broker.environment, "REDRIVE_DATABASE": f"sqlite:///{folder / 'letters.db'}"}

    def run(self, *arguments: str, typed: bytes = b"", is_terminal: bool = False) -> Ran:
        return redrive(*arguments, typed=typed, is_terminal=is_terminal, **self.environment)

    def park(self, count: int, queue: str = "orders", dlq: str = "orders.parked") -> None:
        headers = {"x-original-queue": queue, "x-final-error": "TimeoutError: slow", "x-retry-count": 1}
        publish(self.broker.url, "", dlq, count, headers=headers, content_type="application/json")

    def collect(self) -> Ran:
        return self.run("collect", self.file, "--once")

    def letters(self) -> list[dict[str, Any]]:
        found = self.run("dlq", "list", "--all", "--oldest-first", "--format", "json").json["letters"]
        assert isinstance(found, list)
        return found

    def statuses(self) -> list[str]:
        return [one["status"] for one in self.letters()]


@contextmanager
def scene_in(folder: Path) -> Iterator[Scene]:
    """A scene with the topology above."""
    (folder / "redrive.yaml").write_text(DECLARED)
    with broker_with(folder / "redrive.yaml") as broker:
        yield Scene(broker, folder)
