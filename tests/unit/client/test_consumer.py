"""A consumer sends what was settled, refuses what it can no longer send, restores itself, and ends when closed."""

import asyncio
import functools

import pytest

from redrive import wire
from redrive.client import (
    AlreadySettled,
    Client,
    Deliveries,
    Delivery,
    Handler,
    NotFound,
    ReconnectBackoff,
    StaleDelivery,
)
from redrive.client.read_pauses import SettleRate, is_pause_worthwhile
from redrive.wire import methods
from tests.unit.client.scenario import Notes, ended, run_scenario, wait_until
from tests.unit.client.scripted import Peer, ScriptedBroker


def at_once() -> ReconnectBackoff:
    return ReconnectBackoff(first_s=0.001, longest_s=0.01)


def acked(peer: Peer) -> list[tuple[int, bool]]:
    return [(event.delivery_tag, event.multiple) for event in peer.heard(wire.Ack) if isinstance(event, wire.Ack)]


def open_channels(peer: Peer) -> int:
    return sum(peer.wire.channel_state(number) is wire.ChannelState.OPEN for number in range(1, 20))


async def fill(
    broker: ScriptedBroker, client: Client, count: int, *, no_ack: bool = False
) -> tuple[Deliveries, list[Delivery]]:
    """An iterator, and the first deliveries of it."""
    deliveries = await client.deliveries("q", no_ack=no_ack)
    broker.peer.deliver(1, *range(1, count + 1))
    return deliveries, [await anext(deliveries) for _ in range(count)]


