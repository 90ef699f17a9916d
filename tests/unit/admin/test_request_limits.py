"""Limits of a request: bytes and time, and an answer to every error. At the ASGI layer, where bodies come in pieces."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from redrive.admin import ApiSettings, Services
from redrive.admin.middleware.error_boundary import ErrorBoundary
from redrive.admin.middleware.request_bodies import RequestBodies
from redrive.admin.middleware.security_headers import SecurityHeaders
from redrive.records import Role
from redrive.stores import Store
from tests.unit.admin.asgi_wire import Wire, echo_length, scope_of
from tests.unit.admin.conftest import ClientFor, Noted, Run

MEGABYTE = 1_000_000


def limited(services: Services, app: Any = echo_length) -> Any:
    return ErrorBoundary(RequestBodies(app, settings=services.settings), services=services)


def ask(run: Run, app: Any, wire: Wire, scope: Scope) -> Wire:
    run(app(scope, wire.receive, wire.send))
    return wire


def test_a_body_in_pieces_comes_whole(run: Run, services: Services) -> None:
    wire = Wire([b"a" * 1000] * 900)
    ask(run, limited(services), wire, scope_of(transfer_encoding="chunked"))
    assert (wire.status, wire.headers["x-got"]) == (200, "900000")


def test_a_body_that_says_it_is_too_large_is_not_read(run: Run, services: Services) -> None:
    wire = Wire([b"a" * 1000])
    ask(run, limited(services), wire, scope_of(content_length="100000000"))
    assert (wire.status, wire.taken) == (413, 0)
    assert b"body-too-large" in wire.sent[1]["body"]


def test_an_endless_body_without_a_length_is_left_at_the_limit(run: Run, services: Services) -> None:
    wire = Wire([b"a" * 65_536], is_endless=True)
    ask(run, limited(services), wire, scope_of(transfer_encoding="chunked"))
    assert wire.status == 413
    assert wire.taken <= MEGABYTE + 65_536


def test_a_body_longer_than_it_says_is_left_at_the_limit(run: Run, services: Services) -> None:
    wire = Wire([b"a" * 65_536], is_endless=True)
    ask(run, limited(services), wire, scope_of(content_length="10"))
    assert (wire.status, wire.taken <= MEGABYTE + 65_536) == (413, True)


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 40, "٣", "0x10"])
def test_a_length_that_is_none_is_refused(run: Run, services: Services, length: str) -> None:
    wire = Wire([b"a"])
    scope = scope_of()
    scope["headers"] = [(b"content-length", length.encode())]
    assert ask(run, limited(services), wire, scope).status == 413


def test_an_edit_may_be_larger(run: Run, services: Services) -> None:
    wire = Wire([b"a" * MEGABYTE] * 31)
    ask(run, limited(services), wire, scope_of("PATCH", transfer_encoding="chunked"))
    assert (wire.status, wire.headers["x-got"]) == (200, str(31 * MEGABYTE))
    wire = Wire([b"a" * MEGABYTE] * 33)
    assert ask(run, limited(services), wire, scope_of("PATCH", transfer_encoding="chunked")).status == 413


class TestTogether:
    """Many bodies at once."""

    @pytest.fixture
    def settings(self) -> ApiSettings:
        return ApiSettings(buffered_bytes_max=2 * MEGABYTE)

    def test_all_bodies_in_memory_share_a_limit_and_release_it(self, run: Run, services: Services) -> None:
        held, full = asyncio.Event(), asyncio.Event()
        holding_now = 0

        async def holding(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal holding_now
            if scope["path"] == "/hold":
                holding_now += 1
                if holding_now == 2:
                    full.set()
                await held.wait()
            await echo_length(scope, receive, send)

        app = ErrorBoundary(RequestBodies(holding, settings=services.settings), services=services)

        async def scenario() -> None:
            wires = [Wire([b"a" * 900_000]) for _ in range(2)]
            holders = [
                asyncio.create_task(app(scope_of(path="/hold", transfer_encoding="chunked"), one.receive, one.send))
                for one in wires
            ]
            await full.wait()
            late = Wire([b"a" * 900_000])
            await app(scope_of(transfer_encoding="chunked"), late.receive, late.send)
            assert late.status == 503
            assert late.headers["retry-after"] == "5"
            held.set()
            await asyncio.gather(*holders)
            assert [one.status for one in wires] == [200, 200]
            # All of the limit is free again: a body as large as the limit is received.
            whole = Wire([b"a" * MEGABYTE] * 2)
            await app(scope_of("PATCH", transfer_encoding="chunked"), whole.receive, whole.send)
            assert (whole.status, whole.headers["x-got"]) == (200, str(2 * MEGABYTE))

        run(scenario())


class TestTime:
    """Slow ones."""

    @pytest.fixture
    def settings(self) -> ApiSettings:
        return ApiSettings(request_s_max=0.2, body_s_max=0.05, sending_s_max=0.2)

    def test_a_body_that_comes_too_slowly_is_given_up(self, run: Run, services: Services) -> None:
        wire = Wire([b"a"], stalls=True)
        ask(run, limited(services), wire, scope_of(transfer_encoding="chunked"))
        assert (wire.status, wire.headers["connection"]) == (408, "close")

    def test_a_request_that_takes_too_long_is_given_up_with_a_reason(self, run: Run, services: Services) -> None:
        ended = []

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(True)

        wire = ask(run, limited(services, slow), Wire([]), scope_of("GET"))
        assert (wire.status, wire.headers["retry-after"], ended) == (503, "5", [True])
        assert b"timed-out" in wire.sent[1]["body"]

    def test_a_stream_of_events_goes_on(self, run: Run, services: Services) -> None:
        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await asyncio.sleep(0.5)
            await send({"type": "http.response.body", "body": b"data: late\n\n"})

        wire = ask(run, limited(services, stream), Wire([]), scope_of("GET"))
        assert wire.sent[-1]["body"] == b"data: late\n\n"

    def test_a_response_nobody_reads_is_dropped_without_a_second_one(self, run: Run, services: Services) -> None:
        async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await asyncio.sleep(3600)

        wire = ask(run, limited(services, stuck), Wire([]), scope_of("GET"))
        assert [one["type"] for one in wire.sent] == ["http.response.start"]


def test_whatever_goes_wrong_is_answered_and_told_by_its_type_only(run: Run, services: Services, noted: Noted) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyError("card 4111111111111111")

    wire = ask(run, limited(services, broken), Wire([]), scope_of("GET"))
    assert wire.status == 500
    assert b"4111" not in wire.sent[1]["body"]
    ((name, fields),) = noted.events
    assert (name, fields["error"]) == ("admin.failed", "KeyError")
    assert "4111" not in repr(fields)


def test_a_client_that_goes_away_while_it_sends_changes_nothing(
    run: Run, app: FastAPI, client_for: ClientFor, store: Store
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        messages: list[Message] = [
            {"type": "http.request", "body": b'{"kind": "body", ', "more_body": True},
            {"type": "http.disconnect"},
        ]
        sent: list[Message] = []

        async def receive() -> Message:
            return messages.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        token = client.headers["Authorization"]
        scope = scope_of("POST", "/api/v1/redactions", authorization=token, content_length="80")
        await app(scope, receive, send)
        assert sent == []
        assert await store.redactions.all() == ()

    run(scenario())


def test_nobody_without_a_token_makes_us_read_a_body(run: Run, app: FastAPI) -> None:
    wire = Wire([b"a" * 1000])
    ask(run, app, wire, scope_of("POST", "/api/v1/tokens", transfer_encoding="chunked"))
    assert (wire.status, wire.taken) == (401, 0)


def test_every_answer_has_headers_for_browsers(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        nobody = await client_for(None)
        answers = [
            await client.get("/api/v1/tokens"),
            await client.get("/nowhere"),
            await client.post("/api/v1/tokens", json={}),
            await nobody.get("/api/v1/tokens"),
            await nobody.get("/docs"),
        ]
        for one in answers:
            assert one.headers["x-content-type-options"] == "nosniff"
            assert one.headers["x-frame-options"] == "DENY"
            assert one.headers["content-security-policy"].startswith("default-src 'none'")
            assert one.headers["cache-control"] == "no-store"

    run(scenario())


def test_an_answer_s_own_headers_stay(run: Run) -> None:
    async def own(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=60")]})

    wire = ask(run, SecurityHeaders(own), Wire([]), scope_of("GET"))
    assert wire.headers["cache-control"] == "max-age=60"
