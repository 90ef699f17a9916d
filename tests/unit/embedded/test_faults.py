"""What can be made to go wrong, each thing by itself and all of them from a seed; every message is accounted for."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from redrive.client import Client, Confirmed, InDoubt, Nacked, ReconnectBackoff
from redrive.embedded import EmbeddedBroker, FaultRates, Faults, ServerLimits
from redrive.testing import run_in_virtual_time
from tests.unit.embedded.faulty_workload import MESSAGES, FaultyWorkload, as_text, now_s, publish

Scenario = Callable[[EmbeddedBroker, Client], Awaitable[None]]


def run(scenario: Scenario, **options: Any) -> None:
    async def main() -> None:
        broker = EmbeddedBroker(listen=False, begin_s=1_700_000_000, **options)
        async with broker, Client(broker.url, dial=broker.dial, backoff=steady) as client:
            channel = await client.channel()
            await channel.declare_queue("q", arguments={"x-queue-type": "quorum"})
            await scenario(broker, client)

    run_in_virtual_time(main())


def steady() -> ReconnectBackoff:
    return ReconnectBackoff(random=lambda: 0.5)


def states(broker: EmbeddedBroker, message_id: str) -> list[str]:
    return [place.state for place in broker.whereabouts(message_id)]


def test_a_delayed_frame_takes_effect_later_and_so_does_what_its_client_said_after_it() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        broker.faults.delay("basic.publish", 2.5)
        began_s = now_s()
        first = asyncio.create_task(publish(publisher, "first"))
        await asyncio.sleep(1)
        second = asyncio.create_task(publish(publisher, "second"))
        await asyncio.sleep(1)
        assert (states(broker, "first"), states(broker, "second")) == ([], [])
        async with Client(broker.url, dial=broker.dial) as other:  # only that connection is slow
            assert await publish(await other.publisher(), "third") == Confirmed()
        assert now_s() - began_s == pytest.approx(2)
        assert [await first, await second] == [Confirmed(), Confirmed()]
        assert now_s() - began_s == pytest.approx(2.5)
        assert [states(broker, name) for name in ("first", "second", "third")] == [["ready"]] * 3
        assert [line.partition(", ")[2] for line in broker.faults.fired] == ["basic.publish: delayed for 2.5 s"]

    run(scenario)


def test_a_delayed_ack_leaves_the_message_unacked_until_then() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        await publish(await client.publisher(), "m")
        deliveries = await client.deliveries("q")
        broker.faults.delay("basic.ack", 3)
        (await anext(deliveries)).ack()
        await asyncio.sleep(2.9)
        assert states(broker, "m") == ["unacked"]
        await asyncio.sleep(0.2)
        assert states(broker, "m") == []
        await deliveries.close()

    run(scenario)


def test_a_frame_delayed_beyond_its_clients_end_is_never_looked_at() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        async with Client(broker.url, dial=broker.dial) as other:
            publisher = await other.publisher()
            broker.faults.delay("basic.publish", 60)
            publishing = asyncio.create_task(publish(publisher, "m"))
            await asyncio.sleep(1)
            await broker.restart()
            assert isinstance(await publishing, InDoubt)
        await asyncio.sleep(120)
        assert states(broker, "m") == []

    run(scenario)


def test_a_delayed_confirm_comes_later_and_those_after_it_do_not_wait() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        broker.faults.delay_confirm(4, nth=2)
        ends: dict[str, float] = {}
        began_s = now_s()

        async def timed(name: str) -> None:
            assert await publish(publisher, name) == Confirmed()
            ends[name] = now_s() - began_s

        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c"):
                group.create_task(timed(name))
            await asyncio.sleep(1)
            group.create_task(timed("d"))  # confirmed alone: an ack of several would confirm b with it
        assert ends == {name: pytest.approx(at_s) for name, at_s in {"a": 0, "b": 4, "c": 0, "d": 1}.items()}
        assert [states(broker, name) for name in "abcd"] == [["ready"]] * 4

    run(scenario)


def test_a_lost_confirm_stays_lost_when_later_ones_come() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        broker.faults.lose_confirm(nth=2)
        outcomes = await asyncio.gather(*(publish(publisher, name, deadline_s=30) for name in "abc"))
        assert [type(one) for one in outcomes] == [Confirmed, InDoubt, Confirmed]
        assert await asyncio.gather(*(publish(publisher, name) for name in "def")) == [Confirmed()] * 3
        assert [states(broker, name) for name in "abcdef"] == [["ready"]] * 6
        assert broker.faults.fired == ["confirm 2: lost"]

    run(scenario)


def test_a_nacked_confirm_refuses_a_message_that_is_there() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        broker.faults.nack_confirm()
        assert await publish(publisher, "m") == Nacked()
        assert states(broker, "m") == ["ready"]

    run(scenario)


def test_a_cut_before_or_after_a_frame_decides_whether_it_took_effect() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        broker.faults.close_before("basic.publish")
        assert isinstance(await publish(publisher, "before"), InDoubt)
        broker.faults.close_after("basic.publish")
        assert isinstance(await publish(publisher, "after"), InDoubt)
        assert (states(broker, "before"), states(broker, "after")) == ([], ["ready"])
        assert await publish(publisher, "later") == Confirmed()

    run(scenario)


def test_a_block_holds_publishers_up_for_its_time() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        broker.faults.block_at("basic.publish", 45)
        began_s = now_s()
        assert await publish(publisher, "a") == Confirmed()
        assert await publish(publisher, "b") == Confirmed()
        assert now_s() - began_s == pytest.approx(45)
        assert (states(broker, "a"), states(broker, "b")) == (["ready"], ["ready"])

    run(scenario)


def test_a_restart_after_a_frame_keeps_what_the_frame_did_and_answers_nobody() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        bystander = await client.deliveries("q")
        broker.faults.restart_after("basic.publish")
        assert isinstance(await publish(publisher, "m"), InDoubt)
        delivery = await anext(bystander)
        assert delivery.properties.message_id == "m"
        delivery.ack()
        await bystander.close()
        assert states(broker, "m") == []

    run(scenario)


@pytest.mark.parametrize("time", ["automatic", "manual"])
def test_a_delay_passes_as_the_brokers_own_time_does(time: str) -> None:
    """Even with a message in hand, which holds automatic time up otherwise."""

    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        await publish(publisher, "held")
        deliveries = await client.deliveries("q")
        held = await anext(deliveries)
        broker.faults.delay_confirm(1200)
        begin_s = broker.now_s
        publishing = asyncio.create_task(publish(publisher, "m"))
        if time == "manual":
            await asyncio.sleep(1)
            await broker.advance(1199)
            assert not publishing.done()
            await broker.advance(1)
        assert await publishing == Confirmed()
        assert broker.now_s - begin_s == 1200
        held.ack()
        (await anext(deliveries)).ack()
        await deliveries.close()
        assert (states(broker, "held"), states(broker, "m")) == ([], [])

    run(scenario, time=time)


def test_a_frame_that_does_not_exist_a_negative_time_and_an_impossible_rate_are_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no frame 'basic\.pubish'"):
        Faults().close_before("basic.pubish")
    with pytest.raises(ValueError, match="can't last -1 seconds"):
        Faults().delay("basic.publish", -1)
    with pytest.raises(ValueError, match="a chance from 0 to 1"):
        FaultRates(close_before=1.5)
    with pytest.raises(ValueError, match="add up to 1 at most"):
        FaultRates(lose_confirm=0.6, nack_confirm=0.6)


@pytest.mark.parametrize("seed", range(12))
def test_under_faults_of_any_seed_every_confirmed_message_is_consumed_and_none_is_left(seed: int) -> None:
    run = FaultyWorkload(seed)
    names = {f"m{number}" for number in range(MESSAGES)}
    assert {name for _, name, _ in run.consumed} == names
    assert {name for name, outcome in run.tries if outcome == "Confirmed"} == names
    assert [len(queue.ready) for queue in run.broker.engine.queues()] == [0]
    assert run.broker.engine.unacked_count == 0
    assert run.broker.faults.fired != []


def test_the_same_seed_happens_again_and_another_does_not() -> None:
    first = as_text(FaultyWorkload(3))
    assert as_text(FaultyWorkload(3)) == first
    assert as_text(FaultyWorkload(4)) != first


@pytest.mark.slow
def test_a_seed_happens_the_same_way_in_another_process() -> None:
    """Where objects have other addresses and texts other hashes."""
    script = (
        "from tests.unit.embedded.faulty_workload import FaultyWorkload, as_text\n"
        "for seed in range(5, 15): print(as_text(FaultyWorkload(seed)))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert len(told[0].splitlines()) == 10
    assert told[0] == told[1]


def test_a_few_seeds_have_all_kinds_of_faults_and_no_more_than_faults_max() -> None:
    fired = [FaultyWorkload(seed).broker.faults.fired for seed in range(20, 30)]
    kinds = {line.partition(": ")[2].partition(" for ")[0] for lines in fired for line in lines}
    assert kinds == {
        "cut before it",
        "cut after it",
        "delayed",
        "publishers blocked",
        "restarted after it",
        "lost",
        "made a refusal",
    }
    assert max(map(len, fired)) <= 40


def test_a_broker_blocked_on_purpose_stays_so_whatever_else_happens_until_it_is_unblocked() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        assert await publish(publisher, "a") == Confirmed()
        broker.block()
        publishing = asyncio.create_task(publish(publisher, "b"))
        async with Client(broker.url, dial=broker.dial) as other:
            deliveries = await other.deliveries("q")
            (await anext(deliveries)).ack()  # consumers go on
            await deliveries.close()
        await asyncio.sleep(3600)
        assert (publishing.done(), broker.blocked) == (False, "low on memory")
        assert (states(broker, "a"), states(broker, "b")) == ([], [])
        broker.unblock()
        assert await publishing == Confirmed()
        assert states(broker, "b") == ["ready"]

    run(scenario)


def test_a_full_memory_blocks_publishers_until_it_is_emptied() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        sent = 0
        while broker.blocked is None:
            sent += 1
            assert await publisher.publish("", "q", b"x" * 1000) == Confirmed()
        assert broker.depths() == {"q": sent}
        assert sent > 100
        async with Client(broker.url, dial=broker.dial) as other:
            await (await other.channel()).purge_queue("q")
        assert await publish(publisher, "later") == Confirmed()
        assert broker.depths() == {"q": 1}
        still: str | None = broker.blocked
        assert still is None

    run(scenario, limits=ServerLimits(memory_bytes_max=100_000))