def test_acks_in_the_turn_of_a_connection_close_harm_nothing_else() -> None:
    """The acks of one chunk can't be sent any more if the chunk ends with connection.close."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            consumer = await client.consume("q", lambda delivery: delivery.ack())
            publisher = await client.publisher()
            publish = asyncio.create_task(publisher.publish("", "q", b"x"))
            peer = broker.peer
            await wait_until(lambda: peer.heard(wire.Published))
            for tag in (1, 2):
                peer.wire.deliver(1, "ctag", tag, False, "", "q", wire.EMPTY, b"")
            peer.say(0, methods.ConnectionClose(reply_code=320, reply_text="CONNECTION_FORCED"))
            (outcome,) = await ended(publish)
            assert outcome.reason == "320 CONNECTION_FORCED"
            await wait_until(lambda: len(broker.peers) == 2 and consumer.is_consuming)

    run_scenario(scenario())


def test_acks_that_wait_for_lower_tags_are_sent_before_the_channel_closes() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            deliveries, taken = await fill(broker, client, 5)
            for delivery in (taken[1], taken[3], taken[4]):
                delivery.ack()
            await deliveries.close()
            assert acked(broker.peer) == [(2, False), (4, False), (5, False)]
            kinds = [
                type(event.method) if isinstance(event, wire.Command) else type(event) for event in broker.peer.events
            ]
            assert kinds.index(methods.ChannelClose) > kinds.index(wire.Ack)

    run_scenario(scenario())


def test_closing_the_client_sends_all_acks_too() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            async with Client(broker.url) as client:
                _, taken = await fill(broker, client, 3)
                taken[0].ack()
                taken[2].ack()
            assert acked(broker.peer) == [(1, True), (3, False)]

    run_scenario(scenario())


def test_closing_the_connection_sends_all_acks_first() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            _, taken = await fill(broker, client, 3)
            peer = broker.peer
            taken[0].ack()
            taken[2].ack()
            await (await client.connection()).close()
            assert acked(peer) == [(1, True), (3, False)]

    run_scenario(scenario())


def test_settling_while_the_channel_closes_is_refused_and_harms_no_other_channel() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            deliveries, taken = await fill(broker, client, 4)
            channel = await client.channel()
            taken[3].ack()  # its timer is running when the channel closes
            closing = asyncio.create_task(deliveries.close())
            await wait_until(lambda: not taken[0].session.usable)
            for settle in (taken[0].ack, functools.partial(taken[1].nack, requeue=True)):
                with pytest.raises(StaleDelivery):
                    settle()
            with pytest.raises(StaleDelivery):
                taken[2].reject(requeue=False)
            await ended(closing)
            assert (await channel.declare_queue("q")).name == "q"
            assert acked(broker.peer) == [(4, False)]

    run_scenario(scenario())


def test_a_delivery_is_settled_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            _, taken = await fill(broker, client, 3)
            taken[1].ack()
            taken[2].reject(requeue=False)
            for delivery in taken[1:]:
                with pytest.raises(AlreadySettled):
                    delivery.ack()
                with pytest.raises(AlreadySettled):
                    delivery.nack(requeue=True)
            taken[0].ack()
            await wait_until(lambda: acked(broker.peer))
            assert acked(broker.peer) == [(2, True)]

    run_scenario(scenario())


def test_an_ack_the_broker_does_not_wait_for_is_not_sent() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            deliveries, taken = await fill(broker, client, 1, no_ack=True)
            with pytest.raises(AlreadySettled):
                taken[0].ack()
            await deliveries.close()
            assert acked(broker.peer) == []

    run_scenario(scenario())


def test_no_ack_deliveries_are_not_dropped_when_the_connection_is_lost() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            deliveries = await client.deliveries("q", no_ack=True)
            broker.peer.deliver(1, 1, 2, 3)
            first = await anext(deliveries)
            broker.peer.hang_up()
            await wait_until(lambda: len(broker.peers) == 2 and deliveries.consumer.is_consuming)
            await deliveries.close()
            assert [first.delivery_tag, *[delivery.delivery_tag async for delivery in deliveries]] == [1, 2, 3]

    run_scenario(scenario())


def test_deliveries_not_taken_when_the_connection_is_lost_come_again() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            deliveries = await client.deliveries("q")
            broker.peer.deliver(1, 1, 2)
            (await anext(deliveries)).ack()
            broker.peer.hang_up()
            await wait_until(lambda: len(broker.peers) == 2 and deliveries.consumer.is_consuming)
            broker.peer.deliver(1, 1, body=b"again")
            assert (await anext(deliveries)).body == b"again"

    run_scenario(scenario())


def test_an_iterator_ends_with_its_consumer_however_that_is_closed() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            client = Client(broker.url)
            await client.start()
            deliveries = await client.deliveries("q")

            taken: list[int] = []

            async def take() -> None:
                async for delivery in deliveries:
                    taken.append(delivery.delivery_tag)

            readers = [asyncio.create_task(take()) for _ in range(2)]
            await asyncio.sleep(0)
            broker.peer.deliver(1, 1, 2, 3)
            await wait_until(lambda: len(taken) == 3)
            await client.close()
            assert await ended(*readers) == [None, None]
            assert sorted(taken) == [1, 2, 3]

    run_scenario(scenario())


def test_a_stopped_iterator_yields_what_has_come_and_ends() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            deliveries = await client.deliveries("q")
            broker.peer.deliver(1, 1, 2)
            await wait_until(lambda: len(deliveries._ready) == 2)
            await deliveries.consumer.stop()
            async for delivery in deliveries:
                delivery.ack()
            await wait_until(lambda: acked(broker.peer) == [(2, True)] or acked(broker.peer) == [(1, True), (2, True)])

    run_scenario(scenario())


def test_a_cancelled_consume_takes_no_messages() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            taken: list[Delivery] = []
            broker.peer.silent_on.add(methods.BasicConsume)
            starting = asyncio.create_task(client.consume("q", taken.append))
            await wait_until(lambda: broker.peer.heard(methods.BasicConsume))
            starting.cancel()
            assert isinstance((await ended(starting))[0], asyncio.CancelledError)
            await wait_until(lambda: open_channels(broker.peer) == 0)
            assert taken == []

    run_scenario(scenario())


def test_a_consumer_stopped_while_it_resumes_stays_stopped() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            consumer = await client.consume("q", lambda _: None)
            broker.peer.silent_on.clear()
            broker.peer.hang_up()
            await wait_until(lambda: len(broker.peers) == 2)
            broker.peer.silent_on.add(methods.BasicQos)
            await wait_until(lambda: broker.peer.heard(methods.BasicQos) or consumer.is_consuming)
            await ended(consumer.stop())
            assert not consumer.is_consuming
            await ended(consumer.close())
            await wait_until(lambda: open_channels(broker.peer) == 0)

    run_scenario(scenario())


def test_a_queue_name_that_amqp_can_not_carry_is_refused_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            (error,) = await ended(client.consume("q" * 256, lambda _: None))
            assert isinstance(error, wire.LocalProtocolError)
            await wait_until(lambda: open_channels(broker.peer) == 0)

    run_scenario(scenario())


def test_a_refused_start_is_raised_and_a_lost_connection_is_tried_again() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            broker.peer.silent_on.add(methods.BasicQos)
            starting = asyncio.create_task(client.consume("q", lambda _: None))
            await wait_until(lambda: broker.peer.heard(methods.BasicQos))
            broker.peer.hang_up()
            (consumer,) = await ended(starting)
            assert consumer.is_consuming

            broker.peer.silent_on.add(methods.BasicConsume)
            starting = asyncio.create_task(client.consume("gone", lambda _: None))
            await wait_until(lambda: len(broker.peer.heard(methods.BasicConsume)) == 2)
            broker.peer.say(
                2, methods.ChannelClose(reply_code=404, reply_text="NOT_FOUND - no queue 'gone' in vhost '/'")
            )
            (error,) = await ended(starting)
            assert isinstance(error, NotFound)
            assert (error.code, error.object_kind, error.object_name) == (404, "queue", "gone")

    run_scenario(scenario())


def test_every_kind_of_callable_is_a_handler() -> None:
    class Both:
        def __init__(self) -> None:
            self.seen: list[int] = []

        async def __call__(self, delivery: Delivery) -> None:
            await asyncio.sleep(0)
            self.seen.append(delivery.delivery_tag)

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            handler = Both()
            handlers: list[Handler] = [handler, handler.__call__, lambda delivery: handler(delivery)]
            for channel, each in enumerate(handlers, start=1):
                await client.consume("q", each)
                broker.peer.deliver(channel, channel)
            await wait_until(lambda: sorted(handler.seen) == [1, 2, 3])

    run_scenario(scenario())


def test_a_handler_that_raises_is_noted_and_the_others_run() -> None:
    async def scenario() -> None:
        notes = Notes()
        async with ScriptedBroker() as broker, Client(broker.url, observer=notes) as client:

            def plain(delivery: Delivery) -> None:
                if delivery.delivery_tag == 1:
                    raise ValueError("no")
                delivery.ack()

            async def in_task(delivery: Delivery) -> None:
                plain(delivery)

            for channel, handler in enumerate((plain, in_task), start=1):
                await client.consume("q", handler)
                broker.peer.deliver(channel, 1, 2)
                await wait_until(lambda: len(acked(broker.peer)) == channel)  # noqa: B023 - used at once
                assert notes.last("consumer.handler_failed") == {
                    "queue": "q",
                    "delivery_tag": 1,
                    "error": "ValueError('no')",
                }

    run_scenario(scenario())


def test_closing_cancels_handlers_and_a_handler_may_close_its_own_consumer() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            endings: list[str] = []

            async def handle(delivery: Delivery) -> None:
                if delivery.delivery_tag == 2:
                    delivery.ack()
                    await consumer.close()
                    endings.append("closed")
                    return
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    endings.append("cancelled")
                    raise

            consumer = await client.consume("q", handle)
            broker.peer.deliver(1, 1, 2)
            await wait_until(lambda: len(endings) == 2)
            assert endings == ["cancelled", "closed"]
            assert acked(broker.peer) == [(2, False)]
            assert open_channels(broker.peer) == 0

    run_scenario(scenario())


def test_a_handler_that_will_not_end_does_not_hold_up_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.client.consumer._HANDLERS_END_S", 0.05)

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            release = asyncio.Event()
            refused: list[Exception] = []

            async def stubborn(delivery: Delivery) -> None:
                while not release.is_set():
                    try:
                        await release.wait()
                    except asyncio.CancelledError:
                        continue
                try:
                    delivery.ack()
                except StaleDelivery as error:
                    refused.append(error)

            consumer = await client.consume("q", stubborn)
            broker.peer.deliver(1, 1)
            await wait_until(lambda: consumer.in_progress == 1)
            await ended(consumer.close(), timeout_s=2)
            release.set()
            await wait_until(lambda: refused)

    run_scenario(scenario())


def test_a_broker_that_does_not_answer_loses_the_channel_and_the_close_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.client.connection._CLOSE_S_MAX", 0.05)

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            deliveries, taken = await fill(broker, client, 1)
            broker.peer.silent_on.add(methods.BasicCancel)
            await ended(deliveries.consumer.stop(), timeout_s=2)
            with pytest.raises(StaleDelivery):
                taken[0].ack()

    run_scenario(scenario())


def test_a_cancel_by_the_broker_makes_deliveries_stale_and_consuming_resumes() -> None:
    async def scenario() -> None:
        notes = Notes()
        async with ScriptedBroker() as broker, Client(broker.url, observer=notes, backoff=at_once) as client:
            deliveries, taken = await fill(broker, client, 2)
            taken[0].ack()
            broker.peer.say(1, methods.BasicCancel(consumer_tag="ctag"))
            await wait_until(lambda: notes.count("consumer.resumed") == 1)
            assert notes.count("consumer.cancelled") == 1
            assert acked(broker.peer) == [(1, True)]
            with pytest.raises(StaleDelivery):
                taken[1].ack()
            broker.peer.deliver(1, 1, body=b"again")
            assert (await anext(deliveries)).body == b"again"

    run_scenario(scenario())


def test_deliveries_no_handler_has_begun_with_are_dropped_with_their_channel() -> None:
    """It comes again; handled twice it would only be refused twice."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            release = asyncio.Event()
            begun: list[tuple[int, bytes]] = []

            async def handle(delivery: Delivery) -> None:
                begun.append((delivery.delivery_tag, delivery.body))
                await release.wait()
                if not delivery.is_stale:
                    delivery.ack()

            handlers: tuple[Handler, ...] = (handle, lambda delivery: handle(delivery))
            for handler in handlers:
                release.clear()
                begun.clear()
                consumer = await client.consume("q", handler, prefetch=1)
                peer = broker.peer
                peer.deliver(1, 1, 2, 3)  # more than was asked for, so that some must wait
                await wait_until(lambda: consumer.in_progress == 3)  # noqa: B023 - used at once
                peer.hang_up()
                await wait_until(lambda: broker.peer is not peer and consumer.is_consuming)  # noqa: B023
                broker.peer.deliver(1, 1, body=b"again")
                release.set()
                await wait_until(lambda: acked(broker.peer) == [(1, True)])
                assert begun == [(1, b"body"), (1, b"again")]
                await consumer.close()

    run_scenario(scenario())


