"""A broker that is short of memory blocks publishers: they wait, go on, and lose nothing."""

import asyncio

import pytest
from rig.node_pool import OwnNodes

from redrive.client import Client, Confirmed, InDoubt
from tests.live.client.accounts import ready
from tests.unit.client.scenario import Notes, run_scenario, wait_until

CONFIRMED = Confirmed()


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_publishing_waits_out_a_memory_alarm_and_everything_is_confirmed(own_node: OwnNodes) -> None:
    node = own_node()
    notes = Notes()

    async def scenario() -> None:
        async with Client(node.amqp_url() + "?heartbeat=2", observer=notes) as client:
            await (await client.channel()).declare_queue("q", arguments={"x-queue-type": "quorum"})
            publisher = await client.publisher(window=50)
            assert await publisher.publish("", "q", b"before") == CONFIRMED
            await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.000001")
            # The broker says so when the connection next publishes.
            publishes = [asyncio.create_task(publisher.publish("", "q", b"%d" % one)) for one in range(500)]
            await wait_until(lambda: notes.count("client.blocked") == 1)
            assert (await client.connection()).blocked == "low on memory"
            in_flight = publisher.in_flight
            assert in_flight <= 50
            unsent = await publisher.publish("", "q", b"unsent", deadline_s=0.2)
            assert unsent == InDoubt("no outcome within 0.2 s", sent=False)
            # Longer than the heartbeat would allow: a blocked broker does not read, but it is not silent.
            await asyncio.sleep(5)
            assert notes.count("client.connection_lost") == 0
            assert not all(publish.done() for publish in publishes)
            await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "absolute", "1GB")
            assert await asyncio.gather(*publishes) == [CONFIRMED] * 500
            assert notes.count("client.unblocked") == 1

            # Once more, and closed while blocked: nobody waits for the broker to recover.
            await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.000001")
            publishes = [asyncio.create_task(publisher.publish("", "q", b"maybe")) for _ in range(100)]
            await wait_until(lambda: notes.count("client.blocked") == 2)
            async with asyncio.timeout(5):
                await client.close()
            outcomes = await asyncio.gather(*publishes)
            assert {type(outcome) for outcome in outcomes} <= {Confirmed, InDoubt}
            assert sum(outcome == InDoubt("the publisher was closed", sent=False) for outcome in outcomes) >= 50

    run_scenario(scenario(), timeout_s=120)
    node.ctl("set_vm_memory_high_watermark", "absolute", "1GB")
    # One before, five hundred waited, of the last hundred at most the window was sent.
    assert 501 <= ready(node.amqp_url(), "q") <= 551
