"""aio-pika with its robust connection; publishing concurrently is left to asyncio, as its documentation does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika  # type: ignore[import-not-found,unused-ignore]

from bench.amqp.clients.contract import CONTENT_TYPE, RETRIES, Case, Progress, count_retries, run


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
                message = aio_pika.Message(
                    case.body, content_type=CONTENT_TYPE, delivery_mode=aio_pika.DeliveryMode.PERSISTENT
                )
                await channel.default_exchange.publish(message, routing_key=case.source)
                progress.settle()

        progress.begin()
        await asyncio.gather(*(publish_some() for _ in range(min(case.window, case.messages))))
        return await progress.wait_settled()


async def consume(case: Case) -> float:
    """W2."""
    progress = Progress(case)

    async def on_message(message: Any) -> None:
        progress.begin()
        await message.ack()
        progress.settle()

    async with channel_of(case) as channel:
        return await _consume(channel, case, on_message, progress)


async def retry(case: Case) -> float:
    """W3."""
    progress = Progress(case)
    async with channel_of(case) as channel:

        async def on_message(message: Any) -> None:
            progress.begin()
            if count_retries(message.headers, case.source) < RETRIES:
                await message.reject(requeue=False)
                return
            await channel.default_exchange.publish(message, routing_key=case.target)
            await message.ack()
            progress.settle()

        return await _consume(channel, case, on_message, progress)


async def move(case: Case) -> float:
    """W4; `mandatory` is the default."""
    progress = Progress(case)
    async with channel_of(case) as channel:

        async def on_message(message: Any) -> None:
            progress.begin()
            await channel.default_exchange.publish(message, routing_key=case.target)
            await message.ack()
            progress.settle()

        return await _consume(channel, case, on_message, progress)


async def _consume(channel: Any, case: Case, handler: Callable[[Any], Awaitable[None]], progress: Progress) -> float:
    await channel.set_qos(prefetch_count=case.prefetch)
    queue = await channel.get_queue(case.source, ensure=False)
    await queue.consume(handler)
    return await progress.wait_settled()


@asynccontextmanager
async def channel_of(case: Case) -> AsyncIterator[Any]:
    """A channel with confirms, on which a returned message is an error."""
    connection = await aio_pika.connect_robust(case.url)
    async with connection, connection.channel(publisher_confirms=True, on_return_raises=True) as channel:
        yield channel


if __name__ == "__main__":
    run("aio-pika", {"W0": idle, "W1": publish, "W2": consume, "W3": retry, "W4": move})
