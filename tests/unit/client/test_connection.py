"""Nothing that waits on a connection outlives it, and no wrong word of the broker leaves anyone waiting."""

import asyncio
import contextlib

import pytest

from redrive import wire
from redrive.client import (
    AlreadySettled,
    AuthenticationFailed,
    BrokerTarget,
    Channel,
    ChannelsExhausted,
    Client,
    ConnectionClosed,
    ConnectionFailed,
    InvalidUrl,
    ReconnectBackoff,
    StaleDelivery,
    Tls,
)
from redrive.embedded import EmbeddedBroker
from redrive.wire import methods
from tests.unit.client.scenario import Notes, ended, run_scenario, wait_until
from tests.unit.client.scripted import PERSISTENT, ScriptedBroker


def at_once() -> ReconnectBackoff:
    return ReconnectBackoff(first_s=0.001, longest_s=0.01)


def test_every_call_ends_with_its_connection() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            channel = await client.channel()
            peer = broker.peer
            peer.silent_on |= {methods.QueueDeclare, methods.ChannelOpen}
            connection = await client.connection()
            calls = (
                channel.declare_queue("q"),
                channel.get_message("q"),
                connection.update_secret("new", "rotated"),
                connection.open_session(Channel),
            )
            waiting = [asyncio.ensure_future(call) for call in calls]
            await wait_until(lambda: peer.heard(methods.ConnectionUpdateSecret) and peer.heard(methods.BasicGet))
            peer.hang_up()
            errors = await ended(*waiting)
            assert [type(error) for error in errors] == [ConnectionClosed] * 4
            (error,) = await ended(channel.purge_queue("q"))
            assert isinstance(error, ConnectionClosed)

    run_scenario(scenario())


def test_an_answer_to_a_question_that_was_not_asked_ends_the_connection() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, backoff=at_once) as client:
            channel = await client.channel()
            broker.peer.silent_on.add(methods.QueueDeclare)
            declaring = asyncio.ensure_future(channel.declare_queue("q"))
            await wait_until(lambda: broker.peer.heard(methods.QueueDeclare))
            broker.peer.say(1, methods.QueuePurgeOk(message_count=1))
            (error,) = await ended(declaring)
            assert str(error) == "the broker answered QueuePurgeOk where QueueDeclareOk was due"
            await wait_until(lambda: len(broker.peers) == 2)

    run_scenario(scenario())


def test_a_cancelled_call_does_not_confuse_the_next_one() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            channel = await client.channel()
            cancelled = asyncio.ensure_future(channel.declare_queue("first"))
            await asyncio.sleep(0)
            cancelled.cancel()
            assert (await channel.declare_queue("second")).name == "second"

    run_scenario(scenario())


def test_a_cancelled_open_frees_the_channel_number() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(channel_max=1) as broker, Client(broker.url) as client:
            broker.peer.silent_on.add(methods.ChannelOpen)
            opening = asyncio.ensure_future(client.channel())
            await wait_until(lambda: broker.peer.heard(methods.ChannelOpen))
            opening.cancel()
            await ended(opening)
            await wait_until(lambda: broker.peer.heard(methods.ChannelClose))
            broker.peer.silent_on.clear()
            connection = await client.connection()
            await wait_until(lambda: connection.amqp.free_channel() == 1)
            assert (await client.channel()).is_open

    run_scenario(scenario())


def test_a_cancelled_get_requeues_the_message() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            channel = await client.channel()
            getting = asyncio.ensure_future(channel.get_message("q"))
            await wait_until(lambda: broker.peer.heard(methods.BasicGet))
            getting.cancel()
            await ended(getting)
            broker.peer.wire.get_ok(1, 1, False, "", "q", 0, PERSISTENT, b"")
            broker.peer.flush()
            await wait_until(lambda: broker.peer.heard(wire.Nack))
            (nack,) = broker.peer.heard(wire.Nack)
            assert isinstance(nack, wire.Nack)
            assert (nack.delivery_tag, nack.multiple, nack.requeue) == (1, False, True)

    run_scenario(scenario())


def test_a_message_is_settled_on_its_own_channel_only() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:

            async def get(channel: Channel) -> wire.Got:
                getting = asyncio.ensure_future(channel.get_message("q"))
                await wait_until(lambda: broker.peer.heard(methods.BasicGet))
                broker.peer.wire.get_ok(channel.number, 1, False, "", "q", 0, PERSISTENT, b"")
                broker.peer.flush()
                broker.peer.events.clear()
                got = await getting
                assert got is not None
                return got

            first = await client.channel()
            old = await get(first)
            await first.close()
            second = await client.channel()
            assert second.number == first.number
            new = await get(second)
            for channel in (first, second):
                with pytest.raises(StaleDelivery):
                    channel.ack(old)
            second.ack(new)
            with pytest.raises(AlreadySettled):
                second.reject(new, requeue=True)
            await second.close()
            assert len(broker.peer.heard(wire.Ack)) == 1
            assert broker.peer.heard(wire.Reject) == []

    run_scenario(scenario())


