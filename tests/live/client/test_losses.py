"""Brokers that fall silent, restart or die: every publish has its outcome, every confirmed message is in the queue."""

import asyncio
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

import pytest
from rig.node import Node
from rig.node_pool import OwnNodes

from redrive.client import Client, Confirmed, Delivery, InDoubt, Nacked, Outcome, Publisher, ReconnectBackoff
from tests.live.client.accounts import bodies, ready, wait_ready
from tests.unit.client.scenario import Notes, run_scenario, wait_until

CONFIRMED = Confirmed()
QUORUM = {"x-queue-type": "quorum"}


def impatient() -> ReconnectBackoff:
    return ReconnectBackoff(first_s=0.05, longest_s=1.0)


class Stream:
    """Publishes numbers one after another until it is stopped, and keeps the outcome of each."""

    def __init__(self, publisher: Publisher, queue: str) -> None:
        self._publisher = publisher
        self._queue = queue
        self._stopping = False
        self.outcomes: dict[bytes, Outcome] = {}
        self._tasks = [asyncio.create_task(self._run(lane)) for lane in range(20)]

    async def _run(self, lane: int) -> None:
        number = 0
        while not self._stopping:
            body = b"%d-%d" % (lane, number)
            self.outcomes[body] = await self._publisher.publish("", self._queue, body)
            number += 1
            await asyncio.sleep(0.005)

    def confirmed(self) -> set[bytes]:
        return {body for body, outcome in self.outcomes.items() if outcome == CONFIRMED}

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


def check_accounts(stream: Stream, held: Iterable[bytes]) -> None:
    """Every confirmed message is held; every held one is confirmed or in doubt; none is held twice."""
    held = list(held)
    assert len(held) == len(set(held))
    assert stream.confirmed() <= set(held)
    for body in set(held) - stream.confirmed():
        assert isinstance(stream.outcomes[body], InDoubt)
    # While a leader is elected a quorum queue of 3.10 nacks; what was nacked is not held.
    assert {type(outcome) for outcome in stream.outcomes.values()} <= {Confirmed, InDoubt, Nacked}


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_silent_broker_is_given_up_after_two_heartbeats_and_a_restarted_one_is_found_again(
    own_node: OwnNodes,
) -> None:
    node = own_node()
    run_scenario(check_silence(node), timeout_s=90)
    wait_ready(node.amqp_url(), "silent", 0)
    run_scenario(check_restart(node), timeout_s=150)


async def check_silence(node: Node) -> None:
    notes = Notes()
    async with Client(
        node.amqp_url() + "?heartbeat=2&connection_timeout=1000", observer=notes, backoff=impatient
    ) as client:
        channel = await client.channel()
        await channel.declare_queue("silent", arguments=QUORUM)
        seen: list[bytes] = []

        def handle(delivery: Delivery) -> None:
            seen.append(delivery.body)
            delivery.ack()

        consumer = await client.consume("silent", handle)
        publisher = await client.publisher()
        assert await publisher.publish("", "silent", b"before") == CONFIRMED
        # Idle for longer than two intervals: heartbeats alone keep it alive.
        await asyncio.sleep(4.6)
        assert notes.count("client.connection_lost") == 0

        node.pause()
        paused = time.monotonic()
        try:
            pending = [asyncio.create_task(publisher.publish("", "silent", b"during")) for _ in range(10)]
            call = asyncio.create_task(channel.declare_queue("silent", passive=True))
            outcomes = await asyncio.gather(*pending)
            silence_s = time.monotonic() - paused
            assert all(isinstance(outcome, InDoubt) and outcome.sent for outcome in outcomes)
            # Two intervals from the last word heard, half an interval between looks, and a busy machine's slack.
            assert 2.0 <= silence_s <= 5.0 + 3.0
            (error,) = await asyncio.gather(call, return_exceptions=True)
            assert "silent for 4 s (no heartbeat)" in str(error)
            # While nobody answers, publishing waits, and the client goes on trying.
            assert await publisher.publish("", "silent", b"never", deadline_s=1.5) == InDoubt(
                "no outcome within 1.5 s", sent=False
            )
            await wait_until(lambda: notes.count("client.connect_failed") >= 1)
        finally:
            node.resume()
        await wait_until(lambda: consumer.is_consuming and notes.count("client.connected") >= 2, timeout_s=30)
        assert await publisher.publish("", "silent", b"after") == CONFIRMED
        # What was in doubt had reached the broker's socket: it may arrive when the broker goes on.
        await wait_until(lambda: b"after" in seen, timeout_s=30)
        assert seen.count(b"before") >= 1
        assert seen.count(b"never") == 0


async def check_restart(node: Node) -> None:
    notes = Notes()
    async with Client(node.amqp_url(), observer=notes, backoff=impatient) as client:
        await (await client.channel()).declare_queue("restarted", arguments=QUORUM)
        publisher = await client.publisher(window=10)
        stream = Stream(publisher, "restarted")
        await wait_until(lambda: len(stream.confirmed()) > 100)
        await asyncio.to_thread(node.restart)
        so_far = len(stream.confirmed())
        await wait_until(lambda: len(stream.confirmed()) > so_far + 100, timeout_s=60)
        await stream.stop()
        assert notes.count("client.connected") >= 2
    check_accounts(stream, await asyncio.to_thread(bodies, node.amqp_url(), "restarted"))


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_killed_node_of_a_cluster_costs_no_confirmed_message_and_the_client_fails_over(own_node: OwnNodes) -> None:
    cluster = own_node.cluster()
    hosts = ",".join(urlsplit(node.amqp_url()).netloc.rpartition("@")[2] for node in cluster)
    notes = Notes()
    seen: set[bytes] = set()

    async def scenario() -> None:
        async with Client(f"amqp://guest:guest@{hosts}/", observer=notes, backoff=impatient) as client:
            channel = await client.channel()
            for queue in ("kept", "consumed"):
                await channel.declare_queue(queue, arguments={**QUORUM, "x-quorum-initial-group-size": 3})
            publisher = await client.publisher(window=10)
            second = await client.publisher(window=10)
            kept, consumed = Stream(publisher, "kept"), Stream(second, "consumed")

            async def handle(delivery: Delivery) -> None:
                seen.add(delivery.body)
                await asyncio.sleep(0.001)
                if not delivery.is_stale:
                    delivery.ack()

            await client.consume("consumed", handle, prefetch=20)
            await wait_until(lambda: len(kept.confirmed()) > 200 and len(seen) > 100, timeout_s=30)
            await asyncio.to_thread(cluster[0].kill)  # the one we are connected to
            await wait_until(lambda: notes.count("client.connected") == 2, timeout_s=30)
            so_far = len(kept.confirmed()), len(seen)
            await wait_until(
                lambda: len(kept.confirmed()) > so_far[0] + 200 and len(seen) > so_far[1] + 200, timeout_s=60
            )
            await asyncio.gather(kept.stop(), consumed.stop())
            await wait_until(lambda: consumed.confirmed() <= seen, timeout_s=60)
        check_accounts(kept, await asyncio.to_thread(bodies, cluster[1].amqp_url(), "kept"))
        # Everything was acked, or comes again to nobody: nothing is left that was not seen.
        left = await asyncio.to_thread(bodies, cluster[1].amqp_url(), "consumed")
        assert set(left) <= seen | {body for body, outcome in consumed.outcomes.items() if outcome != CONFIRMED}

    run_scenario(scenario(), timeout_s=200)
    assert ready(cluster[2].amqp_url(), "kept") == 0
