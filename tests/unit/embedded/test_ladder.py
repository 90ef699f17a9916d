"""A retry ladder of 30 s, 5 m and 30 m, run by a client as the runtime runs it, in milliseconds of real time."""

import asyncio
import time

import pytest

from redrive import wire
from redrive.client import Client, Confirmed, Delivery
from redrive.embedded import PROFILES, EmbeddedBroker

DELAYS_S = (30, 300, 1800)


async def declare_ladder(client: Client) -> None:
    channel = await client.channel()
    quorum = {"x-queue-type": "quorum"}
    await channel.declare_queue("orders.parked", arguments={**quorum, "x-delivery-limit": 1_000_000})
    await channel.declare_queue(
        "orders",
        arguments={
            **quorum,
            "x-delivery-limit": 20,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "orders.parked",
        },
    )
    for delay_s in DELAYS_S:
        await channel.declare_queue(
            f"orders.wait.{delay_s}s",
            arguments={
                **quorum,
                "x-message-ttl": delay_s * 1000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "orders",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
        )
    await channel.close()


async def climb(profile: str) -> tuple[list[float], float, list[str]]:
    """Virtual moments of each attempt, real seconds from the first publish to the parking, and where it ended."""
    async with EmbeddedBroker(profile, time="automatic") as broker, Client(broker.url) as client:
        await declare_ladder(client)
        publisher = await client.publisher()
        attempts: list[float] = []
        parked = asyncio.Event()
        begin_s = broker.now_s

        async def fail(delivery: Delivery) -> None:
            attempts.append(round(broker.now_s - begin_s, 3))
            done = len(attempts) - 1
            target = f"orders.wait.{DELAYS_S[done]}s" if done < len(DELAYS_S) else "orders.parked"
            properties = delivery.properties.edit(headers={"x-retry-count": done + 1}, drop=("x-death",))
            assert await publisher.publish("", target, delivery.body, properties) == Confirmed()
            delivery.ack()
            if target == "orders.parked":
                parked.set()

        consumer = await client.consume("orders", fail)
        started = time.perf_counter()
        message = wire.Properties.of(delivery_mode=2, message_id="order-7")
        assert await publisher.publish("", "orders", b"{}", message) == Confirmed()
        await asyncio.wait_for(parked.wait(), 10)
        took_s = time.perf_counter() - started
        await consumer.close()
        places = [f"{place.state} in {place.queue}" for place in broker.whereabouts("order-7")]
        assert [str(hop) for hop in broker.life("order-7") if hop.rule == "died"] == [
            f"expired in orders.wait.{delay_s}s after {delay_s} s → orders" for delay_s in DELAYS_S
        ]
    return attempts, took_s, places


@pytest.mark.parametrize("profile", PROFILES)
def test_four_failures_on_a_ladder_of_36_minutes_park_the_message_within_milliseconds(profile: str) -> None:
    best_s = 10.0
    for _ in range(3):  # the machine may be busy with something else; time is what is measured
        attempts, took_s, places = asyncio.run(climb(profile))
        assert attempts == [0, 30, 330, 2130]
        assert places == ["ready in orders.parked"]
        best_s = min(best_s, took_s)
    assert best_s < 0.05
