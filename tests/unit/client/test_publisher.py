"""Every publish ends, and with the one outcome that is true: whatever the broker says, in whatever order."""

import asyncio

import pytest

from redrive import wire
from redrive.client import Client, Confirmed, InDoubt, Nacked, Outcome, Outgoing, Publisher, ReconnectBackoff, Returned
from redrive.wire import methods
from tests.unit.client.scenario import Notes, ended, run_scenario, wait_until
from tests.unit.client.scripted import PERSISTENT, Peer, ScriptedBroker

CONFIRMED = Confirmed()
NO_ROUTE = Returned(312, "NO_ROUTE")


def at_once() -> ReconnectBackoff:
    return ReconnectBackoff(first_s=0.001, longest_s=0.01)


def start(publisher: Publisher, count: int, deadline_s: float | None = None) -> list[asyncio.Task[Outcome]]:
    """`count` publishes at the same time."""
    bodies = [b"%d" % one for one in range(count)]
    return [asyncio.create_task(publisher.publish("", "q", body, deadline_s=deadline_s)) for body in bodies]


async def arrive(peer: Peer, count: int) -> None:
    await wait_until(lambda: len(peer.heard(wire.Published)) == count)


async def block(client: Client, peer: Peer) -> None:
    peer.say(0, methods.ConnectionBlocked(reason="low on memory"))
    connection = await client.connection()
    await wait_until(lambda: connection.blocked is not None)


def test_a_connection_lost_while_the_broker_blocks_ends_or_resumes_every_publish() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            publisher = await client.publisher(window=2)
            publishes = start(publisher, 5)
            await arrive(broker.peer, 2)
            await block(client, broker.peer)
            publishes += start(publisher, 1)
            await asyncio.sleep(0)
            broker.peer.hang_up()
            await wait_until(lambda: len(broker.peers) == 2)
            # Those in flight are in doubt, the four others go on with the next connection, in their order.
            assert all(isinstance(one, InDoubt) for one in await ended(*publishes[:2]))
            await arrive(broker.peer, 2)
            broker.peer.confirm(1, 2, multiple=True)
            await arrive(broker.peer, 4)
            broker.peer.confirm(1, 4, multiple=True)
            assert await ended(*publishes[2:]) == [CONFIRMED] * 4
            bodies = [event.body for event in broker.peer.heard(wire.Published) if isinstance(event, wire.Published)]
            assert bodies == [b"2", b"3", b"4", b"0"]

    run_scenario(scenario())


def test_publishers_that_wait_for_the_window_go_on_when_the_broker_unblocks() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher(window=1)
            publishes = start(publisher, 3)
            await arrive(broker.peer, 1)
            await block(client, broker.peer)
            broker.peer.confirm(1, 1)
            assert await ended(publishes[0]) == [CONFIRMED]
            # No confirm is on its way now: only the end of the block can wake the next.
            broker.peer.say(0, methods.ConnectionUnblocked())
            for number in (2, 3):
                await arrive(broker.peer, number)
                broker.peer.confirm(1, number)
            assert await ended(*publishes) == [CONFIRMED] * 3

    run_scenario(scenario())


def test_closing_the_publisher_ends_those_who_wait_with_nothing_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.client.connection._CLOSE_BLOCKED_S_MAX", 0.05)

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher(window=1)
            publishes = start(publisher, 3)
            await arrive(broker.peer, 1)
            await block(client, broker.peer)
            publishes += start(publisher, 1)
            await asyncio.sleep(0)
            await ended(publisher.close())
            first, *others = await ended(*publishes)
            assert isinstance(first, InDoubt)
            assert first.sent
            assert others == [InDoubt("the publisher was closed", sent=False)] * 3
            assert (
                await ended(publisher.publish("", "q", b"late"), publisher.publish("", "q", b"late", deadline_s=1))
                == [InDoubt("the publisher was closed", sent=False)] * 2
            )

    run_scenario(scenario())


