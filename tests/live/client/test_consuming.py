"""Each delivery reaches its handler and is settled as the handler said; the broker's counts agree."""

import asyncio
import time

import pytest
from rig.brokers import Vhost

from redrive import wire
from redrive.client import AlreadySettled, Client, Delivery, StaleDelivery
from tests.live.client.accounts import bodies, fill, ready, wait_ready
from tests.unit.client.scenario import Notes, run_scenario, wait_until

QUORUM = {"x-queue-type": "quorum"}


def numbered(count: int) -> list[bytes]:
    return [b"%d" % one for one in range(count)]


@pytest.mark.live
def test_a_plain_callback_gets_every_message_and_its_acks_count(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 1000, arguments=QUORUM)
    seen: list[bytes] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:

            def handle(delivery: Delivery) -> None:
                seen.append(delivery.body)
                delivery.ack()

            await client.consume("q", handle, prefetch=50)
            await wait_until(lambda: len(seen) == 1000)

    run_scenario(scenario())
    assert seen == numbered(1000)
    assert ready(vhost.amqp_url, "q") == 0


@pytest.mark.live
def test_a_coroutine_gets_a_task_each_and_settles_in_any_order(vhost: Vhost) -> None:
    fill(
        vhost.amqp_url,
        "q",
        300,
        arguments={**QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    fill(vhost.amqp_url, "dead", 0, arguments=QUORUM)
    seen: set[int] = set()

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:

            async def handle(delivery: Delivery) -> None:
                number = int(delivery.body)
                await asyncio.sleep((number * 7 % 13) / 1000)
                seen.add(number)
                match number % 5:
                    case 0:
                        delivery.reject(requeue=False)
                    case 1:
                        delivery.nack(requeue=False)
                    case _:
                        delivery.ack()

            consumer = await client.consume("q", handle, prefetch=100)
            await wait_until(lambda: len(seen) == 300 and consumer.in_progress == 0)

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 0
    wait_ready(vhost.amqp_url, "dead", 120)
    assert sorted(int(body) for body in bodies(vhost.amqp_url, "dead")) == [n for n in range(300) if n % 5 < 2]


@pytest.mark.live
def test_an_iterator_takes_messages_one_by_one_and_leaves_the_rest(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 50)
    seen: list[bytes] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            deliveries = await client.deliveries("q", prefetch=10)
            async for delivery in deliveries:
                seen.append(delivery.body)
                delivery.ack()
                if len(seen) == 20:
                    break
            await deliveries.close()

    run_scenario(scenario())
    assert seen == numbered(20)
    wait_ready(vhost.amqp_url, "q", 30)
    assert bodies(vhost.amqp_url, "q") == numbered(50)[20:]


@pytest.mark.live
def test_multiple_acks_and_nacks_settle_everything_before_them(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 10, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    fill(vhost.amqp_url, "dead", 0)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            deliveries = await client.deliveries("q", prefetch=10)
            taken = [await anext(deliveries) for _ in range(10)]
            taken[1].reject(requeue=False)
            taken[3].ack(multiple=True)
            taken[5].ack()
            taken[7].nack(requeue=False, multiple=True)
            with pytest.raises(AlreadySettled):
                taken[6].ack()
            await deliveries.close()

    run_scenario(scenario())
    wait_ready(vhost.amqp_url, "q", 2)
    assert bodies(vhost.amqp_url, "q") == [b"8", b"9"]
    wait_ready(vhost.amqp_url, "dead", 4)
    assert sorted(bodies(vhost.amqp_url, "dead")) == [b"1", b"4", b"6", b"7"]


@pytest.mark.live
def test_without_acks_every_message_comes_once_and_none_is_left(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 200)
    seen: list[bytes] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            await client.consume("q", lambda delivery: seen.append(delivery.body), no_ack=True)
            await wait_until(lambda: len(seen) == 200)

    run_scenario(scenario())
    assert seen == numbered(200)
    assert ready(vhost.amqp_url, "q") == 0


@pytest.mark.live
def test_stop_takes_no_more_and_earlier_deliveries_can_be_settled(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 20)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            in_hand: list[Delivery] = []
            consumer = await client.consume("q", in_hand.append, prefetch=5)
            await wait_until(lambda: len(in_hand) == 5)
            await consumer.stop()
            for delivery in in_hand[:3]:
                delivery.ack()
            await consumer.close()
            with pytest.raises(StaleDelivery):
                in_hand[3].ack()
            assert len(in_hand) == 5

    run_scenario(scenario())
    wait_ready(vhost.amqp_url, "q", 17)
    assert bodies(vhost.amqp_url, "q") == numbered(20)[3:]


@pytest.mark.live
def test_closing_requeues_the_deliveries_of_cancelled_handlers(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 10, arguments=QUORUM)
    cancelled: list[bytes] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:

            async def handle(delivery: Delivery) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.append(delivery.body)

            consumer = await client.consume("q", handle, prefetch=4)
            await wait_until(lambda: consumer.in_progress == 4)

    run_scenario(scenario())
    assert sorted(cancelled) == numbered(4)
    wait_ready(vhost.amqp_url, "q", 10)
    assert sorted(bodies(vhost.amqp_url, "q"), key=int) == numbered(10)


@pytest.mark.live
def test_acks_are_coalesced_and_none_waits_long(vhost: Vhost) -> None:
    """Counted as frames on the way out; the broker agrees that all are settled."""
    fill(vhost.amqp_url, "q", 2000)
    frames: list[tuple[int, bool]] = []
    waits_s: list[float] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            amqp = (await client.connection()).amqp
            say = amqp.ack
            said: dict[int, float] = {}

            def spy(channel: int, tag: int, multiple: bool = False) -> None:
                now = time.monotonic()
                frames.append((tag, multiple))
                for one in [one for one in said if one <= tag] if multiple else [tag]:
                    waits_s.append(now - said.pop(one))
                say(channel, tag, multiple)

            amqp.ack = spy  # type: ignore[method-assign, assignment]

            async def handle(delivery: Delivery) -> None:
                if delivery.delivery_tag % 10 == 0:
                    await asyncio.sleep(0.01)  # every tenth holds up those behind it
                delivery.ack()
                said[delivery.delivery_tag] = time.monotonic()

            await client.consume("q", handle, prefetch=200)
            await wait_until(lambda: len(waits_s) == 2000)

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 0
    assert len(frames) < 2000
    # A few milliseconds, and what the machine takes to run a timer.
    assert sorted(waits_s)[int(len(waits_s) * 0.95)] < 0.03


@pytest.mark.live
def test_acks_in_a_row_are_few_frames(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 2000)
    frames: list[int] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            amqp = (await client.connection()).amqp
            say = amqp.ack

            def spy(channel: int, tag: int, multiple: bool = False) -> None:
                frames.append(tag)
                say(channel, tag, multiple)

            amqp.ack = spy  # type: ignore[method-assign, assignment]

            async def handle(delivery: Delivery) -> None:
                delivery.ack()

            await client.consume("q", handle, prefetch=500)
            await wait_until(lambda: frames and frames[-1] == 2000)

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 0
    assert len(frames) < 1000


@pytest.mark.live
def test_with_prefetch_1_no_ack_waits_for_a_timer(vhost: Vhost) -> None:
    """The next delivery waits for the ack, so every pause before one would be paid for each message."""
    fill(vhost.amqp_url, "q", 300)
    seen: list[bytes] = []
    turns: list[int] = []
    running: list[bytes] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            amqp = (await client.connection()).amqp
            say = amqp.ack
            turn, acked_in_turn = 0, 0

            def count_turns() -> None:
                nonlocal turn
                turn += 1
                asyncio.get_running_loop().call_soon(count_turns)

            def spy(channel: int, tag: int, multiple: bool = False) -> None:
                turns.append(turn - acked_in_turn)
                say(channel, tag, multiple)

            amqp.ack = spy  # type: ignore[method-assign, assignment]
            count_turns()

            async def handle(delivery: Delivery) -> None:
                nonlocal acked_in_turn
                assert running == []
                running.append(delivery.body)
                await asyncio.sleep(0)
                seen.append(running.pop())
                acked_in_turn = turn
                delivery.ack()

            await client.consume("q", handle, prefetch=1)
            await wait_until(lambda: len(turns) == 300)

    run_scenario(scenario())
    assert seen == numbered(300)
    assert max(turns) <= 1, "an ack goes out in the next turn of the loop at the latest"
    assert ready(vhost.amqp_url, "q") == 0


@pytest.mark.live
def test_a_deleted_queue_cancels_the_consumer_and_its_successor_is_consumed(vhost: Vhost) -> None:
    notes = Notes()
    seen: list[bytes] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url, observer=notes) as client:
            channel = await client.channel()
            await channel.declare_queue("q", arguments=QUORUM)
            in_hand: list[Delivery] = []

            def handle(delivery: Delivery) -> None:
                seen.append(delivery.body)
                if delivery.body == b"before":
                    in_hand.append(delivery)
                else:
                    delivery.ack()

            await client.consume("q", handle)
            publisher = await client.publisher()
            await publisher.publish("", "q", b"before")
            await wait_until(lambda: seen == [b"before"])
            await channel.delete_queue("q")
            await wait_until(lambda: notes.count("consumer.cancelled") == 1)
            await wait_until(lambda: notes.count("consumer.failed") >= 1)
            assert "404 NOT_FOUND - no queue 'q'" in str(notes.last("consumer.failed")["reason"])
            with pytest.raises(StaleDelivery):
                in_hand[0].ack()
            await channel.declare_queue("q", arguments=QUORUM)
            await wait_until(lambda: notes.count("consumer.resumed") == 1)
            await publisher.publish("", "q", b"after")
            await wait_until(lambda: seen == [b"before", b"after"])

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 0
    assert notes.count("client.connection_lost") == 0


@pytest.mark.live
def test_an_ack_from_before_a_reconnect_is_refused_and_the_message_comes_again(vhost: Vhost) -> None:
    fill(vhost.amqp_url, "q", 1, arguments=QUORUM)
    notes = Notes()

    async def scenario() -> None:
        async with Client(vhost.amqp_url, observer=notes) as client:
            deliveries = await client.deliveries("q")
            first = await anext(deliveries)
            (await client.connection()).give_up("the cable was pulled")
            with pytest.raises(StaleDelivery, match="delivery 1 of queue q"):
                first.ack()
            second = await anext(deliveries)
            assert second.redelivered
            assert second.body == first.body
            second.ack()

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "q") == 0


@pytest.mark.live
def test_a_stream_of_messages_passes_through_with_raw_headers(vhost: Vhost) -> None:
    """Consume, republish, confirm, ack: what the runtime does all day."""
    fill(vhost.amqp_url, "from", 500, arguments=QUORUM)
    fill(vhost.amqp_url, "to", 0, arguments=QUORUM)

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            publisher = await client.publisher(window=64)
            moved: list[wire.Delivery] = []

            async def move(delivery: Delivery) -> None:
                outcome = await publisher.publish("", "to", delivery.body, delivery.header)
                assert type(outcome).__name__ == "Confirmed"
                delivery.ack()
                moved.append(delivery)

            await client.consume("from", move, prefetch=100)
            await wait_until(lambda: len(moved) == 500)

    run_scenario(scenario())
    assert ready(vhost.amqp_url, "from") == 0
    assert sorted(bodies(vhost.amqp_url, "to"), key=int) == numbered(500)
