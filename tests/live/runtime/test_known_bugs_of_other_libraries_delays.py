"""Known bugs of other libraries, continued: delays that block, cross or come back to other queues."""

import asyncio
from collections import Counter
from datetime import UTC, datetime

import pytest
from rig.brokers import Vhost
from rig.node_pool import OwnNodes

from redrive.core import RetryAfter
from redrive.runtime import Message
from tests.live.runtime.faults_shop import open_shop, play

# 4, 5: delays belong to one queue


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_deleting_one_consumers_queue_mid_delay_holds_up_nobody_elses_delays_and_loses_nothing(
    own_node: OwnNodes,
) -> None:
    """Fault 4, Celery and NServiceBus: shared delay levels, and a destination that is gone blocks them all."""
    # How long the broker waits before it tries a dead-lettering without a target again: three minutes otherwise.
    node = own_node(advanced="[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 1000}]}].\n")
    declared = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.#"]}, retry: [3s]}
  invoices: {from: {shop: ["invoices.#"]}, retry: [3s]}
"""

    async def scenario() -> None:
        shop = await open_shop(node.amqp_url(), declared)
        await shop.publish("orders", "order", b"fail ok")
        await shop.publish("invoices", "invoice", b"fail ok")
        async with shop.open():
            await shop.until(lambda: len(shop.runs) == 2)
            await shop.wait_counts({"orders.wait.3s": 1, "invoices.wait.3s": 1})
            await shop.delete("orders")
            await shop.until(lambda: shop.handled == ["invoice"])
            # A later one is delayed just the same, behind a message that can't go anywhere.
            await shop.publish("invoices", "second", b"fail ok")
            await shop.until(lambda: shop.handled == ["invoice", "second"])
            assert shop.attempts("order") == [1]
            await shop.declare()
            await shop.until(lambda: shop.handled == ["invoice", "second", "order"])
        assert await shop.census() == {}

    play(scenario)


@pytest.mark.live
def test_queues_whose_names_end_alike_get_only_their_own_delayed_messages(vhost: Vhost) -> None:
    """Fault 5, Celery and NServiceBus: bindings by suffix, and `bar` gets what `foo.bar` delayed."""
    shapes = {
        "l": "{shape: ladder, delays: [200ms]}",
        "p": "{shape: per-queue, delays: [200ms]}",
        "q": "{shape: quorum, delays: [200ms]}",
        "s": "{shape: service, service: %s, delays: [200ms]}",
        "r": "{shape: requeue}",
    }
    queues = [f"{front}{shape}-bar" for shape in shapes for front in ("", "foo.", "a.foo.")]
    retries = {name: shapes[name[-5]].replace("%s", name) for name in queues}
    lines = "".join(f'  {name}: {{from: {{shop: ["{name}"]}}, retry: {retries[name]}}}\n' for name in queues)

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, f"exchanges: {{shop: topic}}\nqueues:\n{lines}")
        for name in queues:
            await shop.publish(name, f"m-{name}", b"fail ok", exchange="shop")
        async with shop.open():
            await shop.until(lambda: len(shop.handled) >= len(queues))
            await asyncio.sleep(0.5)  # a second copy would be here by now
        expected = {(name, f"m-{name}", attempt): 1 for name in queues for attempt in (1, 2)}
        assert Counter(shop.runs) == expected
        assert await shop.census() == {}

    play(scenario)


# 6: cycles


@pytest.mark.live
def test_a_message_that_brings_an_x_death_along_is_delayed_and_comes_back(vhost: Vhost) -> None:
    """Fault 6, Celery: a republished x-death looks like a cycle to the broker, which drops the message."""
    declared = """
exchanges: {shop: topic, tiers: topic}
queues:
  orders: {from: {shop: ["orders.#"]}, retry: [100ms, 200ms]}
  user: {from: {tiers: ["user.*"]}, retry: {shape: tiered, exchange: tiers, delays: [100ms, 200ms]}}
  ratatoskr: {from: {shop: ["ratatoskr.#"]}, retry: {shape: quorum, delays: [100ms]}}
  thumbnail: {from: {shop: ["thumbnail.#"]}, retry: {shape: per-queue, delays: [100ms]}}
  wms: {from: {shop: ["wms.#"]}, retry: {shape: service, service: wms, delays: [100ms]}}