def test_closing_waits_for_outcomes_and_takes_no_more_publishes() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            publishes = start(publisher, 2)
            await arrive(broker.peer, 2)
            closing = asyncio.create_task(publisher.close())
            await asyncio.sleep(0)
            assert await publisher.publish("", "q", b"late") == InDoubt("the publisher was closed", sent=False)
            broker.peer.confirm(1, 2, multiple=True)
            await ended(closing)
            assert await ended(*publishes) == [CONFIRMED] * 2
            assert len(broker.peer.heard(wire.Published)) == 2

    run_scenario(scenario())


def test_a_silent_broker_does_not_hold_up_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.client.connection._CLOSE_S_MAX", 0.05)

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            client = Client(broker.url)
            await client.start()
            publisher = await client.publisher()
            publishes = start(publisher, 1)
            await arrive(broker.peer, 1)
            broker.peer.transport.pause_reading()
            await ended(client.close(), client.close(), timeout_s=2)
            assert isinstance((await ended(*publishes))[0], InDoubt)

    run_scenario(scenario())


def test_an_unsendable_message_frees_its_slot() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher(window=1)
            (first,) = start(publisher, 1)
            await arrive(broker.peer, 1)
            bad = asyncio.create_task(publisher.publish("", "k" * 256, b""))
            (third,) = start(publisher, 1)
            await asyncio.sleep(0)
            broker.peer.confirm(1, 1)
            assert isinstance((await ended(bad))[0], wire.LocalProtocolError)
            await arrive(broker.peer, 2)
            broker.peer.confirm(1, 2)
            assert await ended(first, third) == [CONFIRMED] * 2

    run_scenario(scenario())


def test_an_unsendable_message_in_a_batch_is_reported_and_the_others_are_sent() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            batch = asyncio.create_task(
                publisher.publish_many(
                    [Outgoing("", "q", b"1"), Outgoing("", "k" * 256, b"2"), Outgoing("", "q", b"3")]
                )
            )
            await arrive(broker.peer, 2)
            broker.peer.confirm(1, 2, multiple=True)
            outcomes = await batch
            assert outcomes[0] == outcomes[2] == CONFIRMED
            assert isinstance(outcomes[1], InDoubt)
            assert not outcomes[1].sent
            assert "256 bytes" in outcomes[1].reason

    run_scenario(scenario())


def test_the_window_is_never_exceeded_and_nobody_overtakes() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher(window=3)
            publishes = start(publisher, 50)
            batch = asyncio.create_task(publisher.publish_many([Outgoing("", "q", b"batch")] * 50))
            for number in range(1, 101):
                await arrive_at_least(broker.peer, number)
                assert publisher.in_flight <= 3
                broker.peer.confirm(1, number)
            assert await ended(*publishes) == [CONFIRMED] * 50
            assert await batch == [CONFIRMED] * 50
            bodies = [event.body for event in broker.peer.heard(wire.Published) if isinstance(event, wire.Published)]
            assert bodies == [b"%d" % one for one in range(50)] + [b"batch"] * 50

    run_scenario(scenario())


@pytest.mark.slow
def test_large_bodies_wait_for_the_socket() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            broker.peer.transport.pause_reading()
            batch = asyncio.create_task(publisher.publish_many([Outgoing("", "q", bytes(1 << 20))] * 200))
            publishes = [asyncio.create_task(publisher.publish("", "q", bytes(1 << 20))) for _ in range(200)]
            await asyncio.sleep(0.05)
            assert 0 < publisher.in_flight < 50  # what the kernel takes, and a message or two; not 400 copies of 1 MB
            broker.peer.transport.resume_reading()
            for number in range(1, 401):
                await arrive_at_least(broker.peer, number)
                broker.peer.confirm(1, number)
            assert await batch == [CONFIRMED] * 200
            assert await ended(*publishes) == [CONFIRMED] * 200

    run_scenario(scenario())


async def arrive_at_least(peer: Peer, count: int) -> None:
    await wait_until(lambda: len(peer.heard(wire.Published)) >= count)


