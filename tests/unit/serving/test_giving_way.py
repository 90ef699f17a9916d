"""The worker rests while requests are in hand."""

import asyncio
import itertools

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.core import SILENT
from redrive.serving import giving_way
from redrive.serving.around import Around
from redrive.serving.giving_way import REST_S_MAX, REST_S_MIN, SHARE, InHand, considerate_loop

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a loop rested, each time; nobody waits for it here."""
    taken: list[float] = []
    monkeypatch.setattr(giving_way, "sleep", taken.append)
    return taken


def played(in_hand: InHand, *, turn_s: float) -> None:
    """Some turns of a loop, each of which takes so long."""
    worked = itertools.count()

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=considerate_loop(in_hand, worked_s=lambda: next(worked) * turn_s)) as runner:
        runner.run(turns())


def in_hand_of(count: int) -> InHand:
    in_hand = InHand()
    in_hand.count = count
    return in_hand


def test_without_a_request_the_worker_never_rests(rests: list[float]) -> None:
    played(in_hand_of(0), turn_s=1.0)
    assert rests == []


def test_the_longer_it_worked_and_the_more_requests_are_in_hand_the_longer_it_rests(rests: list[float]) -> None:
    played(in_hand_of(1), turn_s=0.002)
    assert rests[-1] == pytest.approx(0.002 * SHARE)
    played(in_hand_of(3), turn_s=0.002)
    assert rests[-1] == pytest.approx(0.002 * SHARE * 3)


def test_however_much_there_is_it_goes_on(rests: list[float]) -> None:
    played(in_hand_of(100_000), turn_s=1.0)
    assert set(rests) == {REST_S_MAX}


def test_after_small_turns_it_rests_once_in_a_while(rests: list[float]) -> None:
    played(in_hand_of(1), turn_s=REST_S_MIN / SHARE / 4.5)
    assert 0 < len(rests) < 10
    assert all(rest_s >= REST_S_MIN for rest_s in rests)


async def answer(in_hand: InHand, app: ASGIApp) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        pass

    around = Around(app, observer=SILENT, stopping=asyncio.Event(), in_hand=in_hand)
    await around(SCOPE, receive, send)


def test_a_request_is_in_hand_until_it_is_answered_or_has_failed() -> None:
    in_hand = InHand()
    seen: list[int] = []

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(in_hand.count)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})
        seen.append(in_hand.count)

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(in_hand.count)
        raise OSError

    asyncio.run(answer(in_hand, answering))
    with pytest.raises(OSError):
        asyncio.run(answer(in_hand, failing))
    assert (seen, in_hand.count) == ([1, 1, 1], 0)


def test_a_stream_is_in_hand_only_until_it_begins() -> None:
    in_hand = InHand()
    seen: list[int] = []

    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(in_hand.count)
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        seen.append(in_hand.count)
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        seen.append(in_hand.count)

    asyncio.run(answer(in_hand, streaming))
    assert (seen, in_hand.count) == ([1, 0, 0], 0)
