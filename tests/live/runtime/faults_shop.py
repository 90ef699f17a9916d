"""A shop whose messages say themselves what becomes of them, and where every one of them is.

A message's body is a word for each run (`fail fail ok`; the last one repeats), so that every test tells its story where
it publishes. Queues are counted and emptied by another client (pika): what judges ours must not be ours.
"""

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pika
from rig.brokers import Vhost

from redrive.client import Client, Confirmed, ReconnectBackoff
from redrive.core import Park, Requeue
from redrive.runtime import App, AppRunner, AppRunOptions, Message
from redrive.telemetry import Log, Telemetry
from redrive.topology import Compiled, compile_declaration, read_declaration
from redrive.wire import Properties
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import Held, drain
from tests.unit.client.scenario import Notes, run_scenario, wait_until

PATIENCE_S = 60.0
LADDER = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.#"]}, retry: [100ms, 200ms]}
"""
ALL_SHAPES = """
exchanges: {shop: topic, tiers: topic}
queues:
  ladder: {from: {shop: ["ladder.#"]}, retry: {shape: ladder, delays: [100ms], attempts: 3}}
  tiered: {from: {tiers: ["tiered.*"]}, retry: {shape: tiered, exchange: tiers, delays: [100ms], attempts: 3}}
  service: {from: {shop: ["service.#"]}, retry: {shape: service, service: service, delays: [100ms], attempts: 3}}
  per-queue: {from: {shop: ["per-queue.#"]}, retry: {shape: per-queue, delays: [100ms], attempts: 3}}
  quorum: {from: {shop: ["quorum.#"]}, retry: {shape: quorum, delays: [100ms], attempts: 3}}
  requeue: {from: {shop: ["requeue.#"]}, retry: {shape: requeue, attempts: 3}}
"""
NATIVE = """
  native: {from: {shop: ["native.#"]}, retry: {shape: native, min: 100ms, max: 200ms, attempts: 3}}
"""


class NoSuchCustomer(Exception):
    """What goes wrong in the shop."""


class Harmless(Exception):
    """What goes wrong and does not matter."""


class Journal(Notes):
    """Hears everything, and writes the log an operator would read."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = io.StringIO()
        self._telemetry = Telemetry(Log(self._stream, form="json"))

    def note(self, event: str, /, **fields: object) -> None:
        super().note(event, **fields)
        self._telemetry.note(event, **fields)

    def lines(self) -> list[dict[str, Any]]:
        """Every line of the log; nothing is written after this."""
        self._telemetry.close()
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def of(self, event: str) -> list[dict[str, object]]:
        """The fields of every such event."""
        return [fields for name, fields in self.heard if name == event]


