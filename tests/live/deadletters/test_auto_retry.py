"""Auto-retry on real brokers, with short times: three attempts and failed, or silence and resolved."""

import asyncio
from pathlib import Path

import pytest
from rig.brokers import Vhost

from redrive.client import Client, Confirmed
from redrive.deadletters.redrive.auto_retry import AutoRetry
from redrive.records import RetryRule, Status
from redrive.wire import Properties
from tests.live.client.accounts import drain
from tests.live.deadletters.redriver_stage import RedrivingStage, redriving_stage
from tests.unit.deadletters.arrivals import now_ms, random_bits

pytestmark = [pytest.mark.live, pytest.mark.slow]
RULE = RetryRule(scope="queue:orders", attempts=3, first_ms=50, ceiling_ms=200, settle_ms=1_500)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'redrive.db'}"
    return str(request.getfixturevalue("postgres_url"))


async def declare(on: RedrivingStage) -> None:
    channel = await on.client.channel()
    await channel.declare_queue("orders.parked")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.parked"}
    await channel.declare_queue("orders", arguments=dead)
    await channel.close()


async def reach(on: RedrivingStage, id: str, status: Status) -> None:
    """Until the dead letter has the status."""
    async with asyncio.timeout(60):
        while True:
            letter = await on.store.letters.get(id)
            assert letter is not None
            if letter.status is status:
                return
            await asyncio.sleep(0.05)


def test_bad_ones_fail_after_three_attempts_and_good_ones_are_resolved_by_silence(
    vhost: Vhost, database_url: str
) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), redriving_stage(database_url, vhost.amqp_url, vhost.name) as on:
            await declare(on)
            await on.store.rules.set(RULE, now_ms=now_ms())
            publisher = await on.client.publisher()
            for name in ("bad", "good"):
                properties = Properties.of(message_id=name, delivery_mode=2)
                assert await publisher.publish("", "orders.parked", name.encode(), properties) == Confirmed()
            ids = (await on.collect("orders.parked")).inserted
            bad, good = ids
            runs: list[bytes] = []

            async def collecting() -> None:
                while True:
                    await on.collect("orders.parked")
                    await asyncio.sleep(0.1)

            deliveries = await on.client.deliveries("orders")

            async def consuming() -> None:
                async for delivery in deliveries:
                    runs.append(delivery.body)
                    if delivery.body == b"bad":
                        delivery.reject(requeue=False)
                    else:
                        delivery.ack()

            stop = asyncio.Event()
            work = [asyncio.create_task(one) for one in (collecting(), consuming())]
            loop = asyncio.create_task(AutoRetry(on.redriver(), random_bits=random_bits, interval_s=0.2).run(stop=stop))
            await reach(on, bad, Status.FAILED)
            await reach(on, good, Status.RESOLVED)
            stop.set()
            await loop
            for task in work:
                task.cancel()
            await asyncio.wait(work)
            assert sorted(runs) == [b"bad"] * 3 + [b"good"]
            letter = await on.store.letters.get(bad)
            assert letter is not None
            assert (letter.redrives, letter.returns, letter.due_at_ms) == (3, 3, None)
            letter = await on.store.letters.get(good)
            assert letter is not None
            assert (letter.redrives, letter.returns) == (1, 0)
            assert "has not come back" in (letter.status_reason or "")

    asyncio.run(main())
    assert drain(vhost.amqp_url, "orders") == []
    assert drain(vhost.amqp_url, "orders.parked") == []


def test_three_at_once_send_what_is_due_once(vhost: Vhost, database_url: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), redriving_stage(database_url, vhost.amqp_url, vhost.name) as on:
            await declare(on)
            await on.store.rules.set(RULE, now_ms=now_ms())
            ids = await on.collected([(Properties.of(message_id=f"m{n}"), b"%d" % n) for n in range(100)])
            await asyncio.sleep(0.1)
            async with Client(vhost.amqp_url) as other:
                looks = [
                    AutoRetry(on.redriver(name, client=client), random_bits=random_bits)
                    for name, client in (("a", on.client), ("b", other), ("c", other))
                ]
                await asyncio.gather(*(one.once() for one in looks for _ in range(3)))
            assert set((await on.statuses(ids)).values()) == {"retrying"}
            there = sorted(held.properties.headers["x-redriven-id"] for held in drain(vhost.amqp_url, "orders"))
            assert there == sorted(ids)

    asyncio.run(main())


def test_a_copy_that_nobody_takes_waits_and_is_resolved_only_when_it_was_taken(vhost: Vhost, database_url: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), redriving_stage(database_url, vhost.amqp_url, vhost.name) as on:
            await declare(on)
            await on.store.rules.set(RULE, now_ms=now_ms())
            publisher = await on.client.publisher()
            properties = Properties.of(message_id="left", delivery_mode=2)
            assert await publisher.publish("", "orders.parked", b"left", properties) == Confirmed()
            (id,) = (await on.collect("orders.parked")).inserted
            later_ms = 0
            retry = AutoRetry(on.redriver(clock_ms=lambda: now_ms() + later_ms), random_bits=random_bits)

            async def status_after(ms: int) -> Status:
                nonlocal later_ms
                later_ms += ms
                await retry.once()
                letter = await on.store.letters.get(id)
                assert letter is not None
                return letter.status

            assert await status_after(1_000) is Status.RETRYING
            for _ in range(3):  # half an hour in which nobody consumes the queue
                assert await status_after(600_000) is Status.WAITING
            assert [one.body for one in await asyncio.to_thread(drain, vhost.amqp_url, "orders")] == [b"left"]
            assert await status_after(600_000) is Status.RETRYING  # it may come back now
            assert await status_after(RULE.settle_ms) is Status.RESOLVED

    asyncio.run(main())
