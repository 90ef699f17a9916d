"""The outcome of every publish is what happened to its message on a real broker."""

import asyncio

import pytest
from rig.brokers import Vhost

from redrive import wire
from redrive.client import Client, Confirmed, InDoubt, Nacked, Outcome, Outgoing, Returned
from tests.live.client.accounts import bodies, drain, ready
from tests.unit.client.scenario import Notes, run_scenario, wait_until

CONFIRMED = Confirmed()
QUORUM = {"x-queue-type": "quorum"}


@pytest.mark.live
def test_confirmed_messages_are_in_the_queue_in_order(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await (await client.channel()).declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher(window=100)
            single = await asyncio.gather(*(publisher.publish("", "q", b"%d" % one) for one in range(500)))
            batch = await publisher.publish_many([Outgoing("", "q", b"%d" % one) for one in range(500, 1500)])
            assert [*single, *batch] == [CONFIRMED] * 1500

    run_scenario(scenario())
    held = drain(vhost.amqp_url, "q")
    assert [each.body for each in held] == [b"%d" % one for one in range(1500)]
    assert {each.properties.delivery_mode for each in held} == {2}


@pytest.mark.live
def test_a_mandatory_message_without_a_queue_is_returned_and_others_are_not(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await (await client.channel()).declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher()
            outcomes = await asyncio.gather(
                publisher.publish("", "q", b"in"),
                publisher.publish("", "nowhere", b"back"),
                publisher.publish("", "nowhere", b"gone", mandatory=False),
            )
            assert [*outcomes] == [CONFIRMED, Returned(312, "NO_ROUTE"), CONFIRMED]

    run_scenario(scenario())
    assert bodies(vhost.amqp_url, "q") == [b"in"]


@pytest.mark.live
def test_of_two_copies_in_flight_only_the_unroutable_one_is_returned(vhost: Vhost) -> None:
    """The same message id, properties and body, to two keys; no id can tell them apart."""

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await (await client.channel()).declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher()
            properties = wire.Properties.of(message_id="one", delivery_mode=2)
            keys = ["q", "nowhere", "nowhere", "q", "nowhere", "q"]
            outcomes = await asyncio.gather(*(publisher.publish("", key, b"same", properties) for key in keys))
            assert outcomes == [CONFIRMED if key == "q" else Returned(312, "NO_ROUTE") for key in keys]

    run_scenario(scenario())
    assert bodies(vhost.amqp_url, "q") == [b"same"] * 3


@pytest.mark.live
def test_outcomes_of_equal_copies_agree_with_the_queue_while_its_binding_goes(vhost: Vhost) -> None:
    """Equal to the byte, exchange and key included; the first is on its way when the binding is taken away."""

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            await channel.declare_exchange("x")
            await channel.declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher()
            for _ in range(20):
                await channel.bind_queue("q", "x", "k")
                first = asyncio.create_task(publisher.publish("x", "k", b"same"))
                await asyncio.sleep(0)
                await channel.unbind_queue("q", "x", "k")
                second = asyncio.create_task(publisher.publish("x", "k", b"same"))
                outcomes = [await first, await second]
                # Two channels have no order between them: the unbinding may overtake the first.
                assert Returned(312, "NO_ROUTE") in outcomes
                confirmed = outcomes.count(CONFIRMED)
                assert confirmed + outcomes.count(Returned(312, "NO_ROUTE")) == 2
                assert await channel.purge_queue("q") == confirmed

    run_scenario(scenario())


@pytest.mark.live
def test_a_thousand_returns_in_one_window_find_their_messages(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await (await client.channel()).declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher(window=3000)
            keys = ["q" if one % 3 == 0 else "nowhere" for one in range(3000)]
            outcomes = await publisher.publish_many([Outgoing("", key, b"%d" % n) for n, key in enumerate(keys)])
            assert outcomes == [CONFIRMED if key == "q" else Returned(312, "NO_ROUTE") for key in keys]

    run_scenario(scenario())
    assert bodies(vhost.amqp_url, "q") == [b"%d" % one for one in range(0, 3000, 3)]


@pytest.mark.live
def test_a_returned_message_whose_bcc_the_broker_took_out_is_not_confirmed(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            publisher = await client.publisher()
            properties = wire.Properties.of(headers={"BCC": ["nowhere-else"], "x": 1}, message_id="one")
            assert await publisher.publish("", "nowhere", b"body", properties) == Returned(312, "NO_ROUTE")

    run_scenario(scenario())


@pytest.mark.live
def test_a_full_queue_that_rejects_publishes_nacks_them(vhost: Vhost) -> None:
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            arguments = {"x-queue-type": "classic", "x-max-length": 5, "x-overflow": "reject-publish"}
            await (await client.channel()).declare_queue("small", arguments=arguments)
            publisher = await client.publisher()
            for one in range(20):
                outcomes.append(await publisher.publish("", "small", b"%d" % one))
            outcomes.extend(await publisher.publish_many([Outgoing("", "small", b"x")] * 100))

    run_scenario(scenario())
    assert outcomes == [CONFIRMED] * 5 + [Nacked()] * 115
    assert bodies(vhost.amqp_url, "small") == [b"%d" % one for one in range(5)]


@pytest.mark.live
def test_a_missing_exchange_leaves_its_messages_in_doubt_and_the_publisher_goes_on(vhost: Vhost) -> None:
    notes = Notes()

    async def scenario() -> None:
        async with Client(vhost.amqp_url, observer=notes) as client:
            await (await client.channel()).declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher()
            for _ in range(3):
                doubt = await publisher.publish("no-such-exchange", "k", b"lost")
                assert isinstance(doubt, InDoubt)
                assert doubt.sent
                assert doubt.reason == f"404 NOT_FOUND - no exchange 'no-such-exchange' in vhost '{vhost.name}'"
                assert await publisher.publish("", "q", b"in") == CONFIRMED
            assert notes.count("publisher.channel_lost") == 3
            assert notes.count("client.connection_lost") == 0

    run_scenario(scenario())
    assert bodies(vhost.amqp_url, "q") == [b"in"] * 3


@pytest.mark.live
def test_the_window_bounds_what_is_in_flight(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await (await client.channel()).declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher(window=7)
            highest = 0

            async def publish(number: int) -> Outcome:
                nonlocal highest
                outcome = asyncio.ensure_future(publisher.publish("", "q", b"%d" % number))
                while not outcome.done():
                    highest = max(highest, publisher.in_flight)
                    await asyncio.sleep(0)
                return await outcome

            outcomes = await asyncio.gather(*(publish(number) for number in range(200)))
            batch = asyncio.create_task(publisher.publish_many([Outgoing("", "q", b"x")] * 100))
            while not batch.done():
                highest = max(highest, publisher.in_flight)
                await asyncio.sleep(0)
            assert [*outcomes, *await batch] == [CONFIRMED] * 300
            assert highest == 7

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 300


@pytest.mark.live
def test_a_cancelled_publish_frees_its_slot(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await (await client.channel()).declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher(window=2)
            for _ in range(50):
                publishes = [asyncio.create_task(publisher.publish("", "q", b"maybe")) for _ in range(5)]
                await asyncio.sleep(0)
                for publish in publishes:
                    publish.cancel()
                await asyncio.gather(*publishes, return_exceptions=True)
            await wait_until(lambda: publisher.in_flight == 0)
            assert await publisher.publish("", "q", b"last") == CONFIRMED

    run_scenario(scenario())
    assert bodies(vhost.amqp_url, "q")[-1] == b"last"


@pytest.mark.live
def test_a_deadline_passes_while_the_broker_is_slow_and_the_message_is_accounted_for(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await (await client.channel()).declare_queue("q", arguments=QUORUM)
            publisher = await client.publisher()
            assert await publisher.publish("", "q", b"in time", deadline_s=20) == CONFIRMED
            late = await publisher.publish("", "q", b"late", deadline_s=0)
            assert late == InDoubt("no outcome within 0 s", sent=True)
            await wait_until(lambda: publisher.in_flight == 0)

    run_scenario(scenario())
    assert bodies(vhost.amqp_url, "q") == [b"in time", b"late"]