class Shop:
    """Declared queues on one broker, a handler for each, and what has happened."""

    def __init__(self, url: str, declared: Compiled) -> None:
        self.url = url
        self.declared = declared
        self.journal = Journal()
        self.runs: list[tuple[str, str, int]] = []
        """Queue, message and attempt of every run, in order."""
        self.handled: list[str] = []
        """Messages whose handler returned."""
        self.acts: dict[str, Callable[[Message], Awaitable[None]]] = {}
        """What further words mean."""

    @property
    def queues(self) -> list[str]:
        return [queue.name for queue in self.declared.topology.queues]

    def attempts(self, name: str) -> list[int]:
        """The attempts that were run of one message."""
        return [attempt for _, message, attempt in self.runs if message == name]

    # Messages

    async def publish(
        self,
        queue: str,
        name: str,
        body: bytes = b"ok",
        *,
        exchange: str = "",
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """One persistent message, confirmed."""
        async with Client(self.url) as client:
            publisher = await client.publisher()
            properties = Properties.of(delivery_mode=2, message_id=name, headers=headers)
            assert await publisher.publish(exchange, queue, body, properties) == Confirmed()

    async def publish_all(self, queue: str, fates: Mapping[str, str]) -> None:
        """Many, by name and fate."""
        async with Client(self.url) as client:
            publisher = await client.publisher()
            outcomes = await asyncio.gather(
                *(
                    publisher.publish("", queue, fate.encode(), Properties.of(delivery_mode=2, message_id=name))
                    for name, fate in fates.items()
                )
            )
            assert outcomes == [Confirmed()] * len(fates)

    async def counts(self, url: str | None = None) -> dict[str, int]:
        """How many messages are ready in every queue that has some and still exists."""
        return await asyncio.to_thread(_ready_everywhere, url or self.url, self.queues)

    async def wait_counts(self, expected: Mapping[str, int], *, at_least: bool = False, url: str | None = None) -> None:
        """Until the queues hold exactly this: what is given back, or dead-lettered, takes a moment to be there.

        `at_least`: these queues and no others, and duplicates may be in them.
        """
        found: dict[str, int] = {}

        def are_there() -> bool:
            enough = found.keys() == expected.keys() and all(found[queue] >= expected[queue] for queue in found)
            return enough if at_least else found == expected

        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    found = await self.counts(url)
                    if are_there():
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"the queues hold {found}, expected {dict(expected)}") from None

    async def take(self, queue: str, url: str | None = None) -> list[Held]:
        """All that is ready in one queue, taken for good."""
        return await asyncio.to_thread(drain, url or self.url, queue)

    async def census(self, url: str | None = None) -> dict[str, Counter[str]]:
        """Every message there is, by queue and name, taken for good. Ask when nothing is under way any more."""
        found = {queue: await self.take(queue, url) for queue in self.queues}
        return {queue: Counter(str(one.properties.message_id) for one in held) for queue, held in found.items() if held}

    # Queues

    async def delete(self, *queues: str) -> None:
        """As an operator would."""
        async with Client(self.url) as client:
            channel = await client.channel()
            for queue in queues:
                await channel.delete_queue(queue)

    async def declare(self) -> None:
        """What is missing."""
        await declare_missing(self.declared, lambda _: Client(self.url))

    # The app

    def app(self, *queues: str, **options: Any) -> App:
        """Consumes all declared queues, or those named."""
        app = App(self.declared)
        for queue in queues or [one.name for one in self.declared.declared]:
            app.consumer(queue, **options)(self.handle)
        return app

    async def handle(self, body: bytes, message: Message) -> None:
        """Does what the body says for this run."""
        words = body.decode().split()
        word = words[min(message.attempt, len(words)) - 1]
        name = str(message.id)
        self.runs.append((message.queue, name, message.attempt))
        match word:
            case "ok":
                pass
            case "fail":
                raise NoSuchCustomer(f"run {message.attempt} of {name}")
            case "park":
                raise Park("not worth a retry")
            case "harmless":
                raise Harmless("never mind")
            case "requeue":
                raise Requeue(0)
            case _:
                await self.acts[word](message)
        self.handled.append(name)

    @asynccontextmanager
    async def open(
        self,
        app: App | None = None,
        *,
        consuming: str | None = None,
        publishing: str | None = None,
        checkpoint: Callable[[str], None] | None = None,
        grace_s: float = 5.0,
    ) -> AsyncIterator[AppRunner]:
        """An app at work, by default this shop's own; its two connections may lead elsewhere."""
        ways = {"consuming": consuming, "publishing": publishing}

        def connect(purpose: str) -> Client:
            return Client(ways[purpose] or self.url, name=purpose, observer=self.journal, backoff=_impatient)

        async with running(
            self.app() if app is None else app,
            url=self.url,
            observer=self.journal,
            options=AppRunOptions(checkpoint=checkpoint, grace_s=grace_s),
            connect=connect,
        ) as runner:
            yield runner

    async def until(self, condition: Callable[[], object], *, timeout_s: float = PATIENCE_S) -> None:
        """Until it holds; what was heard last says where it got stuck otherwise."""
        try:
            await wait_until(condition, timeout_s=timeout_s)
        except TimeoutError:
            heard = [f"{name} {fields}" for name, fields in self.journal.heard[-12:]]
            raise AssertionError("\n".join(["never came true", f"runs: {self.runs[-20:]}", *heard])) from None


def shapes_of(vhost: Vhost) -> str:
    """Every shape that the broker's version has."""
    return ALL_SHAPES + NATIVE if vhost.profile == "4.3" else ALL_SHAPES


def at(place: str, act: Callable[[], None]) -> Callable[[str], None]:
    """A checkpoint that acts when a place is reached for the first time."""
    done: list[str] = []

    def reach(reached: str) -> None:
        if reached == place and not done:
            done.append(place)
            act()

    return reach


def play(scenario: Callable[[], Awaitable[None]], *, timeout_s: float = 2 * PATIENCE_S) -> None:
    """Runs a scenario to its end."""

    async def all_of_it() -> None:
        await scenario()

    run_scenario(all_of_it(), timeout_s=timeout_s)


async def open_shop(url: str, declared: str = LADDER) -> Shop:
    """A shop with its queues declared."""
    shop = Shop(url, compile_declaration(read_declaration(declared, file="redrive.yaml")))
    await shop.declare()
    return shop


def _ready_everywhere(url: str, queues: list[str]) -> dict[str, int]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    found = {}
    try:
        for queue in queues:
            channel = connection.channel()
            try:
                found[queue] = int(channel.queue_declare(queue, passive=True).method.message_count)
                channel.close()
            except pika.exceptions.ChannelClosedByBroker as error:
                assert error.reply_code == 404, error
    finally:
        connection.close()
    return {queue: count for queue, count in found.items() if count}


def _impatient() -> ReconnectBackoff:
    return ReconnectBackoff(first_s=0.05, longest_s=0.5)
