"""An exchange that is missing while the app runs: what is to go there is held, and nothing else runs twice for it."""

from collections import Counter

import pytest
from rig.brokers import Vhost

from redrive.client import Client
from tests.live.runtime.faults_shop import open_shop, play

DECLARED = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.*"]}, retry: {shape: tiered, delays: [200ms]}}
"""


@pytest.mark.live(versions=("3.10", "4.0", "4.3"))
def test_a_missing_dead_letter_exchange_doubles_no_retries(vhost: Vhost) -> None:
    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, DECLARED)
        async with shop.open():
            async with Client(vhost.amqp_url) as client:
                channel = await client.channel()
                await channel.delete_exchange("shop.dlx")
            await shop.publish("orders", "first", b"park")
            await shop.until(lambda: shop.journal.count("runtime.publish_failed"))
            fates = {f"{number}": "park" if number % 20 == 0 else "fail ok" for number in range(200)}
            await shop.publish_all("orders", fates)
            retried = [name for name, fate in fates.items() if fate != "park"]
            await shop.until(lambda: set(retried) <= set(shop.handled))
            # Each try for a parked copy closed a channel, and no retry was in flight on it.
            assert shop.journal.count("publisher.channel_lost") >= 10
            assert Counter(shop.handled) == dict.fromkeys(retried, 1)
            assert Counter(name for _, name, _ in shop.runs if name in retried) == dict.fromkeys(retried, 2)
            await shop.declare()
            await shop.wait_counts({"shop.dlq": 11})
        found = await shop.census()
        assert found == {"shop.dlq": Counter(["first", *(name for name, fate in fates.items() if fate == "park")])}

    play(scenario, timeout_s=120)
