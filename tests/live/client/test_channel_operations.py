"""Everything a channel can do, checked by what the broker has afterwards."""

import asyncio

import pytest
from rig.brokers import Vhost

from redrive.client import AlreadySettled, Client, Confirmed, StaleDelivery
from tests.live.client.accounts import bodies, fill, ready, wait_ready
from tests.unit.client.scenario import run_scenario


def bindings(vhost: Vhost) -> set[tuple[str, str, str, str]]:
    """Source, kind of destination, destination, key; without the default exchange's own."""
    found = vhost.management.get("bindings", vhost.name)
    return {
        (each["source"], each["destination_type"], each["destination"], each["routing_key"])
        for each in found
        if each["source"]
    }


@pytest.mark.live
def test_queues_are_declared_asked_for_purged_and_deleted(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            arguments = {"x-queue-type": "quorum", "x-max-length": 100, "x-overflow": "reject-publish"}
            state = await channel.declare_queue("orders", arguments=arguments)
            assert (state.name, state.messages_ready, state.consumers) == ("orders", 0, 0)
            publisher = await client.publisher()
            for _ in range(3):
                assert await publisher.publish("", "orders", b"x") == Confirmed()
            await client.consume("orders", lambda _: None, prefetch=1)
            state = await channel.declare_queue("orders", passive=True)
            assert (state.messages_ready, state.consumers) == (2, 1)
            assert await channel.purge_queue("orders") == 2
            made = await channel.declare_queue(exclusive=True, auto_delete=True)
            assert made.name.startswith("amq.gen-")
            found = {queue["name"]: queue for queue in vhost.management.get("queues", vhost.name)}
            assert set(found) == {"orders", made.name}
            assert found["orders"]["durable"]
            assert found["orders"]["arguments"] == arguments
            assert await channel.delete_queue(made.name) == 0
            assert await channel.delete_queue("orders") in (0, 1)  # the unsettled one counts or not, by version
            assert await channel.delete_queue("never-was") == 0

    run_scenario(scenario())
    assert vhost.management.get("queues", vhost.name) == []


@pytest.mark.live
def test_a_queue_in_use_or_not_empty_is_only_deleted_unconditionally(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "full", 2)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            with pytest.raises(Exception, match="406 PRECONDITION_FAILED"):
                await channel.delete_queue("full", if_empty=True)
            channel = await client.channel()
            consumer = await client.consume("full", lambda _: None)
            with pytest.raises(Exception, match="406 PRECONDITION_FAILED"):
                await channel.delete_queue("full", if_unused=True)
            await consumer.close()

    run_scenario(scenario())
    wait_ready(vhost.amqp_url, "full", 2)


@pytest.mark.live
def test_exchanges_are_declared_bound_to_queues_and_to_each_other_and_deleted(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            await channel.declare_exchange("events", "topic")
            await channel.declare_exchange("inner", "fanout", internal=True, arguments={"alternate-exchange": "lost"})
            await channel.declare_exchange("matching", "headers", durable=False)
            await channel.declare_exchange("events", passive=True)
            await channel.declare_queue("q")
            await channel.bind_exchange("inner", "events", "orders.#")
            await channel.bind_queue("q", "inner")
            await channel.bind_queue("q", "events", "direct.*")
            await channel.bind_queue("q", "matching", arguments={"x-match": "all", "kind": "order", "size": 5})
            found = {each["name"]: each for each in vhost.management.get("exchanges", vhost.name)}
            assert (found["events"]["type"], found["events"]["durable"], found["events"]["internal"]) == (
                "topic",
                True,
                False,
            )
            assert (found["inner"]["type"], found["inner"]["internal"]) == ("fanout", True)
            assert found["inner"]["arguments"] == {"alternate-exchange": "lost"}
            assert not found["matching"]["durable"]
            assert bindings(vhost) == {
                ("events", "exchange", "inner", "orders.#"),
                ("inner", "queue", "q", ""),
                ("events", "queue", "q", "direct.*"),
                ("matching", "queue", "q", ""),
            }
            publisher = await client.publisher()
            assert await publisher.publish("events", "orders.placed", b"through both") == Confirmed()
            assert await publisher.publish("events", "direct.one", b"straight") == Confirmed()

            await channel.unbind_exchange("inner", "events", "orders.#")
            await channel.unbind_queue("q", "events", "direct.*")
            await channel.unbind_queue("q", "matching", arguments={"x-match": "all", "kind": "order", "size": 5})
            assert bindings(vhost) == {("inner", "queue", "q", "")}
            for name in ("events", "inner", "matching"):
                await channel.delete_exchange(name)
            assert not {"events", "inner", "matching"} & {
                e["name"] for e in vhost.management.get("exchanges", vhost.name)
            }

    run_scenario(scenario())
    assert bodies(vhost.amqp_url, "q") == [b"through both", b"straight"]


@pytest.mark.live
def test_get_takes_one_message_at_a_time_and_settles_it(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 5, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    fill(vhost.amqp_url, "dead", 0)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            first = await channel.get_message("q")
            assert first is not None
            assert (first.body, first.routing_key, first.redelivered, first.message_count) == (b"0", "q", False, 4)
            channel.ack(first)
            with pytest.raises(AlreadySettled):
                channel.ack(first)
            second = await channel.get_message("q")
            assert second is not None
            channel.nack(second, requeue=False)
            third = await channel.get_message("q")
            assert third is not None
            channel.reject(third, requeue=True)
            again = await channel.get_message("q")
            assert again is not None
            assert (again.body, again.redelivered) == (b"2", True)
            unacked = await channel.get_message("q", no_ack=True)
            assert unacked is not None
            assert unacked.body == b"3"
            last = await channel.get_message("q")
            assert last is not None
            assert await channel.get_message("q") is None
            channel.ack(last, multiple=True)
            with pytest.raises(AlreadySettled):
                channel.ack(again)
            other = await client.channel()
            with pytest.raises(StaleDelivery):
                other.ack(last)
            await channel.close()

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 0
    assert bodies(vhost.amqp_url, "dead") == [b"1"]


@pytest.mark.live
def test_closing_a_channel_requeues_its_unsettled_messages(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 3)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            for _ in range(2):
                assert await channel.get_message("q") is not None
            await channel.close()

    run_scenario(scenario())
    wait_ready(vhost.amqp_url, "q", 3)
    assert bodies(vhost.amqp_url, "q") == [b"0", b"1", b"2"]


@pytest.mark.live
def test_a_cancelled_get_loses_nothing(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 20, arguments={"x-queue-type": "quorum"})

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            for turns in range(20):
                getting = asyncio.create_task(channel.get_message("q"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                getting.cancel()
                (got,) = await asyncio.gather(getting, return_exceptions=True)
                if not isinstance(got, BaseException):
                    assert got is not None
                    channel.reject(got, requeue=True)
            # On the same channel, still open: nothing is held in secret.
            await asyncio.to_thread(wait_ready, vhost.amqp_url, "q", 20)

    run_scenario(scenario())
    assert sorted(bodies(vhost.amqp_url, "q"), key=int) == [b"%d" % one for one in range(20)]


@pytest.mark.live
def test_qos_is_accepted(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            await channel.qos(17)
            await channel.qos(0, per_channel=True)
            assert channel.is_open

    run_scenario(scenario())


@pytest.mark.live
def test_calls_in_a_pipeline_are_answered_each_with_its_own(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            names = [f"q{number}" for number in range(100)]
            states = await asyncio.gather(*(channel.declare_queue(name) for name in names))
            assert [state.name for state in states] == names

    run_scenario(scenario())