def test_a_held_delivery_is_in_progress_after_its_handler_has_ended() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            taken: list[Delivery] = []

            async def handle(delivery: Delivery) -> None:
                delivery.hold()
                taken.append(delivery)

            consumer = await client.consume("q", handle)
            broker.peer.deliver(1, 1, 2)
            await wait_until(lambda: len(taken) == 2)
            assert consumer.in_progress == 2
            taken[0].ack()
            taken[0].release()
            assert consumer.in_progress == 1
            broker.peer.hang_up()
            await wait_until(lambda: len(broker.peers) == 2 and consumer.is_consuming)
            assert (taken[1].is_stale, consumer.in_progress) == (True, 1)  # somebody still has to do with it
            taken[1].release()
            assert consumer.in_progress == 0

    run_scenario(scenario())


@pytest.mark.parametrize(
    ("settled", "within_s", "prefetch", "is_due"),
    [
        (24, 0.002, 500, True),
        (24, 0.002, 0, True),  # no limit that could hold anybody up
        (24, 0.002, 100, False),  # a quarter of the prefetch: the broker would have to wait
        (160, 0.002, 500, False),
        (160, 0.016, 500, True),
        (8, 1.0, 500, False),  # so few that they would only wait
        (10, 0.01, 10, False),
    ],
)
def test_a_pause_is_worthwhile_where_some_deliveries_come_in_it_and_not_too_many(
    settled: int, within_s: float, prefetch: int, is_due: bool
) -> None:
    assert is_pause_worthwhile(settled, within_s, prefetch) is is_due


