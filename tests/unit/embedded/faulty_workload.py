"""A workload under faults from a seed: every message is published until it is confirmed, and consumed."""

import asyncio
import random
from typing import Any

from redrive import wire
from redrive.client import Client, ClientError, Confirmed, Delivery, Publisher, ReconnectBackoff
from redrive.embedded import EmbeddedBroker, FaultRates, Faults
from redrive.testing import run_in_virtual_time

RATES = FaultRates(
    close_before=0.01,
    close_after=0.01,
    delay=0.02,
    block=0.005,
    restart=0.005,
    lose_confirm=0.03,
    nack_confirm=0.03,
    delay_confirm=0.03,
    seconds_max=20,
    faults_max=40,
)
MESSAGES = 60


class FaultyWorkload:
    """Plays the workload when it is made, in virtual time; lists what happened."""

    def __init__(self, seed: int) -> None:
        self.broker = EmbeddedBroker(
            listen=False, begin_s=1_700_000_000, faults=Faults.from_seed(seed, RATES), seed=seed
        )
        self._random = random.Random(seed)
        self.consumed: list[tuple[float, str, bool]] = []
        self.tries: list[tuple[str, str]] = []
        run_in_virtual_time(self._main())

    async def _main(self) -> None:
        broker = self.broker
        async with broker, Client(broker.url, dial=broker.dial, backoff=self._backoff) as client:
            declared = False
            while not declared:
                declared = await self._declare(client)
            publisher = await client.publisher(window=10)
            consumer = await client.consume("q", self._take, prefetch=5)
            async with asyncio.TaskGroup() as group:
                for number in range(MESSAGES):
                    group.create_task(self._publish(publisher, f"m{number}"))
            for _ in range(3600):  # of virtual seconds
                if broker.depths() == {"q": 0}:
                    break
                await asyncio.sleep(1)
            await consumer.close()

    async def _declare(self, client: Client) -> bool:
        try:
            channel = await client.channel()
            await channel.declare_queue("q", arguments={"x-queue-type": "quorum", "x-delivery-limit": 1000})
        except ClientError:
            return False
        return True

    async def _publish(self, publisher: Publisher, name: str) -> None:
        outcome: object = None
        while outcome != Confirmed():
            outcome = await publish(publisher, name, deadline_s=60)
            self.tries.append((name, type(outcome).__name__))

    async def _take(self, delivery: Delivery) -> None:
        await asyncio.sleep(self._random.random() / 10)
        self.consumed.append((now_s(), delivery.properties.message_id or "", delivery.redelivered))
        delivery.ack()

    def _backoff(self) -> ReconnectBackoff:
        return ReconnectBackoff(random=self._random.random)


def as_text(run: FaultyWorkload) -> str:
    """Everything that happened, as text."""
    lives = [[str(hop) for hop in run.broker.life(f"m{number}")] for number in range(MESSAGES)]
    return repr((run.broker.faults.fired, run.tries, run.consumed, lives))


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def publish(publisher: Publisher, message_id: str, **options: Any) -> object:
    properties = wire.Properties.of(delivery_mode=2, message_id=message_id)
    return await publisher.publish("", "q", b"{}", properties, **options)
