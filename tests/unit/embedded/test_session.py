"""A client's session: the order of answers, channel numbers, confirms, the end of a connection.

Other clients' suites found most of these (docs/conformance.md), each as RabbitMQ 3.10 and 4.3 were seen to do it.
"""

import asyncio

import pytest

from redrive import wire
from redrive.client import Client
from redrive.embedded import PROFILES, EmbeddedBroker
from redrive.wire import methods
from tests.unit.embedded.conversation import Conversation


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_deleted_queues_consumer_hears_of_it_after_the_delete_ok(profile: str, kind: str) -> None:
    """kombu: a client that waits for delete-ok must not meet basic.cancel first."""
    conversation = Conversation(profile)
    conversation.open(1)
    conversation.ask(1, methods.QueueDeclare(queue="q", durable=True, arguments={"x-queue-type": kind}))
    conversation.ask(1, methods.BasicConsume(queue="q", consumer_tag="c"))
    answers = conversation.ask(1, methods.QueueDelete(queue="q"))
    assert answers == [methods.QueueDeleteOk(message_count=0), methods.BasicCancel(consumer_tag="c", nowait=True)]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_channel_may_have_a_number_above_channel_max(profile: str) -> None:
    """aiormq: channel 65535 of at most 2047 channels is as good as any."""
    conversation = Conversation(profile)
    assert conversation.open(65_535) == [methods.ChannelOpenOk()]


@pytest.mark.parametrize("profile", PROFILES)
def test_one_channel_more_than_channel_max_closes_the_connection(profile: str) -> None:
    conversation = Conversation(profile, channel_max=2)
    assert conversation.open(10) == conversation.open(20) == [methods.ChannelOpenOk()]
    (close,) = conversation.open(30)
    assert isinstance(close, methods.ConnectionClose)
    text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    assert (close.reply_code, close.reply_text) == (530, text)


def test_a_client_that_closed_its_connection_closes_its_socket_itself() -> None:
    """aio-pika: RabbitMQ sends close-ok and leaves the socket open, up to 30 s or a shorter heartbeat."""

    async def main() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as other:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            leaving = wire.Connection(wire.Side.CLIENT)
            leaving.send_protocol_header()

            async def hear(kind: type[methods.Method]) -> None:
                writer.write(leaving.data_to_send())
                heard: list[wire.Event] = []
                while not any(isinstance(event, wire.Command) and isinstance(event.method, kind) for event in heard):
                    heard += leaving.receive_data(await asyncio.wait_for(reader.read(4096), 5))

            await hear(methods.ConnectionStart)
            leaving.send(0, methods.ConnectionStartOk(response=wire.plain_response("guest", "guest")))
            await hear(methods.ConnectionTune)
            leaving.send(0, methods.ConnectionTuneOk(channel_max=2047, frame_max=131_072, heartbeat_s=0))
            leaving.send(0, methods.ConnectionOpen())
            await hear(methods.ConnectionOpenOk)
            leaving.close(200, "goodbye")
            await hear(methods.ConnectionCloseOk)
            # Another client's whole conversation: an end of the socket would have arrived before its last answer.
            channel = await other.channel()
            await channel.declare_queue("q")
            assert not reader.at_eof()
            writer.close()

    asyncio.run(main())
