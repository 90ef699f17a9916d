"""A delivery held beyond the broker's consumer timeout comes again, and its late ack is refused."""

import asyncio

import pytest
from rig.node_pool import OwnNodes

from redrive.client import Client, Confirmed, Delivery, StaleDelivery
from tests.live.client.accounts import ready
from tests.unit.client.scenario import Notes, run_scenario, wait_until

# 4.3 counts the timeout for quorum queues in the queue itself and looks at it now and then; before, the channel did.
CONF = "consumer_timeout = 1000\n"
ADVANCED = "[{rabbit, [{channel_tick_interval, 500}, {consumer_timeout, 1000}]}].\n"


@pytest.mark.live(versions=("3.10", "4.3"), matrix=("4.0",))
def test_a_delivery_held_too_long_is_stale_and_consuming_resumes(own_node: OwnNodes) -> None:
    node = own_node(conf=CONF, advanced=ADVANCED)
    notes = Notes()

    async def scenario() -> None:
        async with Client(node.amqp_url(), observer=notes) as client:
            await (await client.channel()).declare_queue("q", arguments={"x-queue-type": "quorum"})
            publisher = await client.publisher()
            assert await publisher.publish("", "q", b"slow") == Confirmed()
            held: list[Delivery] = []
            stale: list[StaleDelivery] = []

            async def handle(delivery: Delivery) -> None:
                held.append(delivery)
                if len(held) > 1:
                    delivery.ack()
                    return
                await wait_until(lambda: delivery.is_stale, timeout_s=100)
                try:
                    delivery.ack()
                except StaleDelivery as error:
                    stale.append(error)

            consumer = await client.consume("q", handle)
            await wait_until(lambda: len(held) == 2 and stale, timeout_s=100)
            assert consumer.is_consuming
            assert held[1].body == b"slow"
            assert notes.count("consumer.resumed") == 1
            assert notes.count("client.connection_lost") == 0
            if node.profile == "4.3":
                assert notes.count("consumer.cancelled") == 1
            else:
                reason = str(notes.last("consumer.channel_lost")["reason"])
                assert "406 PRECONDITION_FAILED - delivery acknowledgement on channel" in reason
                assert "timed out" in reason
            assert await publisher.publish("", "q", b"quick") == Confirmed()
            await wait_until(lambda: len(held) == 3)
            await asyncio.sleep(0)

    run_scenario(scenario(), timeout_s=120)
    assert ready(node.amqp_url(), "q") == 0