def test_a_deadline_bounds_waiting_and_says_whether_anything_was_sent() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher(window=1)
            sent, unsent = await ended(*start(publisher, 2, deadline_s=0.05))
            assert sent == InDoubt("no outcome within 0.05 s", sent=True)
            assert unsent == InDoubt("no outcome within 0.05 s", sent=False)
            broker.peer.confirm(1, 1)  # too late for the first, but its place is free again
            (third,) = start(publisher, 1)
            await arrive(broker.peer, 2)
            broker.peer.confirm(1, 2)
            assert await ended(third) == [CONFIRMED]

    run_scenario(scenario())


def test_each_publish_in_flight_has_a_deadline_of_its_own_and_its_late_outcome() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            (patient,) = start(publisher, 1)
            (long,) = start(publisher, 1, deadline_s=60)
            (short, shorter) = (*start(publisher, 1, deadline_s=0.1), *start(publisher, 1, deadline_s=0.05))
            (cancelled,) = start(publisher, 1, deadline_s=0.05)
            await arrive(broker.peer, 5)
            cancelled.cancel()
            doubts = await ended(short, shorter)
            assert doubts == [InDoubt("no outcome within 0.1 s"), InDoubt("no outcome within 0.05 s")]
            assert publisher.in_flight == 5
            assert not patient.done()
            assert not long.done()
            broker.peer.confirm(1, 2, multiple=True)
            assert await ended(patient, long) == [CONFIRMED] * 2
            broker.peer.confirm(1, 3)
            broker.peer.refuse(1, 4)
            lates = [one.late for one in doubts if isinstance(one, InDoubt) and one.late is not None]
            assert await ended(*lates) == [CONFIRMED, Nacked()]
            broker.peer.confirm(1, 5)
            await wait_until(lambda: publisher.in_flight == 0)

    run_scenario(scenario())


def test_multiple_confirms_and_refusals_settle_what_they_name_and_no_more() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            publishes = start(publisher, 9)
            await arrive(broker.peer, 9)
            peer = broker.peer
            peer.confirm(1, 2)
            peer.refuse(1, 3, multiple=True)
            peer.confirm(1, 3)  # a second word about it changes nothing
            peer.confirm(1, 6, multiple=True)
            peer.refuse(1, 7)
            peer.confirm(1, 0, multiple=True)
            outcomes = await ended(*publishes)
            assert outcomes == [Nacked(), CONFIRMED, Nacked(), *[CONFIRMED] * 3, Nacked(), *[CONFIRMED] * 2]

    run_scenario(scenario())


def test_a_confirm_of_what_was_never_published_does_no_harm() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            publishes = start(publisher, 2)
            await arrive(broker.peer, 2)
            broker.peer.confirm(1, 1 << 63, multiple=True)
            broker.peer.refuse(1, 1 << 63, multiple=True)
            assert await ended(*publishes) == [CONFIRMED] * 2

    run_scenario(scenario())


def test_the_publisher_ends_with_a_client_that_is_closed_before_it_is_ready() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            client = Client(broker.url)
            await client.start()
            broker.peer.silent_on.add(methods.ConfirmSelect)
            making = asyncio.create_task(client.publisher())
            await wait_until(lambda: broker.peer.heard(methods.ConfirmSelect))
            await ended(client.close())
            (error,) = await ended(making)
            assert str(error) == "the publisher was closed"
            (error,) = await ended(client.publisher())
            assert str(error) == "the client was closed"

    run_scenario(scenario())


def test_a_cancelled_making_of_a_publisher_leaves_no_channel() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            broker.peer.silent_on.add(methods.ConfirmSelect)
            making = asyncio.create_task(client.publisher())
            await wait_until(lambda: broker.peer.heard(methods.ConfirmSelect))
            making.cancel()
            await ended(making)
            await wait_until(lambda: broker.peer.wire.channel_state(1) is wire.ChannelState.CLOSED)

    run_scenario(scenario())


