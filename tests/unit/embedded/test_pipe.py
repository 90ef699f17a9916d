"""A client and the broker in one event loop, connected in memory: what a socket does, without one."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from redrive import wire
from redrive.client import Client, Confirmed, ConnectionFailed, ReconnectBackoff
from redrive.embedded import EmbeddedBroker
from redrive.embedded.pipe import PipeEnd, connect
from redrive.testing import run_in_virtual_time


class End(asyncio.Protocol):
    """A protocol that writes down what happens to it."""

    def __init__(self) -> None:
        self.heard: list[bytes | str] = []
        self.pipe: PipeEnd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, PipeEnd)
        self.pipe = transport

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)
        if data == b"fail":
            raise ZeroDivisionError

    def eof_received(self) -> None:
        self.heard.append("end")

    def connection_lost(self, exc: Exception | None) -> None:
        self.heard.append("lost")

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def between(steps: Callable[[End, End], Awaitable[None]]) -> tuple[End, End]:
    near, far = End(), End()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connect(loop, near, far, client_name=("here", 1), server_name=("there", 2))
        await steps(near, far)
        await turns()

    run_in_virtual_time(main())
    return near, far


def test_what_is_written_in_one_turn_arrives_in_a_later_one_as_one() -> None:
    async def steps(near: End, far: End) -> None:
        near.pipe.write(b"a")
        near.pipe.writelines([b"b", bytearray(b"c")])
        assert far.heard == []
        await turns()
        near.pipe.write(b"d")
        far.pipe.write(b"back")
        assert near.pipe.get_extra_info("peername") == far.pipe.get_extra_info("sockname") == ("there", 2)

    near, far = between(steps)
    assert (near.heard, far.heard) == ([b"back"], [b"abc", b"d"])


@pytest.mark.parametrize("how", ["close", "abort"])
def test_what_was_written_before_the_end_is_read_before_it_and_what_was_not_read_is_gone(how: str) -> None:
    async def steps(near: End, far: End) -> None:
        far.pipe.write(b"never read")
        near.pipe.write(b"last words")
        getattr(near.pipe, how)()
        near.pipe.write(b"too late")
        assert near.pipe.is_closing()

    near, far = between(steps)
    assert near.heard == ["lost"]
    assert far.heard == [b"last words", "end", "lost"]


def test_a_reader_that_pauses_holds_the_writer_up_and_notices_nothing_meanwhile() -> None:
    async def steps(near: End, far: End) -> None:
        near.pipe.set_write_buffer_limits(high=10)
        far.pipe.pause_reading()
        near.pipe.write(b"0123456789")
        assert near.heard == []
        near.pipe.write(b"x")
        assert (near.heard, near.pipe.get_write_buffer_size()) == (["pause"], 11)
        await turns()
        assert far.heard == []
        far.pipe.resume_reading()
        await turns()
        assert (near.heard, far.heard) == (["pause", "resume"], [b"0123456789x"])
        far.pipe.pause_reading()
        near.pipe.close()
        await turns()
        assert far.heard == [b"0123456789x"]
        far.pipe.resume_reading()

    _, far = between(steps)
    assert far.heard == [b"0123456789x", "end", "lost"]


def test_a_protocol_that_fails_is_cut_off() -> None:
    reported: list[object] = []

    async def steps(near: End, far: End) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        near.pipe.write(b"fail")
        await turns()

    near, far = between(steps)
    assert (near.heard, far.heard) == (["end", "lost"], [b"fail", "lost"])
    assert [type(one) for one in reported] == [ZeroDivisionError]


def test_a_client_works_through_a_pipe_and_comes_back_after_a_restart() -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker(listen=False) as broker,
            Client(broker.url, dial=broker.dial, backoff=lambda: ReconnectBackoff(random=lambda: 0.0)) as client,
        ):
            channel = await client.channel()
            await channel.declare_queue("q", arguments={"x-queue-type": "quorum"})
            publisher = await client.publisher()
            bodies = [bytes([number]) * 300_000 for number in range(5)]  # more than a frame, more than a buffer
            outcomes = [await publisher.publish("", "q", body) for body in bodies]
            assert outcomes == [Confirmed()] * 5
            await broker.restart()
            deliveries = await client.deliveries("q")
            for body in bodies:
                delivery = await anext(deliveries)
                assert delivery.body == body
                delivery.ack()
            await deliveries.close()
            assert broker.engine.unacked_count == 0
            assert [len(queue.ready) for queue in broker.engine.queues()] == [0]

    run_in_virtual_time(main())


def test_a_broker_that_is_stopped_refuses_as_a_closed_port_does() -> None:
    async def main() -> None:
        broker = EmbeddedBroker(listen=False)
        assert broker.url == "amqp://guest:guest@embedded.invalid/%2F"
        with pytest.raises(ConnectionFailed, match="the connection was refused"):
            await Client(broker.url, dial=broker.dial).start()
        await broker.start()
        async with Client(broker.url, dial=broker.dial) as client:
            await broker.stop()
            await asyncio.sleep(0.01)
            with pytest.raises(ConnectionFailed):
                await Client(broker.url, dial=broker.dial).start()
            await broker.start()
            assert (await client.connection()).is_open

    run_in_virtual_time(main())


def test_heartbeats_keep_a_quiet_connection_through_a_day_of_virtual_time() -> None:
    async def main() -> None:
        async with EmbeddedBroker(listen=False) as broker, Client(broker.url, dial=broker.dial) as client:
            before = await client.connection()
            await asyncio.sleep(86_400)
            assert await client.connection() is before

    run_in_virtual_time(main())


def test_a_ladder_of_half_an_hour_ends_at_its_second_by_the_loops_own_time() -> None:
    async def main() -> float:
        async with EmbeddedBroker(listen=False) as broker, Client(broker.url, dial=broker.dial) as client:
            channel = await client.channel()
            await channel.declare_queue("orders")
            back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
            await channel.declare_queue("wait", arguments={"x-message-ttl": 1_800_000, **back})
            publisher = await client.publisher()
            began_s = asyncio.get_running_loop().time()
            await publisher.publish("", "wait", b"x", wire.Properties.of(message_id="m"))
            deliveries = await client.deliveries("orders")
            (await anext(deliveries)).ack()
            took_s = asyncio.get_running_loop().time() - began_s
            await deliveries.close()
            assert broker.whereabouts("m") == []
            return took_s

    assert run_in_virtual_time(main()) == pytest.approx(1800, abs=0.002)
