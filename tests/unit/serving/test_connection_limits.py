"""Connections: who waits longest makes room, who never asks or never reads is given up."""

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from redrive.serving.connection_limits import (
    HEAD_BYTES_MAX,
    STALLED_S_MAX,
    ConnectionLimits,
    LimitedConnection,
    limited_protocol,
)

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that remembers; `unread` is what its client has not read."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.unread = 0
        self.ended = ""

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def resume_reading(self) -> None:
        """Nothing is read here."""


class Hall:
    """A server's connections, without a network. Requests are answered when `answering` is set."""

    def __init__(self, connections_max: int) -> None:
        self.limits = ConnectionLimits(connections_max=connections_max, head_s_max=0.0, sending_s_max=100.0)
        self.answering = asyncio.Event()
        config = uvicorn.Config(self._app, interface="asgi3", lifespan="off", log_config=None, ws="none")
        config.load()
        self._make: Callable[[], Any] = lambda: limited_protocol(self.limits)(config, self.state, {})
        self.state = ServerState()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await self.answering.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def connect(self) -> tuple[LimitedConnection, Wire]:
        connection, wire = self._make(), Wire()
        connection.connection_made(wire)
        return connection, wire


def in_hall(scenario: Callable[[Hall], Any], connections_max: int = 2) -> None:
    async def run() -> None:
        hall = Hall(connections_max)
        async with asyncio.timeout(20):
            await scenario(hall)
        hall.answering.set()
        await asyncio.gather(*hall.state.tasks)
        assert hall.limits.checking is not None
        hall.limits.checking.cancel()

    asyncio.run(run())


def test_a_new_connection_takes_the_place_of_the_one_that_waits_longest() -> None:
    async def scenario(hall: Hall) -> None:
        (_, first), (_, second), (_, third) = hall.connect(), hall.connect(), hall.connect()
        assert (first.ended, second.ended, third.ended) == ("closed", "", "")

    in_hall(scenario)


def test_a_request_in_hand_keeps_its_place_and_who_comes_then_is_refused() -> None:
    async def scenario(hall: Hall) -> None:
        for connection, wire in (hall.connect(), hall.connect()):
            connection.data_received(REQUEST)
            assert wire.ended == ""
        _, late = hall.connect()
        assert late.ended == "closed"
        assert late.sent.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5\r\n" in late.sent

    in_hall(scenario)


def test_after_its_answer_a_connection_waits_again_behind_the_others() -> None:
    async def scenario(hall: Hall) -> None:
        (asking, first), (_, second) = hall.connect(), hall.connect()
        asking.data_received(REQUEST)
        hall.answering.set()
        await asyncio.gather(*hall.state.tasks)
        assert first.sent.startswith(b"HTTP/1.1 204 ")
        hall.connect()
        assert (first.ended, second.ended) == ("", "closed")
        hall.limits.check(hall.state.connections)
        assert first.ended == "closed"  # nobody waits for ever, however good a customer

    in_hall(scenario)


def test_a_head_is_taken_up_to_its_limit() -> None:
    async def scenario(hall: Hall) -> None:
        for size, status in ((HEAD_BYTES_MAX - 1_000, b""), (HEAD_BYTES_MAX, b"HTTP/1.1 431 ")):
            connection, wire = hall.connect()
            connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ")
            for _ in range(size // 1_000 + 1):
                connection.data_received(b"x" * 1_000)
            assert wire.sent[:13] == status
            assert wire.ended == ("closed" if status else "")

    in_hall(scenario)


def test_a_body_in_plain_chunks_is_no_head_and_trailers_without_end_are_cut_off() -> None:
    async def scenario(hall: Hall) -> None:
        connection, wire = hall.connect()
        connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3_000):
            connection.data_received(b"64\r\n" + b"x" * 100 + b"\r\n")
        assert wire.ended == ""
        connection.data_received(b"0\r\nX-Long: ")
        for _ in range(10_000):
            connection.data_received(b"x" * 1_000)
        assert wire.ended == "aborted"

    in_hall(scenario)


def test_an_answer_that_is_read_goes_on_and_one_that_is_not_is_given_up() -> None:
    async def scenario(hall: Hall) -> None:
        (reads, wire), (stalls, stalled) = hall.connect(), hall.connect()
        wire.unread = stalled.unread = 1_000
        for step in range(5):
            now_s = step * STALLED_S_MAX / 2
            reads.check_reader(now_s)
            stalls.check_reader(now_s)
            wire.unread -= 1
        assert (wire.ended, stalled.ended) == ("", "aborted")
        reads.check_reader(100.0)
        assert wire.ended == "aborted"  # a byte now and then is no reading either

    in_hall(scenario)


def test_who_opens_many_gives_way_and_not_who_has_one() -> None:
    async def scenario(hall: Hall) -> None:
        honest, own = hall.connect()
        honest._belong_to("token of ada")
        hall.limits.wait(honest, 0.0)
        many = [hall.connect()[1] for _ in range(5)]
        assert own.ended == ""
        assert [one.ended for one in many] == ["closed", "closed", "closed", "", ""]

    in_hall(scenario, connections_max=3)


def test_an_owner_s_connections_are_counted_until_they_are_gone() -> None:
    async def scenario(hall: Hall) -> None:
        connections = [hall.connect()[0] for _ in range(3)]
        connections[0]._belong_to("token of ada")
        for one in connections:
            one.connection_lost(None)
        assert (hall.limits.owned, hall.limits.waiting, hall.limits.waiting_of) == ({}, {}, {})

    in_hall(scenario, connections_max=3)