def test_more_channels_than_agreed_are_refused_and_say_so() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(channel_max=2) as broker, Client(broker.url) as client:
            channels = [await client.channel() for _ in range(2)]
            errors = await ended(client.channel(), client.publisher(), client.consume("q", lambda _: None))
            assert [type(error) for error in errors] == [ChannelsExhausted] * 3
            assert all(channel.is_open for channel in channels)
            await channels[0].close()
            assert (await client.channel()).is_open

    run_scenario(scenario())


def test_a_vhost_that_amqp_can_not_carry_is_a_failed_connection() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            target = BrokerTarget(hosts=(("127.0.0.1", broker.port),), vhost="v" * 256)
            (error,) = await ended(Client(target).start())
            assert isinstance(error, ConnectionFailed)
            assert "256 bytes" in str(error)

    run_scenario(scenario())


def test_a_host_name_that_can_not_be_one_is_a_failed_connection() -> None:
    async def scenario() -> None:
        (error,) = await ended(Client(BrokerTarget(hosts=(("a..b", 5672),))).start())
        assert isinstance(error, ConnectionFailed)

    run_scenario(scenario())


def test_a_refusal_at_the_start_is_raised_and_later_ones_are_waited_out() -> None:
    """Credentials are rotated under running processes."""

    async def scenario() -> None:
        notes = Notes()
        refusal = methods.ConnectionClose(reply_code=403, reply_text="ACCESS_REFUSED - Login was refused")
        async with ScriptedBroker() as broker:
            broker.refusal = refusal
            (error,) = await ended(Client(broker.url).start())
            assert isinstance(error, AuthenticationFailed)
            assert error.reasons == (f"127.0.0.1:{broker.port}: 403 ACCESS_REFUSED - Login was refused",)

            broker.refusal = None
            async with Client(broker.url, observer=notes, backoff=at_once) as client:
                broker.refusal = refusal
                broker.peer.hang_up()
                await wait_until(lambda: notes.count("client.connect_failed") >= 3)
                assert "403 ACCESS_REFUSED" in str(notes.last("client.connect_failed")["reason"])
                broker.refusal = None
                await client.update_secret("rotated")
                await wait_until(lambda: notes.count("client.connected") == 2)
                assert (await client.connection()).is_open
                (start_ok,) = broker.peer.heard(methods.ConnectionStartOk)
                assert isinstance(start_ok, wire.Command)
                assert isinstance(start_ok.method, methods.ConnectionStartOk)
                assert start_ok.method.response == b"\0guest\0rotated"

    run_scenario(scenario())


def test_the_pause_before_the_next_try_is_reported_to_the_millisecond() -> None:
    async def scenario() -> None:
        notes = Notes()
        third = ReconnectBackoff(first_s=0.01, longest_s=0.01, random=lambda: 1 / 3)
        async with ScriptedBroker() as broker, Client(broker.url, observer=notes, backoff=lambda: third):
            broker.refusal = methods.ConnectionClose(reply_code=403, reply_text="ACCESS_REFUSED")
            broker.peer.hang_up()
            await wait_until(lambda: notes.count("client.connect_failed") >= 1)
            pause_s = notes.last("client.connect_failed")["pause_s"]
            assert isinstance(pause_s, float)
            assert pause_s == round(pause_s, 3) > 0

    run_scenario(scenario())


