"""What other people's suites found wrong (docs/conformance.md), each as RabbitMQ 3.10 and 4.3 were seen to do it."""

import asyncio
from collections.abc import Callable, Collection, Mapping

import pytest

from redrive import wire
from redrive.client import Client
from redrive.embedded import PROFILES, EmbeddedBroker, Faults
from redrive.embedded.client_session import ClientSession
from redrive.embedded.engine import AmqpError, Connection, Engine
from redrive.wire import methods
from tests.unit.embedded.rig import START_MS, Rig


class Conversation:
    """A client and the broker's session with it, without sockets: `ask` says a method and hears everything that comes
    back for it, in its order."""

    def __init__(self, profile: str, *, channel_max: int = 2047) -> None:
        self.engine = Engine(PROFILES[profile], START_MS)
        self.users: Mapping[str, str] = {"guest": "guest"}
        self.tags: Mapping[str, Collection[str]] = {}
        self.limits = wire.Limits()
        self.faults = Faults()
        self.session = ClientSession(self)
        self.client = wire.Connection(wire.Side.CLIENT)
        self.client.send_protocol_header()
        self._carry()
        properties = {"capabilities": {"consumer_cancel_notify": True, "authentication_failure_close": True}}
        response = wire.plain_response("guest", "guest")
        self.ask(0, methods.ConnectionStartOk(client_properties=properties, response=response))
        self.ask(0, methods.ConnectionTuneOk(channel_max=channel_max, frame_max=131_072, heartbeat_s=0))
        # A client that gives its channels any number it likes, as aiormq's may.
        self.client.raise_channel_max(65_535)
        self.ask(0, methods.ConnectionOpen())

    def ask(self, channel: int, method: methods.Method) -> list[methods.Method]:
        self.client.send(channel, method)
        return self._carry()

    def open(self, channel: int) -> list[methods.Method]:
        return self.ask(channel, methods.ChannelOpen())

    def attach(self, connection: Connection, session: ClientSession) -> None:
        """There is one session only."""

    def dispatch_effects(self) -> None:
        for effect in self.engine.take_effects():
            self.session.send_effect(effect)

    def cut(self, session: ClientSession) -> None:
        session.end()

    def call_after(self, delay_ms: int, session: ClientSession | None, action: Callable[[], None]) -> None:
        raise AssertionError("there are no faults here")

    def block_for(self, delay_ms: int) -> None:
        raise AssertionError("there are no faults here")

    def restart(self) -> None:
        raise AssertionError("there are no faults here")

    def _carry(self) -> list[methods.Method]:
        self.session.receive(self.client.data_to_send())
        self.dispatch_effects()
        self.session.flush_confirms()
        events = list(self.client.receive_data(self.session.wire.data_to_send()))
        return [event.method for event in events if isinstance(event, wire.Command)]


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


@pytest.mark.parametrize(("profile", "mebibytes"), [("3.10", 128), ("4.0", 16), ("4.3", 16)])
def test_a_body_above_the_versions_limit_is_refused_and_one_at_the_limit_taken(profile: str, mebibytes: int) -> None:
    """aiormq: 20 MiB pass on 3.10 and close the channel on 4.x."""
    rig = Rig(profile)
    rig.queue("q")
    limit = mebibytes * 1024 * 1024
    header = wire.Properties.of().raw
    with pytest.raises(AmqpError) as refused:
        rig.channel.publish("", "q", header, bytes(limit + 1))
    text = f"PRECONDITION_FAILED - message size {limit + 1} is larger than configured max size {limit}"
    assert (refused.value.code, refused.value.text, refused.value.is_hard) == (406, text, False)
    rig.channel.publish("", "q", header, bytes(limit))
    got = rig.got("q")
    assert got is not None
    assert (len(got.message.body), got.left) == (limit, 0)


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
