"""The worker rests while requests are open."""

import asyncio
import itertools

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.core import NULL_OBSERVER
from redrive.serving import worker_throttle
from redrive.serving.request_monitor import RequestMonitor
from redrive.serving.worker_throttle import REST_S_MAX, REST_S_MIN, SHARE, OpenRequests, throttled_loop

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a loop rested, each time; nobody waits for it here."""
    taken: list[float] = []
    monkeypatch.setattr(worker_throttle, "sleep", taken.append)
    return taken


def played(open_requests: OpenRequests, *, turn_s: float) -> None:
    """Some turns of a loop, each of which takes so long."""
    worked = itertools.count()

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=throttled_loop(open_requests, worked_s=lambda: next(worked) * turn_s)) as runner:
        runner.run(turns())


def open_requests_of(count: int) -> OpenRequests:
    open_requests = OpenRequests()
    open_requests.count = count
    return open_requests


def test_without_a_request_the_worker_never_rests(rests: list[float]) -> None:
    played(open_requests_of(0), turn_s=1.0)
    assert rests == []


def test_the_longer_it_worked_and_the_more_requests_are_in_hand_the_longer_it_rests(rests: list[float]) -> None:
    played(open_requests_of(1), turn_s=0.002)
    assert rests[-1] == pytest.approx(0.002 * SHARE)
    played(open_requests_of(3), turn_s=0.002)
    assert rests[-1] == pytest.approx(0.002 * SHARE * 3)


def test_however_much_there_is_it_goes_on(rests: list[float]) -> None:
    played(open_requests_of(100_000), turn_s=1.0)
    assert set(rests) == {REST_S_MAX}


def test_after_small_turns_it_rests_once_in_a_while(rests: list[float]) -> None:
    played(open_requests_of(1), turn_s=REST_S_MIN / SHARE / 4.5)
    assert 0 < len(rests) < 10
    assert all(rest_s >= REST_S_MIN for rest_s in rests)


async def answer(open_requests: OpenRequests, app: ASGIApp) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        pass

    monitor = RequestMonitor(app, observer=NULL_OBSERVER, stopping=asyncio.Event(), open_requests=open_requests)
    await monitor(SCOPE, receive, send)


def test_a_request_is_in_hand_until_it_is_answered_or_has_failed() -> None:
    open_requests = OpenRequests()
    seen: list[int] = []

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(open_requests.count)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})
        seen.append(open_requests.count)

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(open_requests.count)
        raise OSError

    asyncio.run(answer(open_requests, answering))
    with pytest.raises(OSError):
        asyncio.run(answer(open_requests, failing))
    assert (seen, open_requests.count) == ([1, 1, 1], 0)


def test_a_stream_is_in_hand_only_until_it_begins() -> None:
    open_requests = OpenRequests()
    seen: list[int] = []

    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(open_requests.count)
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        seen.append(open_requests.count)
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        seen.append(open_requests.count)

    asyncio.run(answer(open_requests, streaming))
    assert (seen, open_requests.count) == ([1, 0, 0], 0)