def test_an_error_that_is_no_refusal_is_waited_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate file that is being replaced is not there for a moment."""

    async def scenario() -> None:
        notes = Notes()
        async with ScriptedBroker() as broker, Client(broker.url, observer=notes, backoff=at_once) as client:
            plain = client.target
            client.target = BrokerTarget(hosts=plain.hosts, heartbeat_s=0, tls=Tls(cacertfile="missing.pem"))
            broker.peer.hang_up()
            await wait_until(lambda: notes.count("client.connect_failed") >= 2)
            assert "missing.pem" in str(notes.last("client.connect_failed")["reason"])
            client.target = plain
            await wait_until(lambda: notes.count("client.connected") == 2)

    run_scenario(scenario())


def test_tls_files_that_are_missing_at_the_start_are_the_authors_error() -> None:
    async def scenario() -> None:
        (error,) = await ended(Client("amqps://localhost/?cacertfile=missing.pem").start())
        assert isinstance(error, InvalidUrl)

    run_scenario(scenario())


def test_after_a_loss_the_next_host_is_tried_first_and_the_dead_one_last() -> None:
    async def scenario() -> None:
        notes = Notes()
        async with ScriptedBroker() as first, ScriptedBroker() as second, ScriptedBroker() as gone:
            hosts = tuple(("127.0.0.1", broker.port) for broker in (gone, first, second))
            gone.stop_listening()
            async with Client(BrokerTarget(hosts=hosts, heartbeat_s=0), observer=notes, backoff=at_once):
                assert (len(first.peers), len(second.peers)) == (1, 0)
                first.peer.hang_up()
                await wait_until(lambda: notes.count("client.connected") == 2)
                assert (len(first.peers), len(second.peers)) == (1, 1)
                second.peer.hang_up()
                await wait_until(lambda: notes.count("client.connected") == 3)
                assert (len(first.peers), len(second.peers)) == (2, 1)

    run_scenario(scenario())


def test_a_client_that_was_not_started_or_is_closed_says_so() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            client = Client(broker.url)
            (error,) = await ended(client.channel())
            assert "was not started" in str(error)
            await client.start()
            await ended(client.close(), client.close())
            (error,) = await ended(client.channel())
            assert str(error) == "the client was closed"
            await wait_until(lambda: broker.peer.gone)

    run_scenario(scenario())


def test_waiting_for_a_connection_ends_when_the_client_is_closed() -> None:
    async def scenario() -> None:
        notes = Notes()
        async with ScriptedBroker() as broker:
            client = Client(broker.url, observer=notes, backoff=lambda: ReconnectBackoff(first_s=60))
            await client.start()
            publisher = await client.publisher()
            broker.peer.hang_up()
            await wait_until(lambda: notes.count("client.connection_lost") == 1)
            waiting = [asyncio.ensure_future(client.channel()), asyncio.ensure_future(publisher.publish("", "q", b""))]
            await asyncio.sleep(0)
            await ended(client.close(), timeout_s=2)
            error, outcome = await ended(*waiting)
            assert isinstance(error, ConnectionClosed)
            assert outcome.sent is False

    run_scenario(scenario())


def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            client = Client(broker.url)
            await client.start()
            await client.publisher()
            broker.peer.transport.pause_reading()
            closing = asyncio.ensure_future(client.close())
            await asyncio.sleep(0.01)
            closing.cancel()
            await asyncio.sleep(0.01)
            closing.cancel()
            await ended(closing)
            broker.peer.transport.resume_reading()
            await wait_until(lambda: broker.peer.gone)

    run_scenario(scenario())


def test_a_server_that_never_speaks_is_given_up_in_time() -> None:
    async def scenario() -> None:
        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        target = BrokerTarget(hosts=(("127.0.0.1", port),), connect_timeout_s=0.05)
        (error,) = await ended(Client(target).start(), timeout_s=2)
        assert str(error) == f"127.0.0.1:{port} did not answer within 0.05 s"
        server.close()
        await server.wait_closed()

    run_scenario(scenario())


def test_a_server_of_another_protocol_is_named_as_such() -> None:
    async def scenario() -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        (error,) = await ended(Client(BrokerTarget(hosts=(("127.0.0.1", port),))).start(), timeout_s=2)
        assert isinstance(error, ConnectionFailed)
        assert "it speaks HTTP and not AMQP" in str(error)
        server.close()
        await server.wait_closed()

    run_scenario(scenario())


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", "it hung up without a word of AMQP; is a broker up there, and is this its AMQP port"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP and not AMQP; is this the port of the management API?"),
        (b"HTTP", "it does not speak AMQP: it begins with b'HTTP'"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS; write amqps:// for this port"),
        (b"220 mail.example ESMTP\r\n", "it does not speak AMQP: it begins with b'220 mail.example'"),
        (b"\x01\x00\x00\x00\x00\x00\x00\xce", "the broker broke the protocol"),
    ],
)
def test_a_server_that_does_not_begin_with_amqp_is_reported_as_no_broker(first: bytes, reason: str) -> None:
    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(8)
            writer.write(first)
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectionFailed) as failed:
                await Client(f"amqp://127.0.0.1:{port}/").start()
        assert f"127.0.0.1:{port}: {reason}" in str(failed.value)

    run_scenario(scenario())


def test_a_get_cancelled_in_the_turn_of_its_answer_requeues_the_message(
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
