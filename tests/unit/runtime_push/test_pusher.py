"""What a push tells the runtime, for every way a service can answer, over real sockets."""

import asyncio
import re
import socket
import sys
from typing import Any

import pytest

from redrive.core import Answered, Outcome, Raised
from redrive.runtime.push import BadAnswer, Dropped, InvalidPush, Pusher, PushTarget, TooSlow, Unreachable, is_signed
from tests.unit.runtime_push.outcomes import BODY, NOW_S, outcome, push_once
from tests.unit.runtime_push.services import Behaviour, ClosingService, Request, Service, Wire, always

SECRET = b"0123456789abcdef0123456789abcdef"


def pushed_to(behaviour: Behaviour, **options: Any) -> tuple[Outcome | None, Service]:
    async def run() -> tuple[Outcome | None, Service]:
        async with Service(behaviour) as service:
            return await push_once(PushTarget(url=service.url, **options)), service

    return asyncio.run(run())


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_a_success(status: int) -> None:
    assert pushed_to(always(status))[0] is None


@pytest.mark.parametrize(
    "status", [301, 302, 307, 308, 400, 404, 408, 409, 418, 422, 425, 429, 499, 500, 503, 599, 600, 799]
)
def test_any_other_status_is_an_answer_for_the_table(status: int) -> None:
    ended, service = pushed_to(always(status, body=b"because", content_type="text/plain", location="/elsewhere"))
    assert isinstance(ended, Answered)
    assert ended.status == status
    assert isinstance(ended.error, BadAnswer)
    assert str(ended.error) == f"{status} Status {status}: because"
    assert len(service.requests) == 1, "a redirect was followed"


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    ended, _ = pushed_to(always(503, retry_after="120"))
    assert isinstance(ended, Answered)
    assert ended.retry_after_ms == 120_000
    ended, _ = pushed_to(always(429, retry_after="Thu, 01 Jan 2026 12:00:30 GMT"))
    assert isinstance(ended, Answered)
    assert ended.retry_after_ms == 30_000
    ended, _ = pushed_to(always(429, retry_after="whenever"))
    assert isinstance(ended, Answered)
    assert ended.retry_after_ms is None


def test_the_body_goes_as_it_came_with_what_is_known_about_it_signed() -> None:
    _, service = pushed_to(always(204), secrets=(SECRET,), headers=(("x-team", "orders"),))
    (request,) = service.requests
    assert request.line == "POST /hook HTTP/1.1"
    assert request.body == BODY
    expected = {
        "content-type": "application/json",
        "x-redrive-message-id": "m-1",
        "x-redrive-queue": "orders",
        "x-redrive-routing-key": "orders.placed",
        "x-redrive-attempt": "2",
        "x-team": "orders",
        "content-length": str(len(BODY)),
    }
    assert expected.items() <= request.headers.items()
    assert is_signed(request.headers["x-redrive-signature"], BODY, SECRET, now_s=NOW_S)


def test_without_a_secret_nothing_is_signed() -> None:
    _, service = pushed_to(always(204))
    assert "x-redrive-signature" not in service.requests[0].headers


def test_an_empty_body_is_posted_too() -> None:
    async def run() -> None:
        async with Service(always(204)) as service:
            assert await push_once(PushTarget(url=service.url), b"") is None
            assert service.requests[0].headers["content-length"] == "0"

    asyncio.run(run())


def test_a_refused_connection_is_a_failure_that_auto_pause_knows() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        ended = asyncio.run(push_once(PushTarget(url=f"http://127.0.0.1:{taken.getsockname()[1]}/")))
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, Unreachable)
    assert isinstance(ended.error, ConnectionError)
    assert "refused" in str(ended.error).lower()


def test_an_unknown_host_is_a_failure_without_the_urls_password() -> None:
    ended = asyncio.run(push_once(PushTarget(url="http://user:s3cret@host.invalid/hook")))
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, Unreachable)
    assert "s3cret" not in str(ended.error)


def test_a_service_that_does_not_answer_in_time_is_too_slow() -> None:
    async def silence(_request: Request, _wire: Wire) -> None:
        await asyncio.Event().wait()

    ended, service = pushed_to(silence, total_s_max=0.1)
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, TooSlow)
    assert isinstance(ended.error, TimeoutError)
    assert len(service.requests) == 1


def test_a_body_that_comes_too_slowly_is_too_slow_as_well() -> None:
    async def trickle(_request: Request, wire: Wire) -> None:
        await wire.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx")
        await asyncio.Event().wait()

    ended, _ = pushed_to(trickle, total_s_max=0.1)
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, TooSlow)


