"""aiormq, the layer below aio-pika; publishing concurrently is left to asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiormq  # type: ignore[import-not-found,unused-ignore]

from bench.amqp.clients.contract import CONTENT_TYPE, PERSISTENT, RETRIES, Case, Progress, count_retries, run


async def idle(case: Case) -> float:
    """W0."""
    async with channel_of(case):
        return 0.0


async def publish(case: Case) -> float:
    """W1: as many tasks as the window is wide, each publishing one message after the other."""
    progress = Progress(case)
    left = case.messages
    async with channel_of(case) as channel:

        async def publish_some() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                properties = aiormq.spec.Basic.Properties(content_type=CONTENT_TYPE, delivery_mode=PERSISTENT)
                await channel.basic_publish(case.body, routing_key=case.source, properties=properties)
                progress.settle()

        progress.begin()
        await asyncio.gather(*(publish_some() for _ in range(min(case.window, case.messages))))
        return await progress.wait_settled()


async def consume(case: Case) -> float:
    """W2."""
    progress = Progress(case)
    async with channel_of(case) as channel:

        async def on_message(message: Any) -> None:
            progress.begin()
            await channel.basic_ack(message.delivery.delivery_tag)
            progress.settle()

        return await _consume(channel, case, on_message, progress)


async def retry(case: Case) -> float:
    """W3."""
    progress = Progress(case)
    async with channel_of(case) as channel:

        async def on_message(message: Any) -> None:
            progress.begin()
            tag = message.delivery.delivery_tag
            if count_retries(message.header.properties.headers, case.source) < RETRIES:
                await channel.basic_reject(tag, requeue=False)
                return
            await _pass_on(channel, message, case.target)
            await channel.basic_ack(tag)
            progress.settle()

        return await _consume(channel, case, on_message, progress)


async def move(case: Case) -> float:
    """W4."""
    progress = Progress(case)
    async with channel_of(case) as channel:

        async def on_message(message: Any) -> None:
            progress.begin()
            await _pass_on(channel, message, case.target)
            await channel.basic_ack(message.delivery.delivery_tag)
            progress.settle()

        return await _consume(channel, case, on_message, progress)


async def _pass_on(channel: Any, message: Any, queue: str) -> None:
    properties = message.header.properties
    await channel.basic_publish(message.body, routing_key=queue, properties=properties, mandatory=True)


async def _consume(channel: Any, case: Case, handler: Callable[[Any], Awaitable[None]], progress: Progress) -> float:
    await channel.basic_qos(prefetch_count=case.prefetch)
    await channel.basic_consume(case.source, handler)
    return await progress.wait_settled()


@asynccontextmanager
async def channel_of(case: Case) -> AsyncIterator[Any]:
    """A channel with confirms, on which a returned message is an error."""
    connection = await aiormq.connect(case.url)
    try:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        yield channel
        await channel.close()
    finally:
        await connection.close()


if __name__ == "__main__":
    run("aiormq", {"W0": idle, "W1": publish, "W2": consume, "W3": retry, "W4": move})
