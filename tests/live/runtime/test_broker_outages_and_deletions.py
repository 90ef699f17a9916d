"""Outages and deletions: the broker restarts, a node dies, memory runs out, a consumer is too slow, a queue is deleted.

Each time the app comes back by itself, every message is accounted for, and the log says what has happened.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import pytest
from rig.brokers import Vhost
from rig.node_pool import OwnNodes

from redrive.core import Park
from redrive.runtime import Message
from tests.live.runtime.faults_shop import Journal, NoSuchCustomer, Shop, open_shop, play

BAD_DAY_S = 240.0
DECLARED = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.#"]}, retry: [500ms, 1s]}
"""
FATES = ("slow", "fail slow", "fail fail", "park")
"""Handled at once; after one retry; parked when its attempts are spent; parked at once."""
ENDS = ("handled", "handled", "parked", "parked")


def fates_of(count: int) -> dict[str, str]:
    """Messages by their numbers, and their fates in turn."""
    return {f"{number}": FATES[number % 4] for number in range(count)}


def end_of(name: str) -> str:
    """Where such a message ends."""
    return ENDS[int(name) % 4]


async def open_busy_shop(url: str, declared: str = DECLARED) -> Shop:
    """A shop whose handlers take a moment, so that whatever happens happens to some of them."""

    async def slow(_: Message) -> None:
        await asyncio.sleep(0.02)

    shop = await open_shop(url, declared)
    shop.acts["slow"] = slow
    return shop


def has_ended(shop: Shop, fates: dict[str, str]) -> bool:
    """Whether every message has come to its end at least once."""
    parked = {str(one["message_id"]) for one in shop.journal.of("runtime.decided") if one["decision"] == "park"}
    return set(fates) <= parked | set(shop.handled)


async def check_account(shop: Shop, fates: dict[str, str], *, url: str | None = None) -> None:
    """Every message is where its fate says, and nowhere else. A duplicate has its id; nothing is lost."""
    found = await shop.census(url)
    assert set(found) <= {"orders.parked"}, found
    parked, handled = found.get("orders.parked", Counter()), Counter(shop.handled)
    assert set(parked) == {name for name in fates if end_of(name) == "parked"}
    assert set(handled) == {name for name in fates if end_of(name) == "handled"}


