"""A connection is reused as long as nothing arrives on it unasked; what arrives so answers no message."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from redrive.core import Answered
from redrive.runtime.message import Message
from redrive.runtime.push import Pusher, PushTarget
from tests.unit.runtime_push.messages import PlainMessage
from tests.unit.runtime_push.outcomes import outcome
from tests.unit.runtime_push.services import Request, Service, Wire, always

UNASKED = {
    "an answer": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "an empty one": b"HTTP/1.1 204 No Content\r\n\r\n",
    "two": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" * 2,
    "the beginning of one": b"HTTP/1.1 200 OK\r\ncontent-le",
    "a single octet": b"H",
    "a blank line": b"\r\n",
    "what is no HTTP": b"\x00\x01\x02",
    "a header's end": b"\r\n\r\n",
}


class Talkative:
    """Answers the first message with 200 and says something more when it is told to; all others with 503."""

    def __init__(self) -> None:
        self.wires: list[Wire] = []

    async def __call__(self, request: Request, wire: Wire) -> None:
        self.wires.append(wire)
        await wire.answer(200 if request.body == b"first" else 503)


async def play(between: Callable[[Talkative], Awaitable[None]]) -> tuple[object, Service]:
    """The outcome of the second message, and the service."""
    talkative = Talkative()
    async with (
        Service(talkative) as service,
        Pusher(PushTarget(url=service.url, total_s_max=5)) as push,
    ):
        assert await outcome(push, b"first") is None
        await between(talkative)
        return await outcome(push, b"second"), service


@pytest.mark.parametrize("what", UNASKED)
def test_data_that_arrives_on_an_idle_connection_answers_no_message_and_ends_it(what: str) -> None:
    async def between(service: Talkative) -> None:
        await service.wires[0].raw(UNASKED[what])
        await asyncio.sleep(0.05)

    ended, service = asyncio.run(play(between))
    assert isinstance(ended, Answered)
    assert ended.status == 503
    assert [(one.body, one.connection) for one in service.requests] == [(b"first", 1), (b"second", 2)]


def test_data_that_has_arrived_and_was_not_read_yet_answers_no_message_either() -> None:
    """The event loop was busy when it came."""

    async def between(service: Talkative) -> None:
        with service.wires[0].writer.get_extra_info("socket").dup() as peer:
            peer.send(UNASKED["an answer"])

    ended, service = asyncio.run(play(between))
    assert isinstance(ended, Answered)
    assert ended.status == 503
    assert service.connections == 2


def test_more_than_an_answer_in_one_piece_ends_the_connection() -> None:
    async def twice(request: Request, wire: Wire) -> None:
        await wire.raw(UNASKED["two"] if request.body == b"first" else b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")

    async def run() -> None:
        async with Service(twice) as service, Pusher(PushTarget(url=service.url)) as push:
            assert await outcome(push, b"first") is None
            ended = await outcome(push, b"second")
            assert isinstance(ended, Answered)
            assert ended.status == 503
            assert service.connections == 2

    asyncio.run(run())


@pytest.mark.parametrize("body", [b"", b"done"])
def test_a_connection_on_which_nothing_is_said_is_used_again(body: bytes) -> None:
    async def run() -> int:
        async with Service(always(200, body=body)) as service, Pusher(PushTarget(url=service.url)) as push:
            for _ in range(20):
                assert await outcome(push, b"x") is None
            return service.connections

    assert asyncio.run(run()) == 1


def test_many_at_once_use_as_many_connections_as_they_are() -> None:
    async def run() -> int:
        async with Service(always(200)) as service, Pusher(PushTarget(url=service.url, concurrency=4)) as push:
            for _ in range(10):
                assert await asyncio.gather(*(outcome(push, b"x") for _ in range(4))) == [None] * 4
            return service.connections

    assert asyncio.run(run()) <= 4


def test_an_answer_that_takes_several_pieces_is_whole() -> None:
    async def slowly(_: Request, wire: Wire) -> None:
        for piece in (b"HTTP/1.1 200 OK\r\ncontent-", b"length: 4\r\n\r", b"\ndo", b"ne"):
            await wire.raw(piece)
            await asyncio.sleep(0.01)

    async def run() -> int:
        async with Service(slowly) as service, Pusher(PushTarget(url=service.url)) as push:
            for _ in range(3):
                await push(b"x", cast(Message, PlainMessage()))
            return service.connections

    assert asyncio.run(run()) == 1
