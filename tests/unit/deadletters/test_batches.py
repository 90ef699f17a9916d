"""Batches: taken from a queue, and settled all at once."""

import asyncio

from redrive.client import Client
from redrive.deadletters.collect.batches import BatchTaker
from redrive.embedded import EmbeddedBroker
from redrive.testing import run_in_virtual_time
from tests.unit.deadletters.collector_scene import numbered, park


def test_one_ack_settles_the_whole_batch_and_nothing_of_it_comes_again() -> None:
    """An ack of its first message only would leave the others to be stored a second time."""

    async def scenario() -> None:
        async with (
            EmbeddedBroker(listen=False) as broker,
            Client(broker.url, dial=broker.dial) as client,
        ):
            channel = await client.channel()
            await channel.declare_queue("orders.parked")
            await park(client, "orders.parked", numbered(5))
            taker = BatchTaker(client, "orders.parked")
            taken = await taker.take(at_least=0, idle_s=1.0, stop=asyncio.Event())
            assert [one.body for one in taken.deliveries] == [b"body %d" % number for number in range(5)]
            await park(client, "orders.parked", numbered(1, start=5))  # came later: it is not in the batch
            taken.ack()
            await taken.wait_settled()
            await taken.close()
            left = await channel.get_message("orders.parked")
            assert left is not None
            assert (left.body, left.redelivered) == (b"body 5", False)
            assert await channel.get_message("orders.parked") is None

    run_in_virtual_time(scenario())