@pytest.mark.parametrize(
    "before",
    [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", b"no HTTP at all\r\n\r\n"],
    ids=["nothing", "half a status", "half a body", "another protocol"],
)
def test_an_answer_that_breaks_off_is_a_failure_whatever_its_status_was(before: bytes) -> None:
    async def break_off(_request: Request, wire: Wire) -> None:
        if before:
            await wire.raw(before)
        wire.writer.close()

    ended, service = pushed_to(break_off)
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, Dropped)
    assert len(service.requests) == 1, "on a fresh connection there is no doubt about whose fault it is"


def test_a_reset_in_the_middle_is_a_failure() -> None:
    async def reset(_request: Request, wire: Wire) -> None:
        wire.drop()

    ended, _ = pushed_to(reset)
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, Dropped)


def test_a_status_that_fails_counts_even_if_its_body_breaks_off() -> None:
    async def break_off(_request: Request, wire: Wire) -> None:
        await wire.raw(b"HTTP/1.1 422 No\r\ncontent-length: 10\r\n\r\nhalf")
        wire.writer.close()

    ended, _ = pushed_to(break_off)
    assert isinstance(ended, Answered)
    assert ended.status == 422


def test_an_answer_without_end_is_not_read_to_it() -> None:
    async def flood(_request: Request, wire: Wire) -> None:
        await wire.raw(b"HTTP/1.1 500 No\r\ncontent-type: text/plain\r\ncontent-length: 1000000000\r\n\r\n")
        while True:
            await wire.raw(b"x" * 65_536)

    ended, _ = pushed_to(flood)
    assert isinstance(ended, Answered)
    assert len(str(ended.error)) < 1_000


def test_connections_are_kept_and_used_again() -> None:
    async def run() -> None:
        async with Service(always(204)) as service, Pusher(PushTarget(url=service.url, concurrency=2)) as push:
            for _ in range(5):
                assert await outcome(push) is None
            assert service.connections == 1
            assert await asyncio.gather(*(outcome(push) for _ in range(20))) == [None] * 20
            assert service.connections == 2
            assert len(service.requests) == 25

    asyncio.run(run())


@pytest.mark.parametrize("moment", ["on the head", "on the body", "half a status", "no word", "silent reset"])
def test_one_call_is_one_request_also_where_a_kept_connection_ends_under_it(moment: str) -> None:
    async def run() -> None:
        async with ClosingService(moment) as service, Pusher(PushTarget(url=service.url)) as push:
            for _ in range(5):
                assert await outcome(push) is None
                ended = await outcome(push)
                assert isinstance(ended, Raised)
                assert isinstance(ended.error, Dropped)
            assert service.posts == [1, 2] * 5, "each fresh connection serves one request and fails the next"

    asyncio.run(run())


def test_a_kept_connection_that_the_service_closes_while_it_is_idle_costs_no_attempt() -> None:
    async def run() -> None:
        async with ClosingService("idle") as service, Pusher(PushTarget(url=service.url)) as push:
            for _ in range(5):
                assert await outcome(push) is None
                await service.wait_closed_idle()
            assert service.posts == [1] * 5

    asyncio.run(run())


def test_every_attempt_of_a_message_has_one_idempotency_key_and_every_other_message_another() -> None:
    async def run() -> None:
        async with Service(always(503)) as service, Pusher(PushTarget(url=service.url)) as push:
            for attempt in (1, 2, 3):
                await outcome(push, attempt=attempt, redelivered=attempt > 1, headers={"x-retry-count": attempt})
            await outcome(push, id="m-2")
            await outcome(push, b"another event of the same order")
            await outcome(push, queue="invoices")
            await outcome(push, id=None)
            await outcome(push, id="naïve\nid")
            keys = [request.headers.get("idempotency-key") for request in service.requests]
        assert len(set(keys[:3])) == 1
        assert None not in keys[:6]
        assert len(set(keys)) == 6
        assert keys[6] is None, "equal bodies without an id are two messages, and one would be dropped"
        assert all(key is None or re.fullmatch("[0-9a-f]{32}", key) for key in keys)

    asyncio.run(run())


def test_an_idempotency_key_of_ones_own_is_refused() -> None:
    with pytest.raises(InvalidPush, match="Idempotency-Key is set from the message"):
        PushTarget(url="http://localhost/", headers=(("Idempotency-Key", "always the same"),))


def test_without_aiohttp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)  # as if it were not there
    with pytest.raises(InvalidPush, match=r"pip install 'redrive\[push\]'"):
        asyncio.run(push_once(PushTarget(url="http://localhost/")))
