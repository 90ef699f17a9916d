"""FastStream's RabbitBroker: outcomes by its default policy (a handler that returns acks), logging off.

Type checking of handlers (`apply_types`) is off too where the handler needs nothing but the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from faststream.exceptions import RejectMessage  # type: ignore[import-not-found,unused-ignore]
from faststream.rabbit import (  # type: ignore[import-not-found,unused-ignore]
    Channel,
    RabbitBroker,
    RabbitMessage,
    RabbitQueue,
)

from bench.amqp.clients.contract import CONTENT_TYPE, LIFE_S_MAX, RETRIES, Case, Progress, count_retries, run


async def idle(case: Case) -> float:
    """W0."""
    async with running(broker_for(case, apply_types=False)):
        return 0.0


async def publish(case: Case) -> float:
    """W1: as many tasks as the window is wide, each publishing one message after the other."""
    progress = Progress(case)
    left = case.messages
    broker = broker_for(case, apply_types=False)

    async def publish_some() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await broker.publish(case.body, queue=case.source, persist=True, content_type=CONTENT_TYPE)
            progress.settle()

    async with running(broker):
        progress.begin()
        await asyncio.gather(*(publish_some() for _ in range(min(case.window, case.messages))))
        return await progress.wait_settled()


async def consume(case: Case) -> float:
    """W2."""
    progress = Progress(case)
    broker = broker_for(case, apply_types=False)

    async def on_message(_body: Any) -> None:
        progress.begin()
        progress.settle()

    subscribe(broker, case, on_message)
    async with running(broker):
        return await progress.wait_settled()


async def retry(case: Case) -> float:
    """W3."""
    progress = Progress(case)
    broker = broker_for(case, apply_types=True)

    async def on_message(message: RabbitMessage) -> None:
        progress.begin()
        if count_retries(message.headers, case.source) < RETRIES:
            raise RejectMessage
        await pass_on(broker, message, case.target)
        progress.settle()

    subscribe(broker, case, on_message)
    async with running(broker):
        return await progress.wait_settled()


async def move(case: Case) -> float:
    """W4; `mandatory` is the default."""
    progress = Progress(case)
    broker = broker_for(case, apply_types=True)

    async def on_message(message: RabbitMessage) -> None:
        progress.begin()
        await pass_on(broker, message, case.target)
        progress.settle()

    subscribe(broker, case, on_message)
    async with running(broker):
        return await progress.wait_settled()


async def pass_on(broker: Any, message: Any, queue: str) -> None:
    """Publish a received message again and wait for its confirm."""
    await broker.publish(
        message.body, queue=queue, persist=True, headers=message.headers, content_type=message.content_type
    )


def broker_for(case: Case, *, apply_types: bool) -> Any:
    """A broker whose channel has the prefetch, and on which a returned message is an error."""
    channel = Channel(prefetch_count=case.prefetch, on_return_raises=True)
    return RabbitBroker(
        case.url, default_channel=channel, logger=None, apply_types=apply_types, graceful_timeout=LIFE_S_MAX
    )


def subscribe(broker: Any, case: Case, handler: Any) -> None:
    """Handle what the queue has, which exists."""
    broker.subscriber(RabbitQueue(case.source, declare=False))(handler)


@asynccontextmanager
async def running(broker: Any) -> AsyncIterator[None]:
    """Connected and consuming; handlers that still run have ended when it is left."""
    await broker.start()
    try:
        yield
    finally:
        await broker.stop()


if __name__ == "__main__":
    run("faststream", {"W0": idle, "W1": publish, "W2": consume, "W3": retry, "W4": move})
