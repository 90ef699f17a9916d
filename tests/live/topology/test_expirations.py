"""What becomes of a message that expires in its main queue, on real brokers, as docs/reference/shapes.md says it."""

import asyncio
from collections import Counter

import pytest
from rig.brokers import Vhost

from redrive.client import Client, Confirmed
from redrive.wire import Properties
from tests.live.runtime.faults_shop import open_shop, play

DECLARED = """
exchanges: {shop: topic}
queues:
  ladder: {from: {shop: ["ladder.*"]}, retry: [200ms]}
  tiered: {from: {shop: ["tiered.*"]}, retry: {shape: tiered, delays: [200ms], dlq: tiered.dlq, dlx: tiered.dlx}}
  requeue: {from: {shop: ["requeue.*"]}, retry: {shape: requeue}}
  per-queue: {from: {shop: ["per.*"]}, retry: {shape: per-queue, delays: [200ms]}}
  quorum: {from: {shop: ["quorum.*"]}, retry: {shape: quorum, delays: [200ms]}}
"""
QUEUES = ("ladder", "tiered", "requeue", "per-queue", "quorum")


@pytest.mark.live(versions=("3.10", "4.0", "4.3"))
def test_where_messages_are_that_expired_in_their_main_queues(vhost: Vhost) -> None:
    """What the loops of rejects drop or hold is ready nowhere."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, DECLARED)
        async with Client(vhost.amqp_url) as client:
            publisher = await client.publisher()
            for queue in QUEUES:
                made = Properties.of(delivery_mode=2, message_id=queue, expiration="100")
                assert await publisher.publish("", queue, b"ok", made) == Confirmed()
        expected = {"ladder.parked": 1, "tiered.dlq": 1, "requeue.dlq": 1}
        await shop.wait_counts(expected)
        await asyncio.sleep(2)  # nothing comes back from a retry queue
        await shop.wait_counts(expected)
        assert await shop.census() == {
            "ladder.parked": Counter(["ladder"]),
            "tiered.dlq": Counter(["tiered"]),
            "requeue.dlq": Counter(["requeue"]),
        }

    play(scenario)