"""
    names = ("orders", "user", "ratatoskr", "thumbnail", "wms")

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, declared)
        for name in names:
            routes = shop.declared.queue(name).routes
            assert routes is not None
            # It has expired everywhere it will expire again, and was never rejected: all that a cycle needs.
            deaths = [
                {
                    "queue": queue,
                    "reason": "expired",
                    "count": 1,
                    "exchange": "",
                    "routing-keys": [queue],
                    "time": datetime(2026, 1, 1, tzinfo=UTC),
                }
                for queue in (name, *(wait.queue for wait in routes.waits))
            ]
            await shop.publish(name, f"m-{name}", b"fail fail ok", headers={"x-death": deaths})
        async with shop.open():
            await shop.until(lambda: len(shop.handled) == len(names))
        assert {name: shop.attempts(f"m-{name}") for name in names} == {name: [1, 2, 3] for name in names}
        assert await shop.census() == {}

    play(scenario)


# 14, 15: others


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_long_delay_does_not_hold_up_a_short_one(vhost: Vhost) -> None:
    """Fault 14, taskiq: one delay queue with per-message TTLs, where only the head expires. In virtual time with thirty
    minutes and thirty seconds too."""
    declared = "exchanges: {shop: topic}\nqueues:\n  orders: {from: {shop: ['orders.#']}, retry: [200ms, 3s]}\n"

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, declared)

        async def later(message: Message) -> None:
            if message.attempt == 1:
                raise RetryAfter("3s")

        shop.acts["later"] = later
        async with shop.open():
            await shop.publish("orders", "long", b"later")
            await shop.wait_counts({"orders.wait.3s": 1})
            await shop.publish("orders", "short", b"fail ok")
            await shop.until(lambda: shop.handled == ["short"])
            assert await shop.counts() == {"orders.wait.3s": 1}
            await shop.until(lambda: shop.handled == ["short", "long"])
        assert await shop.census() == {}

    play(scenario)


@pytest.mark.live
def test_a_retry_never_runs_the_handlers_of_sibling_queues_again(vhost: Vhost) -> None:
    """Fault 15, RawRabbit: the retry re-enters the original exchange, and everybody who is bound to it runs again.

    Shape tiered re-enters it by its document; our consumers know a copy that is not theirs and skip it. In shape ladder
    it never reaches them.
    """
    declared = """
exchanges: {shop: topic, tiers: topic}
queues:
  user: {from: {tiers: ["user.*"]}, retry: {shape: tiered, exchange: tiers, delays: [100ms]}}
  mail: {from: {tiers: ["#"]}, retry: {shape: tiered, exchange: tiers, delays: [100ms]}}
  audit: {from: {tiers: ["#"], shop: ["#"]}, retry: [100ms]}
  orders: {from: {shop: ["orders.*"]}, retry: [100ms]}
"""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, declared)

        async def only_in(queue: str, message: Message) -> None:
            assert message.routing_key == ("user.created" if message.id == "user" else "orders.created")
            if message.queue == queue and message.attempt == 1:
                raise RuntimeError("once")

        shop.acts["user"] = lambda message: only_in("user", message)
        shop.acts["orders"] = lambda message: only_in("orders", message)
        async with shop.open():
            await shop.publish("user.created", "user", b"user", exchange="tiers")
            await shop.publish("orders.created", "order", b"orders", exchange="shop")
            decided = shop.journal
            await shop.until(
                lambda: Counter(shop.runs)[("user", "user", 2)] and Counter(shop.runs)[("orders", "order", 2)]
            )
            await shop.until(lambda: sum(one["decision"] == "skipped" for one in decided.of("runtime.decided")) == 2)
            await asyncio.sleep(0.3)  # anything more would be here by now
        assert Counter(shop.runs) == {
            ("user", "user", 1): 1,
            ("user", "user", 2): 1,
            ("mail", "user", 1): 1,
            ("audit", "user", 1): 1,
            ("orders", "order", 1): 1,
            ("orders", "order", 2): 1,
            ("audit", "order", 1): 1,
        }
        skipped = [one["queue"] for one in decided.of("runtime.decided") if one["decision"] == "skipped"]
        assert sorted(map(str, skipped)) == ["audit", "mail"]
        assert await shop.census() == {}

    play(scenario)