def test_the_settle_rate_is_measured_now_and_then_and_decides_about_pauses() -> None:
    rate = SettleRate(500, 0.0)
    assert not rate.is_pause_due(30, 0.002)  # not measured yet
    assert rate.is_pause_due(120, 0.010)
    assert not rate.is_pause_due(125, 0.012)  # so few since the last pause
    assert rate.is_pause_due(140, 0.014)
    assert not rate.is_pause_due(1140, 0.020)  # too many by now for a pause
    assert not rate.is_pause_due(1150, 1.020)  # and now too few


def test_what_comes_while_reading_is_paused_is_read_afterwards() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            chunks: list[int] = []
            await client.consume("q", lambda delivery: chunks.append(delivery.delivery_tag))
            connection = await client.connection()
            connection.pause_reading(0.05)
            connection.pause_reading(0.05)  # is one pause
            broker.peer.deliver(1, 1)
            await asyncio.sleep(0.01)
            assert chunks == []
            broker.peer.deliver(1, 2)
            await wait_until(lambda: chunks == [1, 2])

    run_scenario(scenario())


def test_a_connection_lost_while_reading_is_paused_is_restored() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            consumer = await client.consume("q", lambda delivery: delivery.ack())
            (await client.connection()).pause_reading(0.02)
            broker.peer.hang_up()
            await wait_until(lambda: len(broker.peers) == 2 and consumer.is_consuming)
            (await client.connection()).pause_reading(0.02)
        await asyncio.sleep(0.03)  # closed during a pause: no timer is left over

    run_scenario(scenario())
