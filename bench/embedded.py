"""How fast and how large the embedded broker is: `python -m bench.embedded`.

engine       publish + deliver + ack on the engine alone, one core
depth        a publish into a queue that holds a million messages, against one into an empty queue
memory       bytes for each queued message of 256 bytes with an id
over TCP     messages a second from our own client to the broker and back, confirmed and acked, both in one process
start        from nothing to a port that answers
"""

import asyncio
import gc
import time
import tracemalloc

from redrive import wire
from redrive.client import Client, Delivery, Outgoing
from redrive.embedded import PROFILES, EmbeddedBroker
from redrive.embedded.engine import Channel, Engine

BODY = b"x" * 256
MESSAGES = 50_000
DEPTH = 1_000_000
SAMPLE = 100_000


def engine_with_queue(profile: str, kind: str) -> tuple[Engine, Channel]:
    engine = Engine(PROFILES[profile], 0)
    channel = engine.connect("/", "guest").open_channel(1)
    channel.declare_queue("q", durable=True, arguments={"x-queue-type": kind})
    return engine, channel


def rounds_a_second(profile: str, kind: str) -> float:
    engine, channel = engine_with_queue(profile, kind)
    channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
    headers = [wire.Properties.of(delivery_mode=2, message_id=str(number)).raw for number in range(MESSAGES)]
    started = time.perf_counter()
    for header in headers:
        channel.publish("", "q", header, BODY)
        channel.ack(channel.delivery_tag)
        engine.take_effects()
    return MESSAGES / (time.perf_counter() - started)


def publishes_a_second(channel: Channel, count: int) -> float:
    headers = [wire.Properties.of(delivery_mode=2, message_id=f"d{number}").raw for number in range(count)]
    started = time.perf_counter()
    for header in headers:
        channel.publish("", "q", header, BODY)
    return count / (time.perf_counter() - started)


def depth(kind: str) -> tuple[float, float]:
    """Publishes a second into an empty queue and into one of a million."""
    _, channel = engine_with_queue("4.3", kind)
    gc.disable()
    empty = publishes_a_second(channel, MESSAGES)
    while channel.declare_queue("q", passive=True)[1] < DEPTH:
        publishes_a_second(channel, SAMPLE)
    full = publishes_a_second(channel, MESSAGES)
    gc.enable()
    return empty, full


def bytes_a_message(kind: str) -> float:
    _, channel = engine_with_queue("4.3", kind)
    gc.collect()
    tracemalloc.start()
    for number in range(SAMPLE):
        header = wire.Properties.of(delivery_mode=2, message_id=f"message-{number}").raw
        channel.publish("", "q", header, bytes(bytearray(BODY)))  # a body of its own, as the network brings it
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / SAMPLE


async def over_tcp(kind: str) -> float:
    async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client:
        channel = await client.channel()
        await channel.declare_queue("q", arguments={"x-queue-type": kind})
        publisher = await client.publisher(window=2000)
        done = asyncio.Event()
        count = 0

        def take(delivery: Delivery) -> None:
            nonlocal count
            delivery.ack()
            count += 1
            if count == MESSAGES:
                done.set()

        await client.consume("q", take, prefetch=1000)
        properties = wire.Properties.of(delivery_mode=2)
        started = time.perf_counter()
        for _ in range(0, MESSAGES, 1000):
            await publisher.publish_many([Outgoing("", "q", BODY, properties)] * 1000)
        await done.wait()
        return MESSAGES / (time.perf_counter() - started)


async def start_s() -> float:
    started = time.perf_counter()
    async with EmbeddedBroker() as broker, Client(broker.url):
        return time.perf_counter() - started


def main() -> None:
    """Prints the table."""
    for profile in PROFILES:
        for kind in ("classic", "quorum"):
            print(f"engine    {profile:<5} {kind:<8} {rounds_a_second(profile, kind):>10,.0f} rounds a second")
    for kind in ("classic", "quorum"):
        print(f"over TCP  4.3   {kind:<8} {asyncio.run(over_tcp(kind)):>10,.0f} confirmed and acked a second")
    for kind in ("classic", "quorum"):
        print(f"memory    4.3   {kind:<8} {bytes_a_message(kind):>10,.0f} bytes a queued message of 256 bytes")
    for kind in ("classic", "quorum"):
        empty, full = depth(kind)
        print(f"depth     4.3   {kind:<8} {empty:>10,.0f} publishes a second when empty, {full:,.0f} at a million")
    print(f"start     4.3            {asyncio.run(start_s()) * 1000:>10,.1f} ms until a client is connected")


if __name__ == "__main__":
    main()
