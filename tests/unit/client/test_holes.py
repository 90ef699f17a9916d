"""Small windows of the client that a changed line once passed through unnoticed."""

import asyncio

import pytest

from redrive import wire
from redrive.client import Client, ConnectionClosed, ReconnectBackoff
from redrive.embedded import EmbeddedBroker
from redrive.wire import methods
from tests.unit.client.scenario import ended, run_scenario, wait_until
from tests.unit.client.scripted import ScriptedBroker


def test_a_get_that_is_cancelled_in_the_turn_of_its_answer_gives_the_message_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            channel = await client.channel()
            await channel.declare_queue("q")
            publisher = await client.publisher()
            await publisher.publish("", "q", b"only")
            answered = type(channel).on_got

            def answer_and_cancel(self: object, got: wire.Got) -> None:
                answered(channel, got)  # the answer is there, and before its caller's turn comes it is cancelled
                waiting.cancel()

            with monkeypatch.context() as patched:
                patched.setattr(type(channel), "on_got", answer_and_cancel)
                waiting = asyncio.ensure_future(channel.get_message("q"))
                (error,) = await ended(waiting)
            assert isinstance(error, asyncio.CancelledError)
            # It is in the queue again, on the same channel, and not in anybody's hands.
            assert (await channel.declare_queue("q", passive=True)).messages_ready == 1
            again = await channel.get_message("q")
            assert again is not None
            assert (again.body, again.redelivered) == (b"only", True)
            channel.ack(again)

    run_scenario(scenario())


def test_a_client_that_is_closed_right_after_a_cut_ends_and_dials_no_more() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            client = Client(broker.url, backoff=lambda: ReconnectBackoff(first_s=0.001, longest_s=0.001))
            await client.start()
            channel = await client.channel()
            broker.peer.silent_on.add(methods.BasicGet)
            waiting: list[asyncio.Future[object]] = [asyncio.ensure_future(channel.get_message("q"))]
            await wait_until(lambda: broker.peer.heard(methods.BasicGet))
            broker.peer.hang_up()
            await wait_until(lambda: not client.is_connected)
            waiting.append(asyncio.ensure_future(client.connection()))
            await asyncio.wait_for(client.close(), 5)
            for error in await ended(*waiting):
                assert isinstance(error, ConnectionClosed), error
            dialled = len(broker.peers)
            await asyncio.sleep(0.05)
            assert len(broker.peers) == dialled
            assert all(peer.gone for peer in broker.peers)

    run_scenario(scenario())
