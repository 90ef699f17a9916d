"""A consumer that may not write to its own queue: what would be counted by a copy is handled as it is, and once."""

import asyncio

import pytest
from rig.brokers import Vhost

from redrive import App
from redrive.client import Client, Confirmed
from redrive.runtime import AppRunOptions
from redrive.topology import compile_declaration, read_declaration
from redrive.wire import Properties
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import drain
from tests.live.runtime.users import add_user
from tests.unit.client.scenario import Notes, run_scenario, wait_until

TEXT = """
exchanges: {shop: topic}
queues:
  shop.user:
    from: {shop: ["user.*"]}
    retry: {shape: tiered, exchange: shop, domain: user, delays: [60s], wait: "shop.{domain}.retry.{delay}"}
"""
MESSAGES, PREFETCH = 400, 100


@pytest.mark.live
def test_redelivered_messages_are_retried_once_each(vhost: Vhost) -> None:
    plan = compile_declaration(read_declaration(TEXT, file="redrive.yaml"))
    url = add_user(vhost, {"configure": "", "write": "^shop.*$", "read": ".*"})
    notes = Notes()
    handled: list[str] = []

    async def scenario() -> None:
        await declare_missing(plan, lambda _: Client(vhost.amqp_url))
        async with Client(vhost.amqp_url) as client:
            publisher = await client.publisher()
            for number in range(MESSAGES):
                properties = Properties.of(delivery_mode=2, message_id=f"m{number}")
                assert await publisher.publish("shop", "user.new", b"{}", properties) == Confirmed()
            channel = await client.channel()
            for _ in range(MESSAGES):
                assert await channel.get_message("shop.user") is not None
            await channel.close()  # all of them come again, as after a death
        app = App(plan)

        @app.consumer("shop.user", prefetch=PREFETCH, pause_after=None)
        async def handle(body: bytes) -> None:
            handled.append(body.decode())
            raise ValueError("no")

        async with running(app, url=url, observer=notes, options=AppRunOptions(wait_for_topology=False)):
            await wait_until(lambda: notes.count("runtime.decided") >= MESSAGES, timeout_s=20)
            await asyncio.sleep(0.3)

    run_scenario(scenario(), timeout_s=60)
    vhost.management.delete("users", url.split("://")[1].split(":")[0])
    waits = [one.name for one in plan.topology.queues if ".retry." in one.name]
    waiting = sorted(held.properties.message_id for name in waits for held in drain(vhost.amqp_url, name))
    assert waiting == sorted(f"m{number}" for number in range(MESSAGES))
    assert len(handled) == MESSAGES
    # The refusal is remembered: only what was in hand by then has tried.
    assert 1 <= notes.count("runtime.publish_failed") <= 2 * PREFETCH < MESSAGES
    assert notes.count("publisher.channel_lost") <= 2