def test_a_channel_that_nacks_is_replaced_when_nothing_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or RabbitMQ 3.10 nacks for ever: see `publisher`."""
    monkeypatch.setattr("redrive.client.publisher._REPLACE_FIRST_S", 0.02)
    notes = Notes()

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, observer=notes) as client:
            publisher = await client.publisher()
            nacked, confirmed = start(publisher, 2)
            await arrive(broker.peer, 2)
            broker.peer.refuse(1, 1)
            assert await ended(nacked) == [Nacked()]
            await asyncio.sleep(0.05)
            (waiting,) = start(publisher, 1)  # the channel is on its way out, and waits for the one in flight
            await asyncio.sleep(0)
            assert broker.peer.heard(methods.ChannelClose) == []
            broker.peer.confirm(1, 2)
            assert await ended(confirmed) == [CONFIRMED]
            await arrive(broker.peer, 3)
            assert len(broker.peer.heard(methods.ChannelOpen)) == 2
            broker.peer.confirm(1, 1)
            assert await ended(waiting) == [CONFIRMED]
            assert notes.count("publisher.channel_replaced") == 1
            assert notes.count("publisher.channel_lost") == 0

    run_scenario(scenario())


def test_a_channel_that_nacks_and_keeps_messages_in_flight_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.client.publisher._REPLACE_FIRST_S", 0.02)
    monkeypatch.setattr("redrive.client.connection._CLOSE_S_MAX", 0.05)

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            nacked, stuck = start(publisher, 2)
            await arrive(broker.peer, 2)
            broker.peer.refuse(1, 1)
            assert await ended(nacked) == [Nacked()]
            await asyncio.sleep(0.1)
            (third,) = start(publisher, 1)
            await arrive(broker.peer, 3)
            broker.peer.confirm(1, 3)
            assert await ended(third) == [CONFIRMED]
            assert len(broker.peer.heard(methods.ChannelOpen)) == 1
            assert not stuck.done()
            broker.peer.confirm(1, 2)
            assert await ended(stuck) == [CONFIRMED]

    run_scenario(scenario())


def test_a_channel_that_nacks_and_is_then_lost_is_reported_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.client.publisher._REPLACE_FIRST_S", 10.0)
    notes = Notes()

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, observer=notes, backoff=at_once) as client:
            publisher = await client.publisher()
            (nacked,) = start(publisher, 1)
            await arrive(broker.peer, 1)
            broker.peer.refuse(1, 1)
            assert await ended(nacked) == [Nacked()]
            broker.peer.hang_up()
            await wait_until(lambda: len(broker.peers) == 2)
            (second,) = start(publisher, 1)
            await arrive(broker.peer, 1)
            broker.peer.confirm(1, 1)
            assert await ended(second) == [CONFIRMED]
            assert notes.count("publisher.channel_lost") == 1
            assert notes.count("publisher.channel_replaced") == 0

    run_scenario(scenario())


# Returns


def test_of_two_equal_messages_the_one_acked_first_is_the_returned_one() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            routed, unrouted = (asyncio.create_task(publisher.publish("", "q", b"same")) for _ in range(2))
            await arrive(broker.peer, 2)
            broker.peer.give_back(1, "q", b"same")
            broker.peer.confirm(1, 2)
            broker.peer.confirm(1, 1)
            assert await ended(routed, unrouted) == [CONFIRMED, NO_ROUTE]

    run_scenario(scenario())


def test_a_return_is_never_taken_for_a_message_that_is_not_mandatory_or_nacked() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            optional = asyncio.create_task(publisher.publish("", "q", b"same", mandatory=False))
            nacked, returned = (asyncio.create_task(publisher.publish("", "q", b"same")) for _ in range(2))
            await arrive(broker.peer, 3)
            broker.peer.give_back(1, "q", b"same")
            broker.peer.confirm(1, 1)
            broker.peer.refuse(1, 2)
            broker.peer.confirm(1, 3)
            assert await ended(optional, nacked, returned) == [CONFIRMED, Nacked(), NO_ROUTE]

    run_scenario(scenario())


def test_many_returns_in_one_window_find_their_messages() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            publishes = start(publisher, 1000)
            await arrive(broker.peer, 1000)
            for one in range(0, 1000, 3):
                broker.peer.give_back(1, "q", b"%d" % one)
            broker.peer.confirm(1, 1000, multiple=True)
            expected = [NO_ROUTE if one % 3 == 0 else CONFIRMED for one in range(1000)]
            assert await ended(*publishes) == expected

    run_scenario(scenario())


def test_a_message_returned_altered_is_still_returned() -> None:
    """RabbitMQ takes the BCC header out; interceptors put headers in."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            header = wire.Properties.of(headers={"BCC": ["copy"]}).raw
            altered = asyncio.create_task(publisher.publish("", "q", b"one", header))
            other = asyncio.create_task(publisher.publish("", "r", b"one", header))
            await arrive(broker.peer, 2)
            broker.peer.give_back(1, "q", b"one", wire.Properties.of(headers={}).raw)
            broker.peer.confirm(1, 2, multiple=True)
            assert await ended(altered, other) == [NO_ROUTE, CONFIRMED]

    run_scenario(scenario())


