"""Bodies of every size, channels by the thousand and names of every kind arrive as they were sent."""

import asyncio
import hashlib
import random

import pytest
from rig.brokers import Vhost
from rig.node_pool import OwnNodes

from redrive.client import Channel, Client, Confirmed, InDoubt, Outgoing
from tests.live.client.accounts import bodies, drain, ready
from tests.unit.client.scenario import run_scenario, wait_until

FRAME_MAX = 131_072
MEBIBYTE = 1 << 20
# A body frame holds frame_max less its eight octets of overhead.
SIZES = (0, 1, 255, FRAME_MAX - 9, FRAME_MAX - 8, FRAME_MAX - 7, FRAME_MAX - 1, FRAME_MAX, FRAME_MAX + 1, MEBIBYTE)


def random_body(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def check_body(body: bytes, size: int) -> None:
    assert len(body) == size
    assert hashlib.sha256(body).digest() == hashlib.sha256(random_body(size)).digest()  # a diff of 64 MB helps nobody


async def check_round_trip(url: str, sizes: tuple[int, ...]) -> None:
    """Publish each and get each, publish each and consume each, byte for byte."""
    messages = [Outgoing("", "sizes", random_body(size)) for size in sizes]
    async with Client(url) as client:
        channel = await client.channel()
        await channel.declare_queue("sizes", arguments={"x-queue-type": "quorum"})
        publisher = await client.publisher()
        assert await publisher.publish_many(messages) == [Confirmed()] * len(sizes)
        for size in sizes:
            got = await channel.get_message("sizes")
            assert got is not None
            check_body(got.body, size)
            channel.ack(got)
        assert await asyncio.gather(*(publisher.publish(*message[:3]) for message in messages)) == [Confirmed()] * len(
            sizes
        )
        deliveries = await client.deliveries("sizes")
        for size in sizes:
            delivery = await anext(deliveries)
            check_body(delivery.body, size)
            delivery.ack()


@pytest.mark.live
def test_bodies_around_the_frame_size_arrive_byte_for_byte(vhost: Vhost) -> None:
    run_scenario(check_round_trip(vhost.amqp_url, SIZES), timeout_s=60)
    assert ready(vhost.amqp_url, "sizes") == 0


@pytest.mark.live
def test_bodies_around_a_small_negotiated_frame_size_arrive_byte_for_byte(vhost: Vhost) -> None:
    sizes = (0, 1, 8183, 8184, 8185, 8191, 8192, 8193, 16_368, 16_369, 100_000)
    run_scenario(check_round_trip(vhost.amqp_url + "?frame_max=8192", sizes), timeout_s=60)
    assert ready(vhost.amqp_url, "sizes") == 0


@pytest.mark.live(versions=("3.10",))
def test_a_body_of_64_mb_arrives_byte_for_byte(vhost: Vhost) -> None:
    run_scenario(check_round_trip(vhost.amqp_url + "?heartbeat=2", (64 * MEBIBYTE,)), timeout_s=120)
    assert ready(vhost.amqp_url, "sizes") == 0


@pytest.mark.live(versions=("4.3",), matrix=("4.0",))
def test_a_body_of_64_mb_arrives_where_the_limit_was_raised(own_node: OwnNodes) -> None:
    node = own_node(conf=f"max_message_size = {128 * MEBIBYTE}")
    run_scenario(check_round_trip(node.amqp_url() + "?heartbeat=2", (64 * MEBIBYTE,)), timeout_s=120)
    assert ready(node.amqp_url(), "sizes") == 0


@pytest.mark.live(versions=("4.0", "4.3"))
def test_a_body_above_the_brokers_limit_is_in_doubt_with_its_reason_and_the_publisher_goes_on(vhost: Vhost) -> None:
    """From 4.0 a message may have 16 MiB unless the broker's operator says otherwise."""

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await (await client.channel()).declare_queue("q")
            publisher = await client.publisher()
            doubt = await publisher.publish("", "q", bytes(17 * MEBIBYTE))
            assert isinstance(doubt, InDoubt)
            assert doubt.reason.startswith("406 PRECONDITION_FAILED - message size 17825792")
            assert await publisher.publish("", "q", b"small") == Confirmed()

    run_scenario(scenario(), timeout_s=60)
    assert bodies(vhost.amqp_url, "q") == [b"small"]


@pytest.mark.live
def test_two_thousand_channels_live_on_one_connection(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            connection = await client.connection()
            channels: list[Channel] = []
            for _ in range(20):
                channels += await asyncio.gather(*(client.channel() for _ in range(100)))
            assert sorted(channel.number for channel in channels) == list(range(1, 2001))
            await channels[0].declare_queue("q")
            states = await asyncio.gather(*(channel.declare_queue("q", passive=True) for channel in channels))
            assert {state.name for state in states} == {"q"}
            # One fails and no other notices.
            with pytest.raises(Exception, match="404"):
                await channels[1000].declare_queue("none", passive=True)
            assert sum(channel.is_open for channel in channels) == 1999
            await asyncio.gather(*(channel.close() for channel in channels))
            assert await client.connection() is connection
            await wait_until(lambda: connection.amqp.free_channel() == 1)

    run_scenario(scenario(), timeout_s=60)


@pytest.mark.live
def test_names_in_every_script_and_of_255_octets_are_carried(vhost: Vhost) -> None:
    names = ["заказы.новые", "注文/新規", "ørdrer ✓ 🐇", "with space?&#%", "n" * 255, "ü" * 127]

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            await channel.declare_exchange("обмен", "topic")
            for name in names:
                assert (await channel.declare_queue(name)).name == name
                await channel.bind_queue(name, "обмен", name)
            publisher = await client.publisher()
            for name in names:
                assert await publisher.publish("обмен", name, name.encode()) == Confirmed()
                deliveries = await client.deliveries(name)
                delivery = await anext(deliveries)
                assert (delivery.exchange, delivery.routing_key, delivery.body) == ("обмен", name, name.encode())
                delivery.nack(requeue=True)
                await deliveries.close()

    run_scenario(scenario())
    assert {queue["name"] for queue in vhost.management.get("queues", vhost.name)} == set(names)
    for name in names:
        (held,) = drain(vhost.amqp_url, name)
        assert (held.exchange, held.routing_key, held.body) == ("обмен", name, name.encode())


@pytest.mark.live
def test_a_name_of_256_octets_is_refused_before_anything_is_sent(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            with pytest.raises(Exception, match="takes 256 bytes, AMQP allows 255"):
                await channel.declare_queue("ü" * 128)
            assert (await channel.declare_queue("q")).name == "q"

    run_scenario(scenario())
