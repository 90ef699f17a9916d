"""Our own client against the embedded broker: what it does to RabbitMQ it does to this one, with the same outcomes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive import wire
from redrive.client import (
    Client,
    Confirmed,
    Delivery,
    InDoubt,
    Nacked,
    NotFound,
    PreconditionFailed,
    ReconnectBackoff,
    Returned,
)
from redrive.client.errors import AuthenticationFailed, ConnectionFailed
from redrive.embedded import PROFILES, EmbeddedBroker

Scenario = Callable[[EmbeddedBroker, Client], Awaitable[None]]


def run(scenario: Scenario, profile: str = "4.3", **options: Any) -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker(profile, **options) as broker,
            Client(broker.url, backoff=lambda: ReconnectBackoff(first_s=0.001, longest_s=0.01)) as client,
        ):
            await asyncio.wait_for(scenario(broker, client), 10)

    asyncio.run(main())


async def messages_in(client: Client, queue: str) -> int:
    channel = await client.channel()
    state = await channel.declare_queue(queue, passive=True)
    await channel.close()
    return state.messages_ready


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_published_message_is_confirmed_consumed_and_acked(profile: str, kind: str) -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("q", arguments={"x-queue-type": kind})
        publisher = await client.publisher()
        outcomes = [await publisher.publish("", "q", str(number).encode()) for number in range(50)]
        assert outcomes == [Confirmed()] * 50
        deliveries = await client.deliveries("q", prefetch=7)
        for number in range(50):
            delivery = await anext(deliveries)
            assert (delivery.body, delivery.redelivered) == (str(number).encode(), False)
            delivery.ack()
        await deliveries.close()
        assert await messages_in(client, "q") == 0
        assert broker.engine.unacked_count == 0

    run(scenario, profile)


def test_a_mandatory_message_without_a_route_is_returned() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        assert await publisher.publish("", "nowhere", b"x") == Returned(312, "NO_ROUTE")
        assert await publisher.publish("", "nowhere", b"x", mandatory=False) == Confirmed()

    run(scenario)


def test_a_full_queue_that_rejects_publishes_nacks() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        publisher = await client.publisher()
        assert [await publisher.publish("", "q", b"x") for _ in range(3)] == [Confirmed(), Nacked(), Nacked()]
        assert await messages_in(client, "q") == 1

    run(scenario)


def test_a_publish_to_a_missing_exchange_closes_the_channel_and_only_that() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        publisher = await client.publisher()
        outcome = await publisher.publish("missing", "q", b"x")
        assert isinstance(outcome, InDoubt)
        assert "no exchange 'missing' in vhost '/'" in outcome.reason
        channel = await client.channel()
        await channel.declare_queue("q")
        assert await publisher.publish("", "q", b"x") == Confirmed()

    run(scenario)


def test_a_rejected_message_is_dead_lettered_and_a_nacked_one_comes_again() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("dead")
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        await channel.declare_queue("q", arguments=arguments)
        publisher = await client.publisher()
        await publisher.publish("", "q", b"x", wire.Properties.of(message_id="m"))
        deliveries = await client.deliveries("q")
        (await anext(deliveries)).nack(requeue=True)
        again = await anext(deliveries)
        assert again.redelivered
        again.reject(requeue=False)
        got = None
        while got is None:
            got = await channel.get_message("dead")
        (death,) = got.properties.headers["x-death"]
        assert (death["queue"], death["reason"], death["count"]) == ("q", "rejected", 1)
        assert [str(place.queue) for place in broker.whereabouts("m")] == ["dead"]
        await deliveries.close()

    run(scenario)


def test_a_consumer_is_told_when_its_queue_is_deleted_and_consumes_again_when_it_is_back() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("q")
        seen: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(delivery: Delivery) -> None:
            delivery.ack()
            seen.put_nowait(delivery.body)

        consumer = await client.consume("q", take)
        await channel.delete_queue("q")
        await channel.declare_queue("q")
        publisher = await client.publisher()
        await publisher.publish("", "q", b"after")
        assert await seen.get() == b"after"
        await consumer.close()

    run(scenario)


def test_a_restart_keeps_what_is_durable_and_the_client_comes_back() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        for kind in ("classic", "quorum"):
            await channel.declare_queue(kind, arguments={"x-queue-type": kind})
        await channel.declare_queue("passing", durable=False)
        await channel.declare_exchange("x", "fanout")
        for queue in ("classic", "quorum", "passing"):
            await channel.bind_queue(queue, "x")
        publisher = await client.publisher()
        await publisher.publish("x", "", b"kept", wire.Properties.of(delivery_mode=2))
        await publisher.publish("x", "", b"transient", wire.Properties.of(delivery_mode=1))
        await broker.restart()
        async with Client(broker.url) as other:
            assert await messages_in(other, "classic") == 1
            assert await messages_in(other, "quorum") == 2
            channel = await other.channel()
            with pytest.raises(NotFound):
                await channel.declare_queue("passing", passive=True)
            while await publisher.publish("x", "", b"new") != Confirmed():
                pass  # in doubt until the client has noticed
            assert await messages_in(other, "classic") == 2

    run(scenario)


def test_another_ttl_on_a_declared_queue_is_refused_in_rabbitmqs_words() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("q", arguments={"x-message-ttl": 1000})
        with pytest.raises(PreconditionFailed) as refused:
            await channel.declare_queue("q", arguments={"x-message-ttl": 2000})
        assert (
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "received '2000' but current is '1000'"
        ) in str(refused.value)

    run(scenario)


@pytest.mark.parametrize(
    ("url", "error"), [("amqp://guest:wrong@{0}/", AuthenticationFailed), ("amqp://guest:guest@{0}/nope", Exception)]
)
def test_a_wrong_password_or_vhost_is_refused(url: str, error: type[Exception]) -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker:
            with pytest.raises((error, ConnectionFailed)):
                await Client(url.format(f"127.0.0.1:{broker.port}")).start()

    asyncio.run(main())


def test_time_passes_only_by_advance_when_it_is_manual() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("late")
        arguments = {"x-message-ttl": 60_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "late"}
        await channel.declare_queue("wait", arguments=arguments)
        publisher = await client.publisher()
        await publisher.publish("", "wait", b"x")
        await broker.advance(59.9)
        assert (await messages_in(client, "wait"), await messages_in(client, "late")) == (1, 0)
        await broker.advance(0.2)
        assert (await messages_in(client, "wait"), await messages_in(client, "late")) == (0, 1)

    run(scenario, time="manual")


def test_a_connection_cut_after_the_publish_leaves_the_message_there_and_the_publisher_in_doubt() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("q")
        publisher = await client.publisher()
        broker.faults.close_after("basic.publish")
        assert isinstance(await publisher.publish("", "q", b"after"), InDoubt)
        broker.faults.close_before("basic.publish")
        assert isinstance(await publisher.publish("", "q", b"before"), InDoubt)
        assert await messages_in(client, "q") == 1

    run(scenario)


@pytest.mark.slow
def test_a_lost_confirm_leaves_the_publisher_waiting_and_a_nacked_one_refuses() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("q")
        publisher = await client.publisher()
        broker.faults.nack_confirm()
        assert await publisher.publish("", "q", b"x") == Nacked()
        broker.faults.lose_confirm()
        outcome = await publisher.publish("", "q", b"x", deadline_s=0.05)
        assert isinstance(outcome, InDoubt)
        assert await messages_in(client, "q") == 2

    run(scenario)


def test_a_blocked_broker_holds_publishers_up_until_it_is_unblocked() -> None:
    async def scenario(broker: EmbeddedBroker, client: Client) -> None:
        channel = await client.channel()
        await channel.declare_queue("q")
        publisher = await client.publisher()
        assert await publisher.publish("", "q", b"x") == Confirmed()
        broker.block("low on memory")
        publishing = asyncio.create_task(publisher.publish("", "q", b"y"))
        done, _ = await asyncio.wait([publishing], timeout=0.05)
        assert not done
        broker.unblock()
        assert await publishing == Confirmed()

    run(scenario)