def test_a_message_that_an_altered_return_could_be_about_is_never_confirmed() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            properties = [wire.Properties.of(message_id=str(one), headers={"BCC": ["x"]}).raw for one in range(3)]
            publishes = [asyncio.create_task(publisher.publish("", "q", b"", each)) for each in properties]
            await arrive(broker.peer, 3)
            broker.peer.give_back(1, "q", b"")
            broker.peer.give_back(1, "q", b"")
            broker.peer.confirm(1, 3, multiple=True)
            first, second, third = await ended(*publishes)
            assert first == second == NO_ROUTE
            assert isinstance(third, InDoubt)

    run_scenario(scenario())


def test_what_was_returned_stays_returned_when_the_connection_goes() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            publishes = start(publisher, 2)
            await arrive(broker.peer, 2)
            broker.peer.give_back(1, "q", b"1")
            broker.peer.say(0, methods.ConnectionClose(reply_code=320, reply_text="CONNECTION_FORCED"))
            assert await ended(*publishes) == [InDoubt("320 CONNECTION_FORCED"), NO_ROUTE]

    run_scenario(scenario())


class Sink:
    """An outcome sink that keeps what it gets."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def done(self) -> bool:
        return bool(self.outcomes)

    def set_result(self, outcome: Outcome, /) -> None:
        self.outcomes.append(outcome)


def test_a_sink_gets_its_outcome_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            publisher = await client.publisher(window=3)
            kept, refused, lost, late = sinks = [Sink() for _ in range(4)]
            for one in sinks[:3]:
                assert publisher.publish_now("", "q", b"x", PERSISTENT, one, deadline_s=30)
            assert not publisher.publish_now("", "q", b"x", PERSISTENT, late, deadline_s=30)  # no room
            await arrive(broker.peer, 3)
            broker.peer.confirm(1, 1)
            broker.peer.refuse(1, 2)
            await wait_until(lambda: refused.outcomes)
            broker.peer.hang_up()
            await wait_until(lambda: lost.outcomes)
            assert kept.outcomes == [CONFIRMED]
            assert refused.outcomes == [Nacked()]
            assert [type(one) for one in lost.outcomes] == [InDoubt]
            assert late.outcomes == []

    run_scenario(scenario())


def test_a_sink_gets_in_doubt_at_its_deadline_and_the_late_outcome_later() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            publisher = await client.publisher()
            sink = Sink()
            assert publisher.publish_now("", "q", b"x", PERSISTENT, sink, deadline_s=0.01)
            await wait_until(lambda: sink.outcomes)
            broker.peer.confirm(1, 1)
            (doubt,) = sink.outcomes
            assert isinstance(doubt, InDoubt)
            assert doubt.late is not None
            assert await ended(doubt.late) == [CONFIRMED]
            assert len(sink.outcomes) == 1

    run_scenario(scenario())
