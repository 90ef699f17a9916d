"""A stage for apps: an embedded broker with a declared topology, the app at work on it, and where every message is."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from redrive import wire
from redrive.client import Client, Confirmed
from redrive.embedded import EmbeddedBroker
from redrive.runtime import App, AppRunner, AppRunOptions
from redrive.topology import Compiled, compile_declaration, read_declaration
from redrive.wiring import declare_missing, running
from tests.unit.client.scenario import Notes

LADDER = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.#"]}, retry: [30s, 5m]}
"""


def compiled(text: str = LADDER) -> Compiled:
    return compile_declaration(read_declaration(text, file="redrive.yaml"))


@dataclass
class Stage:
    """What a test has in hand."""

    broker: EmbeddedBroker
    client: Client
    notes: Notes
    publishes: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    async def publish(
        self, queue: str, body: bytes = b"{}", *, exchange: str = "", message_id: str | None = None, **properties: Any
    ) -> str:
        self.publishes += 1
        name = f"m{self.publishes}" if message_id is None else message_id
        publisher = await self.client.publisher()
        made = wire.Properties.of(delivery_mode=2, message_id=name, **properties)
        assert await publisher.publish(exchange, queue, body, made) == Confirmed()
        await publisher.close()
        return name

    async def publish_copy(
        self, queue: str, body: bytes = b"{}", *, message_id: str, headers: dict[str, Any], **properties: Any
    ) -> str:
        """A copy that one of our consumers may have made: its headers are believed."""
        made = wire.Properties.of(message_id=message_id, **properties)
        digest = wire.digest_of(made, queue, message_id=message_id, body=body)
        told = {**headers, "x-redrive-digest": digest}
        return await self.publish(queue, body, message_id=message_id, headers=told, **properties)

    @asynccontextmanager
    async def running(self, app: App, **options: Any) -> AsyncIterator[AppRunner]:
        run_options = AppRunOptions(
            now_ms=lambda: round(self.broker.now_s * 1000), **{"grace_s": 5, "linger_s": 0, **options}
        )
        async with running(app, url=self.broker.url, observer=self.notes, options=run_options) as runner:
            yield runner

    def places(self, *ids: str) -> list[str]:
        """Where messages are: `ready in orders.parked` for each copy of each id."""
        return [f"{place.state} in {place.queue}" for one in ids for place in self.broker.whereabouts(one)]

    async def take(self, queue: str) -> list[wire.Got]:
        """All that is ready, taken for good."""
        channel = await self.client.channel()
        found = []
        while (got := await channel.get_message(queue, no_ack=True)) is not None:
            found.append(got)
        await channel.close()
        return found

    def decisions(self) -> Counter[str]:
        return Counter(str(fields["decision"]) for name, fields in self.notes.heard if name == "runtime.decided")


async def until(condition: Callable[[], object], *, timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - conditions are of many kinds, and a deadline bounds the wait
            await asyncio.sleep(0.001)


@asynccontextmanager
async def stage(
    declared: Compiled | str = LADDER, *, profile: str = "4.3", time: str = "automatic"
) -> AsyncIterator[Stage]:
    topology = compiled(declared) if isinstance(declared, str) else declared
    async with EmbeddedBroker(profile, time=time) as broker:
        await declare_missing(topology, lambda _: Client(broker.url))
        async with Client(broker.url) as client:
            yield Stage(broker=broker, client=client, notes=Notes())


async def delete(on: Stage, queue: str) -> None:
    channel = await on.client.channel()
    await channel.delete_queue(queue)
    await channel.close()


def failures(on: Stage, event: str = "runtime.publish_failed") -> int:
    return sum(name == event for name, _ in on.notes.heard)
