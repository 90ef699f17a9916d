"""Whatever clients send, the broker neither crashes nor wedges, and no message is lost or doubled by itself."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import wire
from redrive.client import Client, Outgoing
from redrive.embedded import PROFILES, EmbeddedBroker, Faults, PortTaken, UnknownProfile
from redrive.embedded.client_session import ClientSession
from redrive.embedded.engine import AmqpError, Connection, Engine
from redrive.topology import Arguments, Policy
from redrive.wire import methods
from tests.examples import examples
from tests.unit.embedded.engine_rig import START_MS, Rig

QUEUES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("publish"), QUEUES, st.sampled_from([None, "0", "700"]), st.integers(0, 9)),
    st.tuples(st.just("get"), QUEUES, st.booleans()),
    st.tuples(st.just("consume"), QUEUES, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("ack"), st.integers(0, 12), st.booleans()),
    st.tuples(st.just("nack"), st.integers(0, 12), st.booleans(), st.booleans()),
    st.tuples(st.just("reject"), st.integers(0, 12), st.booleans()),
    st.tuples(st.just("time"), st.integers(0, 3000)),
    st.tuples(st.just("close")),
    st.tuples(st.just("recover")),
    st.tuples(st.just("purge"), QUEUES),
    st.tuples(st.just("share"), st.integers(0, 3)),
    st.tuples(st.just("policy"), QUEUES, st.integers(0, 2)),
)
UNKNOWN_PICK = 12
"""The pick that names a delivery tag nobody has; every other one chooses among those in hand."""
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "message_ttl": st.sampled_from([0, 500, 1000]),
        "max_length": st.integers(0, 3),
        "overflow": st.sampled_from(["drop-head", "reject-publish"]),
        "dead_letter_exchange": st.just(""),
    },
)


def do(rig: Rig, step: tuple[Any, ...], tags: list[int]) -> None:
    match step:
        case "publish", queue, expiration, priority:
            rig.publish(queue, "m", expiration=expiration, priority=priority, message_id=f"m{len(tags)}")
            tags.append(1)
        case "get", queue, no_ack:
            rig.channel.get(queue, no_ack=no_ack)
        case "consume", queue, prefetch, no_ack:
            rig.channel.qos(prefetch)
            rig.channel.consume(queue, f"t{len(rig.channel.consumers)}", no_ack=no_ack, exclusive=False, arguments={})
            rig.engine.vhosts["/"].queues[queue].dispatch()
            rig.engine.flush_dead_letters()
        case "ack", pick, multiple:
            rig.channel.ack(picked(rig, pick), multiple)
        case "nack", pick, multiple, requeue:
            rig.channel.nack(picked(rig, pick), multiple, requeue)
        case "reject", pick, requeue:
            rig.channel.reject(picked(rig, pick), requeue)
        case "time", ms:
            rig.pass_time(ms / 1000)
        case ("close",):
            rig.channel.close()
            rig.channel = rig.open_channel()
        case ("recover",):
            rig.channel.recover(True)
        case "purge", queue:
            rig.channel.purge_queue(queue)
        case "share", prefetch:
            rig.channel.qos(prefetch, per_channel=True)
        case "policy", queue, length_max:
            definition = Arguments({"max-length": length_max})
            rig.engine.vhosts["/"].set_policy(Policy(name="bound", pattern=f"^{queue}$", definition=definition))


def picked(rig: Rig, pick: int) -> int:
    in_hand = list(rig.channel.unacked)
    return in_hand[pick % len(in_hand)] if in_hand and pick != UNKNOWN_PICK else 10_000


@settings(max_examples=examples(150), deadline=None)
@given(
    profile=st.sampled_from(list(PROFILES)),
    kinds=st.tuples(*[st.sampled_from(["classic", "quorum"])] * 3),
    arguments=st.tuples(*[SETTINGS] * 3),
    targets=st.tuples(*[QUEUES] * 3),
    steps=st.lists(STEPS, max_size=40),
)
def test_random_operations_are_done_or_refused_and_the_books_balance(
    profile: str, kinds: Any, arguments: Any, targets: Any, steps: list[tuple[Any, ...]]
) -> None:
    rig = Rig(profile)
    for name, kind, table, target in zip("abc", kinds, arguments, targets, strict=True):
        key = {"dead_letter_routing_key": target} if "dead_letter_exchange" in table else {}
        rig.queue(name, kind, **table, **key)
    tags: list[int] = []
    for step in steps:
        try:
            do(rig, step, tags)
        except AmqpError:
            rig.channel.close()
            rig.channel = rig.open_channel()
        assert not rig.engine.pending_dead_letters, "the dead are buried when a command is through"
        in_hand = sum(len(channel.unacked) for channel in rig.connection.channels.values())
        assert rig.engine.unacked_count == in_hand
        for queue in rig.engine.queues():
            assert queue.ready_bytes == sum(queue.size_of(entry.message) for entry in queue.ready)
            assert len(queue.ready) == len(list(queue.ready))
            waiting = queue.ready and any(one.has_room() for one in queue.consumers.all)
            assert not waiting, "a ready message and a consumer with room wait for each other"


class Host:
    """A server without sockets."""

    def __init__(self) -> None:
        self.engine = Engine(PROFILES["4.3"], START_MS)
        self.users: Mapping[str, str] = {"guest": "guest"}
        self.tags: Mapping[str, Collection[str]] = {}
        self.limits = wire.Limits()
        self.faults = Faults()
        self.sessions: dict[Connection, ClientSession] = {}

    def attach(self, connection: Connection, session: ClientSession) -> None:
        self.sessions[connection] = session

    def dispatch_effects(self) -> None:
        for effect in self.engine.take_effects():
            session = self.sessions.get(effect.channel.connection)
            if session is not None:
                session.send_effect(effect)

    def cut(self, session: ClientSession) -> None:
        session.end()

    def call_after(self, delay_ms: int, session: ClientSession | None, action: Callable[[], None]) -> None:
        raise AssertionError("there are no faults here")

    def block_for(self, delay_ms: int) -> None:
        raise AssertionError("there are no faults here")

    def restart(self) -> None:
        raise AssertionError("there are no faults here")


def handshake() -> bytes:
    client = wire.Connection(wire.Side.CLIENT)
    server = wire.Connection(wire.Side.SERVER)
    said = b""

    def carry() -> None:
        nonlocal said
        data = client.data_to_send()
        said += data
        list(server.receive_data(data))

    client.send_protocol_header()
    carry()
    server.send(0, methods.ConnectionStart())
    list(client.receive_data(server.data_to_send()))
    client.send(0, methods.ConnectionStartOk(response=wire.plain_response("guest", "guest")))
    carry()
    server.send(0, server.limits.propose())
    list(client.receive_data(server.data_to_send()))
    client.answer_tune(server.limits.propose())
    client.send(0, methods.ConnectionOpen())
    carry()
    server.send(0, methods.ConnectionOpenOk())
    list(client.receive_data(server.data_to_send()))
    client.send(1, methods.ChannelOpen())
    carry()
    server.send(1, methods.ChannelOpenOk())
    list(client.receive_data(server.data_to_send()))
    client.send(1, methods.QueueDeclare(queue="q"))
    client.publish(1, "", "q", wire.Properties.of(headers={"k": 1}, message_id="m").raw, b"body")
    client.send(1, methods.BasicConsume(queue="q"))
    client.ack(1, 1)
    client.send(1, methods.TxSelect())
    said += client.data_to_send()
    return said


HANDSHAKE = handshake()


@settings(max_examples=examples(300), deadline=None)
@given(at=st.integers(0, len(HANDSHAKE) - 1), junk=st.binary(min_size=1, max_size=12), cut=st.booleans())
def test_damaged_frames_end_at_worst_the_connection_that_sent_them(at: int, junk: bytes, cut: bool) -> None:
    host = Host()
    session = ClientSession(host)
    session.receive(HANDSHAKE[:at] + junk + HANDSHAKE[at if cut else at + len(junk) :])
    host.dispatch_effects()
    session.flush_confirms()
    session.wire.data_to_send()
    session.end()
    assert host.engine.unacked_count == 0
    healthy = ClientSession(host)
    healthy.receive(HANDSHAKE)
    assert healthy.wire.is_open


def test_a_taken_port_is_one_clear_sentence() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker:
            with pytest.raises(PortTaken, match=rf"can't listen on 127.0.0.1:{broker.port}: .*choose another port"):
                await EmbeddedBroker(port=broker.port).start()

    asyncio.run(main())


def test_an_unknown_profile_is_named_with_the_nearest_one() -> None:
    with pytest.raises(UnknownProfile, match=r"there is no profile '4.2'"):
        EmbeddedBroker("4.2")


def test_a_client_that_speaks_nonsense_is_hung_up_on_and_others_go_on() -> None:
    async def main() -> None:
        async with EmbeddedBroker("3.10") as broker, Client(broker.url) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await asyncio.wait_for(reader.read(), 5) == wire.PROTOCOL_HEADER
            writer.close()
            channel = await client.channel()
            assert (await channel.declare_queue("q")).messages_ready == 0

    asyncio.run(main())


def test_a_client_that_does_not_read_gets_no_more_than_buffers_hold() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            channel = await client.channel()
            await channel.declare_queue("q", durable=False)
            publisher = await client.publisher()
            await publisher.publish_many([Outgoing("", "q", b"x" * 100_000)] * 300)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1024)
            writer.write(HANDSHAKE)
            await asyncio.wait_for(reader.readexactly(1000), 5)
            state = await channel.declare_queue("q", passive=True)
            assert 100 < state.messages_ready < 301
            writer.close()

    asyncio.run(main())
