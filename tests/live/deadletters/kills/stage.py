"""The broker's side of a cell: a queue, its dead-letter queue, the messages, and who looks at them."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redrive.client import Channel, Client, Confirmed, Publisher
from redrive.core import headers
from redrive.wire import Got, Properties, PropertyChanges
from tests.live.deadletters.kills.cells import QueueType
from tests.live.deadletters.kills.ledger import Copy

MESSAGES = 26
"""More than the first batch of a collector and the first batch of a redriver hold."""
HAND = 20
"""A collector's first batch."""
TWINS = {"twin": 3, "twin with id": 2}
"""Byte for byte the same, so many times."""
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The queues of one cell, called by its name.

    Where the broker is going to be killed nothing may die by a reject before: what a queue dead-letters is not on a
    disk yet when it arrives, so a classic queue of a killed broker has lost it, and a quorum queue may send it a second
    time when it is back. There `parks` publishes to the dead-letter queue, waits for the confirm, then acks.
    """

    url: str
    name: str
    queue_type: QueueType
    parks: bool = False

    @property
    def main(self) -> str:
        return f"{self.name}.main"

    @property
    def dlq(self) -> str:
        return f"{self.name}.dead"

    async def set_up(
        self, *, twins_only: bool = False, messages: int = MESSAGES, forged: Sequence[Mapping[str, Any]] = ()
    ) -> Counter[str]:
        """Declares the queues and lets messages die; what was published, by content. `forged`: headers of messages that
        somebody publishes to the dead-letter queue."""
        twins = {"twin": 2 * HAND} if twins_only else TWINS
        total = sum(twins.values()) if twins_only else messages
        published = Counter(twins)
        async with self._channel() as (client, channel):
            await channel.declare_queue(self.dlq, arguments={"x-queue-type": self.queue_type})
            to_dlq = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dlq}
            await channel.declare_queue(self.main, arguments={"x-queue-type": self.queue_type, **to_dlq})
            publisher = await client.publisher()
            for number in range(total - published.total()):
                content = f"m{number}" if number % 3 else f"n{number}"
                published[content] += 1
                await _publish(publisher, self.main, content, Properties.of(**_properties(content)))
            # Twins die by somebody's publish: the broker would write into each when it died.
            for content, count in twins.items():
                told = {headers.ORIGINAL_QUEUE: self.main, headers.FINAL_ERROR: "TimeoutError: too late"}
                for _ in range(count):
                    properties = Properties.of(headers=told, **_properties(content))
                    await _publish(publisher, self.dlq, content, properties)
            await self._let_die(client, channel, await _take(channel, self.main, total - sum(twins.values())))
            await self._wait_ready(channel, published.total())
        return published + await self.forge("f", forged)

    async def forge(self, prefix: str, forged: Sequence[Mapping[str, Any]]) -> Counter[str]:
        """Somebody publishes messages with these headers to the dead-letter queue; what was published, by content."""
        published: Counter[str] = Counter()
        async with self._channel() as (client, channel):
            before = (await channel.declare_queue(self.dlq, passive=True)).messages_ready
            publisher = await client.publisher()
            for number, told in enumerate(forged):
                content = f"{prefix}{number}"
                published[content] += 1
                properties = Properties.of(headers=dict(told), **_properties(content))
                await _publish(publisher, self.dlq, content, properties)
            await self._wait_ready(channel, before + len(forged))
        return published

    async def tear_down(self) -> None:
        """Deletes the queues."""
        async with self._channel() as (_, channel):
            await channel.delete_queue(self.main)
            await channel.delete_queue(self.dlq)

    async def contents(self, queue: str) -> list[str]:
        """The contents of all messages in a queue, which stay there."""
        async with self.holding(queue) as held:
            return [content_of(one.body) for one in held]

    @asynccontextmanager
    async def holding(self, queue: str) -> AsyncIterator[list[Got]]:
        """All messages of a queue, held for a while; then they are requeued."""
        async with self._channel() as (_, channel):
            yield await _take_all(channel, queue)

    async def copies(self) -> list[Copy]:
        """The redriven copies in the main queue, which stay there."""
        async with self.holding(self.main) as held:
            return [copy_of(one) for one in held]

    async def kill_copies(self) -> int:
        """Everything in the main queue dies again; how many."""
        async with self._channel() as (client, channel):
            held = await _take_all(channel, self.main)
            await self._let_die(client, channel, held)
            await self._wait_ready(channel, len(held))
            return len(held)

    async def _let_die(self, client: Client, channel: Channel, messages: Sequence[Got]) -> None:
        if self.parks:
            publisher = await client.publisher()
            for message in messages:
                told = {headers.ORIGINAL_QUEUE: self.main, headers.FINAL_ERROR: "TimeoutError: too late"}
                properties = message.properties.edit(headers=told)
                assert isinstance(await publisher.publish("", self.dlq, message.body, properties), Confirmed)
        for message in messages:
            if self.parks:
                channel.ack(message)
            else:
                channel.reject(message, requeue=False)

    async def _wait_ready(self, channel: Channel, count: int) -> None:
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while (ready := (await channel.declare_queue(self.dlq, passive=True)).messages_ready) < count:
            assert asyncio.get_running_loop().time() < deadline_s, f"{ready} of {count} messages are in {self.dlq}"
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[tuple[Client, Channel]]:
        async with Client(self.url, name=f"stage {self.name}") as client:
            yield client, await client.channel()


def content_of(body: bytes) -> str:
    """The content id a body carries."""
    return str(json.loads(body)["content"])


def has_id(content: str) -> bool:
    """Some messages have an id, some have none."""
    return not content.startswith("n") and content != "twin"


def copy_of(message: Got) -> Copy:
    """A redriven copy as the ledger wants it."""
    properties = message.properties
    return Copy(
        content=content_of(message.body),
        redriven_id=str(properties.header(headers.REDRIVEN_ID)),
        count=int(properties.header(headers.REDRIVEN_COUNT, 0)),
        is_possible_duplicate=properties.header(headers.POSSIBLE_DUPLICATE) is True,
    )


async def _publish(publisher: Publisher, queue: str, content: str, properties: Properties) -> None:
    outcome = await publisher.publish("", queue, json.dumps({"content": content}).encode(), properties)
    assert isinstance(outcome, Confirmed), outcome


def _properties(content: str) -> PropertyChanges:
    return {"delivery_mode": 2, "message_id": content} if has_id(content) else {"delivery_mode": 2}


async def _take(channel: Channel, queue: str, count: int) -> list[Got]:
    """So many messages, held by the channel."""
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    taken: list[Got] = []
    while len(taken) < count:
        message = await channel.get_message(queue)
        if message is None:
            assert asyncio.get_running_loop().time() < deadline_s, f"{len(taken)} of {count} messages are in {queue}"
            await asyncio.sleep(0.02)
        else:
            taken.append(message)
    return taken


async def _take_all(channel: Channel, queue: str) -> list[Got]:
    """All there are. A queue counts as empty when it was so twice: requeued messages need a moment."""
    taken: list[Got] = []
    empty = 0
    while empty < 2:
        message = await channel.get_message(queue)
        if message is None:
            empty += 1
            await asyncio.sleep(0.05)
        else:
            taken.append(message)
            empty = 0
    return taken
