"""Our own client: a coroutine as handler, a task for each message, an outcome for each publish."""

from __future__ import annotations

from bench.amqp.clients.contract import CONTENT_TYPE, PERSISTENT, RETRIES, Case, Progress, count_retries, run
from redrive.client import Client, Confirmed, Delivery, Outgoing, Publisher
from redrive.wire import Properties


async def idle(case: Case) -> float:
    """W0."""
    async with Client(case.url) as client:
        await client.channel()
    return 0.0


async def publish(case: Case) -> float:
    """W1: the batch call, with the outcome of every message looked at."""
    progress = Progress(case)
    properties = Properties.of(content_type=CONTENT_TYPE, delivery_mode=PERSISTENT)
    async with Client(case.url) as client:
        publisher = await client.publisher(window=case.window)
        messages = [Outgoing("", case.source, case.body, properties)] * case.messages
        progress.begin()
        for outcome in await publisher.publish_many(messages):
            if not isinstance(outcome, Confirmed):
                progress.fail(f"a publish ended as {outcome}")
            progress.settle()
        return await progress.wait_settled()


async def consume(case: Case) -> float:
    """W2."""
    progress = Progress(case)

    async def handle(delivery: Delivery) -> None:
        progress.begin()
        delivery.ack()
        progress.settle()

    async with Client(case.url) as client:
        await client.consume(case.source, handle, prefetch=case.prefetch)
        return await progress.wait_settled()


async def retry(case: Case) -> float:
    """W3."""
    progress = Progress(case)

    async with Client(case.url) as client:
        publisher = await client.publisher(window=case.window)

        async def handle(delivery: Delivery) -> None:
            progress.begin()
            deaths = {"x-death": delivery.properties.header("x-death", ())}  # the other headers stay undecoded
            if count_retries(deaths, case.source) < RETRIES:
                delivery.reject(requeue=False)
            else:
                await move_one(publisher, delivery, case.target, progress)

        await client.consume(case.source, handle, prefetch=case.prefetch)
        return await progress.wait_settled()


async def move(case: Case) -> float:
    """W4."""
    progress = Progress(case)

    async with Client(case.url) as client:
        publisher = await client.publisher(window=case.window)

        async def handle(delivery: Delivery) -> None:
            progress.begin()
            await move_one(publisher, delivery, case.target, progress)

        await client.consume(case.source, handle, prefetch=case.prefetch)
        return await progress.wait_settled()


async def move_one(publisher: Publisher, delivery: Delivery, target: str, progress: Progress) -> None:
    """Publish, and ack only what was confirmed."""
    outcome = await publisher.publish("", target, delivery.body, delivery.header)
    if not isinstance(outcome, Confirmed):
        progress.fail(f"a publish ended as {outcome}")
        return
    delivery.ack()
    progress.settle()


if __name__ == "__main__":
    run("redrive", {"W0": idle, "W1": publish, "W2": consume, "W3": retry, "W4": move})