def lines_of(lines: Iterable[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """The lines of one event."""
    return [line for line in lines if line["event"] == event]


def check_log(journal: Journal, *events: str) -> list[dict[str, Any]]:
    """Every one of these has its line, at its level; the whole log for more questions."""
    lines = journal.lines()
    for event in events:
        assert lines_of(lines, event), f"no line says {event}"
    assert all(line["level"] in ("warning", "error") for line in lines_of(lines, "client.connection_lost"))
    return lines


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_restarted_broker_costs_nothing_and_the_app_goes_on_by_itself(own_node: OwnNodes) -> None:
    node = own_node()

    async def scenario() -> None:
        shop = await open_busy_shop(node.amqp_url())
        fates = fates_of(200)
        await shop.publish_all("orders", fates)
        async with shop.open(shop.app(prefetch=5)):
            await shop.until(lambda: len(shop.handled) > 10)
            await asyncio.to_thread(node.restart)
            assert not has_ended(shop, fates)
            await shop.until(lambda: has_ended(shop, fates))
            await shop.wait_counts({"orders.parked": 100}, at_least=True)
        await check_account(shop, fates)
        lines = check_log(shop.journal, "client.connection_lost", "client.connect_failed", "consumer.resumed")
        assert len(lines_of(lines, "client.connected")) >= 4  # two connections, twice
        # The broker says that it shuts down; closing with our frames unread, it resets what we had not read of that.
        reasons = [str(line["reason"]).lower() for line in lines_of(lines, "client.connection_lost")]
        assert all("shutdown" in reason or "reset" in reason for reason in reasons), reasons

    play(scenario, timeout_s=BAD_DAY_S)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_killed_node_of_a_cluster_costs_nothing_and_the_app_goes_on_with_another(own_node: OwnNodes) -> None:
    cluster = own_node.cluster()
    hosts = ",".join(urlsplit(node.amqp_url()).netloc.rpartition("@")[2] for node in cluster)
    declared = DECLARED
    if cluster[0].profile == "4.3":
        # From 4.3 on a quorum queue waits a minute for the consumers of a node that is gone, before it gives what they
        # had in hand to others.
        declared = DECLARED.replace("retry:", "arguments: {x-consumer-disconnected-timeout: 1000}, retry:")

    async def scenario() -> None:
        shop = await open_busy_shop(cluster[0].amqp_url(), declared)
        fates = fates_of(200)
        await shop.publish_all("orders", fates)
        everywhere = f"amqp://guest:guest@{hosts}/"
        async with shop.open(shop.app(prefetch=5), consuming=everywhere, publishing=everywhere):
            await shop.until(lambda: len(shop.handled) > 10)
            await asyncio.to_thread(cluster[0].kill)
            await shop.until(lambda: has_ended(shop, fates), timeout_s=120)
            await shop.wait_counts({"orders.parked": 100}, url=cluster[1].amqp_url(), at_least=True)
        await check_account(shop, fates, url=cluster[2].amqp_url())
        lines = check_log(shop.journal, "client.connection_lost", "consumer.resumed")
        assert len(lines_of(lines, "client.connected")) >= 4

    play(scenario, timeout_s=BAD_DAY_S)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_memory_alarm_holds_up_copies_and_no_acks_and_loses_nothing(own_node: OwnNodes) -> None:
    node = own_node()

    async def scenario() -> None:
        shop = await open_busy_shop(node.amqp_url())
        fates = fates_of(100)
        await shop.publish_all("orders", fates)
        await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.000001")
        async with shop.open(shop.app(prefetch=100)):
            await shop.until(lambda: shop.journal.count("client.blocked"))
            # What succeeds is acked all the same: nothing of it is in the queue, and all that failed is still in hand.
            await shop.until(lambda: len(shop.handled) == 25)
            decided = Counter(one["decision"] for one in shop.journal.of("runtime.decided"))
            assert decided == {"ack": 25}
            assert await shop.counts() == {}
            await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "absolute", "1GB")
            await shop.until(lambda: has_ended(shop, fates))
            await shop.wait_counts({"orders.parked": 50})
        await check_account(shop, fates)
        # Nobody was cut off, so nothing was run or copied twice.
        assert Counter(shop.handled) == {name: 1 for name in fates if end_of(name) == "handled"}
        lines = check_log(shop.journal, "client.blocked", "client.unblocked")
        assert lines_of(lines, "client.blocked")[0]["reason"] == "low on memory"
        assert lines_of(lines, "client.connection_lost") == []

    play(scenario, timeout_s=BAD_DAY_S)


@pytest.mark.live(versions=("4.0", "4.3"), matrix=("3.10",))
def test_a_handler_slower_than_the_consumer_timeout_is_run_again_and_delays_above_it_are_kept(
    own_node: OwnNodes,
) -> None:
    """Up to 4.0 the broker closes the channel, 4.3 cancels the consumer of a quorum queue. Also fault 17 of
    test_known_bugs_of_other_libraries: a delay longer than the timeout, which no consumer holds."""
    soon = "{channel_tick_interval, 500}, {quorum_tick_interval, 1000}"
    node = own_node(conf="consumer_timeout = 1000\n", advanced=f"[{{rabbit, [{soon}, {{consumer_timeout, 1000}}]}}].\n")
    declared = "exchanges: {shop: topic}\nqueues:\n  orders: {from: {shop: ['orders.#']}, retry: [4s]}\n"

    async def scenario() -> None:
        shop = await open_shop(node.amqp_url(), declared)
        journal = shop.journal

        async def too_slow(_: Message) -> None:
            if shop.runs.count(("orders", "slow", 1)) == 1:
                await shop.until(
                    lambda: journal.count("consumer.channel_lost") or journal.count("consumer.cancelled"), timeout_s=60
                )

        shop.acts["too-slow"] = too_slow
        async with shop.open():
            await shop.publish("orders", "delayed", b"fail ok")
            await shop.wait_counts({"orders.wait.4s": 1})
            await shop.until(lambda: shop.handled == ["delayed"])
            # Held by the broker for longer than the timeout allows a consumer, and nobody noticed.
            assert journal.count("consumer.channel_lost") + journal.count("consumer.cancelled") == 0
            await shop.publish("orders", "slow", b"too-slow")
            await shop.until(lambda: shop.handled.count("slow") == 2, timeout_s=100)
            await shop.publish("orders", "quick", b"ok")
            await shop.until(lambda: "quick" in shop.handled)
        assert shop.attempts("slow") == [1, 1]  # a repetition, which the message says of itself, and not a retry
        assert shop.attempts("delayed") == [1, 2]
        assert await shop.census() == {}
        lines = check_log(journal, "consumer.resumed")
        if node.profile == "4.3":
            assert lines_of(lines, "consumer.cancelled")[0]["queue"] == "orders"
        else:
            reason = str(lines_of(lines, "consumer.channel_lost")[0]["reason"])
            assert "406 PRECONDITION_FAILED" in reason
            assert "timed out" in reason
        assert lines_of(lines, "client.connection_lost") == []

    play(scenario, timeout_s=BAD_DAY_S)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_queue_deleted_under_its_consumer_and_declared_again_costs_nothing_that_was_in_hand(vhost: Vhost) -> None:
    """What lies in a queue goes with it, which no consumer can help; what is in hand does not."""
    declared = "exchanges: {shop: topic}\nqueues:\n  orders: {from: {shop: ['orders.#']}, retry: [4s]}\n"

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, declared)
        gone = asyncio.Event()

        async def late(_: Message) -> None:
            await gone.wait()

        async def late_failure(_: Message) -> None:
            await gone.wait()
            raise NoSuchCustomer("while the queue was gone")

        async def late_park(_: Message) -> None:
            await gone.wait()
            raise Park("while the queue was gone")

        shop.acts |= {"late": late, "late-failure": late_failure, "late-park": late_park}
        async with shop.open():
            await shop.publish_all("orders", {"well": "late", "retried": "late-failure ok", "parked": "late-park"})
            await shop.until(lambda: len(shop.runs) == 3)
            await shop.delete("orders")
            await shop.until(lambda: shop.journal.count("consumer.failed") >= 2)
            gone.set()
            await shop.wait_counts({"orders.wait.4s": 1, "orders.parked": 1})
            await shop.declare()
            await shop.until(lambda: "retried" in shop.handled)
            await shop.publish("orders", "next", b"ok")
            await shop.until(lambda: "next" in shop.handled)
        assert shop.handled == ["well", "retried", "next"]
        assert await shop.census() == {"orders.parked": Counter(parked=1)}
        lines = check_log(shop.journal, "consumer.cancelled", "consumer.failed", "consumer.resumed")
        assert "NOT_FOUND" in str(lines_of(lines, "consumer.failed")[-1]["reason"])
        assert lines_of(lines, "client.connection_lost") == []

    play(scenario, timeout_s=BAD_DAY_S)
