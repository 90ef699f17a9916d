"""A retry ladder of 30 s, 5 m and 30 m, climbed by three clients: a consumer that fails every time it is called.

Each publishes one order, and on every failure publishes it to the next wait queue (confirmed), acks the delivery, and
at last parks it. All is ordinary code for its library; nothing here knows that time is virtual. Each tells the real
seconds from the first publish until the last ack, without importing, connecting and declaring.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aio_pika
import pika

from redrive import wire
from redrive.client import Client, Confirmed, Delivery, Dial

DELAYS_S = (30, 300, 1800)
PARKED = "orders.parked"
ORDER = "order-7"
QUORUM = {"x-queue-type": "quorum"}

QUEUES: dict[str, dict[str, Any]] = {
    PARKED: {**QUORUM, "x-delivery-limit": 1_000_000},
    "orders": {
        **QUORUM,
        "x-delivery-limit": 20,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": PARKED,
    },
} | {
    f"orders.wait.{delay_s}s": {
        **QUORUM,
        "x-message-ttl": delay_s * 1000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "orders",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    for delay_s in DELAYS_S
}


def next_step(headers: dict[str, Any] | None) -> tuple[str, int]:
    """Where a message that failed goes next, and its retry count there."""
    retries = int((headers or {}).get("x-retry-count", 0))
    if retries == len(DELAYS_S):
        return PARKED, retries
    return f"orders.wait.{DELAYS_S[retries]}s", retries + 1


async def climb_with_redrive(url: str, dial: Dial | None = None, *, patience_s: float = 30) -> float:
    """Our own client; `patience_s` are the event loop's, which may be virtual."""
    async with Client(url, dial=dial) as client:
        channel = await client.channel()
        for name, arguments in QUEUES.items():
            await channel.declare_queue(name, arguments=arguments)
        publisher = await client.publisher()
        parked = asyncio.Event()

        async def fail(delivery: Delivery) -> None:
            target, retries = next_step(delivery.properties.headers)
            properties = delivery.properties.edit(headers={"x-retry-count": retries}, drop=("x-death",))
            assert await publisher.publish("", target, delivery.body, properties) == Confirmed()
            delivery.ack()
            if target == PARKED:
                parked.set()

        consumer = await client.consume("orders", fail)
        began_s = time.perf_counter()
        message = wire.Properties.of(delivery_mode=2, message_id=ORDER)
        assert await publisher.publish("", "orders", b"{}", message) == Confirmed()
        await asyncio.wait_for(parked.wait(), patience_s)
        took_s = time.perf_counter() - began_s
        await consumer.close()
        return took_s


def climb_with_pika(url: str) -> float:
    """pika's blocking connection."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for name, arguments in QUEUES.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=10)
    began_s = time.perf_counter()
    channel.basic_publish("", "orders", b"{}", pika.BasicProperties(message_id=ORDER, delivery_mode=2), mandatory=True)
    for method, properties, body in channel.consume("orders", inactivity_timeout=30):
        assert method is not None, "nothing was delivered for half a minute"
        target, retries = next_step(properties.headers)
        copy = pika.BasicProperties(message_id=ORDER, delivery_mode=2, headers={"x-retry-count": retries})
        channel.basic_publish("", target, body, copy, mandatory=True)
        channel.basic_ack(method.delivery_tag)
        if target == PARKED:
            break
    took_s = time.perf_counter() - began_s
    channel.cancel()
    connection.close()
    return took_s


async def climb_with_aio_pika(url: str) -> float:
    """aio-pika's robust connection."""
    connection = await aio_pika.connect_robust(url)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        for name, arguments in QUEUES.items():
            await channel.declare_queue(name, durable=True, arguments=arguments)
        orders = await channel.get_queue("orders")
        persistent = aio_pika.DeliveryMode.PERSISTENT
        began_s = time.perf_counter()
        first = aio_pika.Message(b"{}", message_id=ORDER, delivery_mode=persistent)
        await channel.default_exchange.publish(first, "orders")
        async with orders.iterator(timeout=30) as deliveries:
            async for delivery in deliveries:
                target, retries = next_step(delivery.headers)
                copy = aio_pika.Message(
                    delivery.body, message_id=ORDER, delivery_mode=persistent, headers={"x-retry-count": retries}
                )
                await channel.default_exchange.publish(copy, target)
                await delivery.ack()
                if target == PARKED:
                    break
            took_s = time.perf_counter() - began_s
    return took_s


CLIMBS: dict[str, Callable[[str], float]] = {
    "redrive": lambda url: asyncio.run(climb_with_redrive(url)),
    "pika": climb_with_pika,
    "aio-pika": lambda url: asyncio.run(climb_with_aio_pika(url)),
}
"""A climb by each client, as a plain call."""
