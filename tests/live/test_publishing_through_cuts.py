"""Connections are cut at random bytes while thousands of publishes are in flight; every message is accounted for."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from rig.brokers import Vhost

from redrive.client import Client, Confirmed, InDoubt, Outcome, Outgoing, ReconnectBackoff, parse_url
from tests.live.cutting_proxy import cutting_proxy

BATCH = 500


async def publish_through_cuts(url: str, *, publishes: int, cuts: int, seed: int) -> None:
    target = parse_url(url)
    host, port = target.hosts[0]
    fate: dict[int, Outcome] = {}
    async with (
        cutting_proxy(host, port, cuts=cuts, bytes_max=2 * BATCH * 400, seed=seed) as proxy,
        Client(target) as direct,
    ):
        channel = await direct.channel()
        await channel.declare_queue("target", arguments={"x-queue-type": "quorum"})
        await asyncio.wait_for(publish_all(replace(target, hosts=(("127.0.0.1", proxy.port),)), fate, publishes), 300)
        assert proxy.cuts_made == cuts, "the plan of cuts was not carried out: publish more, or cut earlier"
        found = await drain(direct, "target")
    assert sorted(fate) == list(range(publishes)), "every publish has an outcome, and only one"
    kinds = Counter(type(outcome) for outcome in fate.values())
    assert set(kinds) <= {Confirmed, InDoubt}
    confirmed = {number for number, outcome in fate.items() if isinstance(outcome, Confirmed)}
    unsent = {number for number, outcome in fate.items() if isinstance(outcome, InDoubt) and not outcome.sent}
    assert confirmed - set(found) == set(), "confirmed, and not in the queue"
    assert {number for number, count in found.items() if count > 1} == set(), "published once, in the queue twice"
    assert unsent & set(found) == set(), "said to be unsent, and in the queue"
    assert kinds[Confirmed] > publishes // 2
    assert kinds[InDoubt] > 0, "no cut hit a publish in flight: the test proves nothing"


async def publish_all(target: object, fate: dict[int, Outcome], publishes: int) -> None:
    """Batches and single publishes side by side, as two kinds of caller would."""
    client = Client(target, backoff=lambda: ReconnectBackoff(first_s=0.005, longest_s=0.05))  # type: ignore[arg-type]
    while True:
        try:
            await client.start()
            break
        except Exception:  # noqa: BLE001 - the proxy may cut the very first handshakes
            continue
    publisher = await client.publisher(window=BATCH)

    async def in_batches(numbers: range) -> None:
        for start in range(numbers.start, numbers.stop, BATCH):
            batch = range(start, min(start + BATCH, numbers.stop))
            outcomes = await publisher.publish_many([Outgoing("", "target", body(number)) for number in batch])
            fate.update(zip(batch, outcomes, strict=True))

    async def one_by_one(numbers: range) -> None:
        for number in numbers:
            fate[number] = await publisher.publish("", "target", body(number))

    half = publishes // 2
    width = (publishes - half) // 50
    singles = [range(half + index * width, half + (index + 1) * width) for index in range(50)]
    singles.append(range(singles[-1].stop, publishes))
    await asyncio.gather(in_batches(range(half)), *(one_by_one(numbers) for numbers in singles))
    await client.close()


def body(number: int) -> bytes:
    return str(number).encode().ljust(256, b" ")


async def drain(client: Client, queue: str) -> Counter[int]:
    found: Counter[int] = Counter()
    deliveries = await client.deliveries(queue, prefetch=1000)
    try:
        while True:
            delivery = await asyncio.wait_for(anext(deliveries), timeout=5)
            found[int(delivery.body)] += 1
            delivery.ack()
    except TimeoutError:
        pass
    await deliveries.close()
    return found


@pytest.mark.live(versions=("3.10",), matrix=("4.0", "4.3"))
def test_100_000_publishes_through_200_cuts_are_all_accounted_for(vhost: Vhost) -> None:
    asyncio.run(publish_through_cuts(vhost.amqp_url, publishes=100_000, cuts=200, seed=1))


@pytest.mark.live(versions=("4.0", "4.3"))
def test_10_000_publishes_through_20_cuts_are_all_accounted_for(vhost: Vhost) -> None:
    asyncio.run(publish_through_cuts(vhost.amqp_url, publishes=10_000, cuts=20, seed=2))
