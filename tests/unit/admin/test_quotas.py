"""Token quotas: a token that uses too much waits for its own requests, gets 429, and delays no other token."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from redrive.admin import ApiSettings, Services, create_app
from redrive.admin.middleware.quotas import QuotaMiddleware, RequestQuota, TokenQuotas
from redrive.admin.middleware.request_bodies import RequestBodies
from redrive.admin.problems import HttpProblem
from redrive.records import ID_LENGTH, Role
from redrive.stores import Store
from tests.unit.admin.asgi_wire import Wire, echo_length, scope_of
from tests.unit.admin.conftest import BASE_URL, ClientFor, Clock, PutLetter, Run, audited

FEW = ApiSettings(requests_at_once=4, token_waiting_max=3, token_bodies_max=2, token_bytes_max=100, token_streams_max=1)


def in_loop(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(run())


async def turns(quotas: TokenQuotas, token: str, count: int) -> list["asyncio.Task[None]"]:
    """So many requests of a token, as far as they get."""
    tasks = [asyncio.create_task(quotas.wait_turn(token)) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


def test_a_token_alone_uses_everything_and_several_share() -> None:
    async def scenario() -> None:
        quotas = TokenQuotas(FEW)
        greedy = await turns(quotas, "greedy", 7)
        assert [one.done() for one in greedy] == [True] * 4 + [False] * 3
        (honest,) = await turns(quotas, "honest", 1)
        assert honest.done()
        for _ in range(3):
            quotas.end_turn("greedy")
            await asyncio.sleep(0)
        assert [one.done() for one in greedy] == [True] * 4 + [False] * 3  # one left at work, and others ask too
        quotas.end_turn("greedy")
        await asyncio.sleep(0)
        assert [one.done() for one in greedy] == [True] * 5 + [False] * 2
        (second,) = await turns(quotas, "honest", 1)
        assert second.done()
        for one in greedy[5:]:
            one.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)
        assert (quotas._waiting, quotas._working["greedy"]) == ({}, 1)

    in_loop(scenario)


def test_beyond_its_waiting_requests_a_token_gets_429(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        quotas = TokenQuotas(FEW)
        tasks = await turns(quotas, "greedy", 7)
        with pytest.raises(HttpProblem) as refused:
            await quotas.wait_turn("greedy")
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    monkeypatch.setattr("redrive.admin.middleware.quotas.REFUSAL_DELAY_S", 0.0)
    in_loop(scenario)


def test_a_request_that_waits_too_long_gets_429_and_uses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        quotas = TokenQuotas(FEW)
        await turns(quotas, "greedy", 4)
        with pytest.raises(HttpProblem) as refused:
            await quotas.wait_turn("greedy")
        assert refused.value.status == 429
        assert (quotas._waiting, quotas._working["greedy"]) == ({}, 4)

    monkeypatch.setattr("redrive.admin.middleware.quotas.WAIT_S_MAX", 0.01)
    in_loop(scenario)


def test_a_request_releases_everything_it_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        quotas = TokenQuotas(FEW)
        first, second, third = (RequestQuota(quotas, "t") for _ in range(3))
        async with first.receiving(), second.receiving():
            with pytest.raises(HttpProblem):
                async with third.receiving():
                    pass
        first.hold(60)
        with pytest.raises(HttpProblem):
            second.hold(60)
        first.take_stream()
        with pytest.raises(HttpProblem):
            second.take_stream()
        await second.begin()
        second.start_response()
        assert quotas.responses["t"] == 1
        for one in (first, second, third):
            one.end()
            one.end()
        assert (quotas.bodies, quotas.bytes, quotas.streams, quotas.responses, quotas._working) == ({}, {}, {}, {}, {})

    monkeypatch.setattr("redrive.admin.middleware.quotas.REFUSAL_DELAY_S", 0.0)
    in_loop(scenario)


def test_requests_with_bodies_have_the_same_concurrency_limit(run: Run, services: Services) -> None:
    async def scenario() -> None:
        running, most = 0, 0

        async def working(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(5):
                await asyncio.sleep(0)
            running -= 1
            await echo_length(scope, receive, send)

        settings = replace(services.settings, requests_at_once=2)
        app = QuotaMiddleware(RequestBodies(working, settings=settings), quotas=TokenQuotas(settings))
        wires = [Wire([b"{}"]) for _ in range(5)]
        await asyncio.gather(*(app(scope_of(content_length="2"), one.receive, one.send) for one in wires))
        assert ([one.status for one in wires], most) == ([200] * 5, 2)

    run(scenario())


WAYS = ("Bearer {}", "Bearer  {}", "Bearer     {}", "bearer {}", "BEARER {}  ", "Bearer \t{}", "Bearer {}\t")
"""To write a header that says the same."""


def test_a_quota_belongs_to_the_secret_so_nobody_uses_up_another_s() -> None:
    quotas = TokenQuotas(FEW)
    nobody = quotas.key_of(scope_of())
    wrong = scope_of(authorization="Bearer rd_a_wrong")
    for way in WAYS:
        assert quotas.key_of(scope_of(authorization=way.format("rd_a_right"))) == nobody  # it was not looked up yet
    quotas.remember("rd_a_right", "a")
    for way in WAYS:
        assert quotas.key_of(scope_of(authorization=way.format("rd_a_right"))) == "a"
    # Made-up tokens, headers that are none and several at once are those of one sender.
    twice = scope_of(authorization="Bearer rd_a_right")
    twice["headers"] *= 2
    others = [
        wrong,
        twice,
        *(scope_of(authorization=text) for text in ("", "Bearer", "Basic rd_a_right", "rd_a_right")),
    ]
    assert {quotas.key_of(one) for one in others} == {nobody}
    assert quotas.key_of({**wrong, "client": ("10.1.1.1", 7)}) != nobody
    neighbours = [{**wrong, "client": (f"2001:db8::{number}", 7)} for number in range(5)]
    assert len({quotas.key_of(one) for one in neighbours}) == 1
    quotas.forget("rd_a_right")
    assert quotas.key_of(scope_of(authorization="Bearer rd_a_right")) == nobody


def test_made_up_tokens_count_as_one_sender(run: Run, client_for: ClientFor, services: Services) -> None:
    """Each of them counted as somebody to leave room for, so that everybody else had one request at a time."""

    async def scenario() -> None:
        honest = await client_for(Role.VIEWER)
        await honest.get("/api/v1/stats")
        for number in range(40):
            made_up = f"rd_{'0' * ID_LENGTH}_{number:032}"
            assert (await honest.get("/api/v1/stats", headers={"Authorization": f"Bearer {made_up}"})).status_code in (
                401,
                429,
            )
        # The limit of the honest one is half of all: it shares with one other sender, not with forty.
        quotas, half = services.quotas, services.settings.requests_at_once // 2
        key = quotas.key_of(scope_of(authorization=honest.headers["authorization"]))
        running = await turns(quotas, key, half + 1)
        assert [one.done() for one in running] == [True] * half + [False]
        running[-1].cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for _ in range(half):
            quotas.end_turn(key)
        assert (await honest.get("/api/v1/stats")).status_code == 200

    run(scenario())


def test_an_invalid_token_is_forgotten_by_the_quotas(
    run: Run, client_for: ClientFor, services: Services, clock: Clock
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.VIEWER, expires_at_ms=clock() + 1_000)
        own, nobody = scope_of(authorization=client.headers["authorization"]), scope_of()
        assert (await client.get("/api/v1/stats")).status_code == 200
        assert services.quotas.key_of(own) != services.quotas.key_of(nobody)
        clock.now_ms += 2_000
        assert (await client.get("/api/v1/stats")).status_code == 401
        assert services.quotas.key_of(own) == services.quotas.key_of(nobody)

    run(scenario())


def test_a_token_has_one_stream_quota_however_it_is_written(
    run: Run, client_for: ClientFor, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blanks before it made five tokens of one, with ten streams each: all there are."""
    monkeypatch.setattr("redrive.admin.middleware.quotas.REFUSAL_DELAY_S", 0.0)

    async def scenario() -> None:
        settings = replace(services.settings, token_streams_max=2, streams_max=10)
        limited = replace(services, settings=settings)
        app = create_app(limited)
        viewer = await client_for(Role.VIEWER)
        text = viewer.headers["authorization"].partition(" ")[2]
        gone = asyncio.Event()

        class Staying(Wire):
            async def receive(self) -> Any:
                await gone.wait()
                return {"type": "http.disconnect"}

        wires, tasks = [], []
        for way in WAYS:
            wire = Staying([])
            scope = scope_of("GET", "/api/v1/events", authorization=way.format(text))
            tasks.append(asyncio.create_task(app(scope, wire.receive, wire.send)))
            wires.append(wire)
            while not wire.sent:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert [one.status for one in wires] == [200, 200, *[429] * (len(WAYS) - 2)]
        assert limited.quotas.streams.total() == 2
        gone.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not limited.quotas.streams

    run(scenario())


def test_one_token_searches_once_at_a_time_and_others_meanwhile() -> None:
    async def scenario() -> None:
        quotas, most = TokenQuotas(ApiSettings()), 0
        running: list[str] = []

        async def search(token: str) -> None:
            nonlocal most
            async with quotas.searching(token):
                running.append(token)
                most = max(most, len(running))
                assert running.count(token) == 1
                await asyncio.sleep(0)
                running.remove(token)

        await asyncio.gather(*(search(token) for token in "aaabbb"))
        assert most == 2
        assert (quotas._searchers, quotas._searching) == ({}, {})

    in_loop(scenario)


class Trickle(Wire):
    """A body that never comes."""

    async def receive(self) -> Any:
        raise AssertionError("nobody may read this body")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/v1/messages/delete"), ("PATCH", "/api/v1/messages/x"), ("POST", "/api/v1/tokens")],
)
def test_a_role_is_checked_before_a_body_is_read(
    run: Run, client_for: ClientFor, app: FastAPI, store: Store, method: str, path: str
) -> None:
    async def scenario() -> None:
        viewer = await client_for(Role.VIEWER, name="vic")
        authorization = viewer.headers["authorization"]
        wire = Trickle([])
        await app(scope_of(method, path, authorization=authorization, content_length="1000"), wire.receive, wire.send)
        assert wire.status == 403
        assert [who for who, _, _ in await audited(store, "access.forbidden")] == ["vic"]

    run(scenario())


def test_slow_bodies_of_one_token_leave_the_api_to_the_others(
    run: Run, client_for: ClientFor, services: Services, put_letter: PutLetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator this time, who may send bodies."""
    monkeypatch.setattr("redrive.admin.middleware.quotas.REFUSAL_DELAY_S", 0.0)

    async def scenario() -> None:
        letter = await put_letter()
        limited = replace(services, settings=replace(services.settings, token_bodies_max=2))
        app = create_app(limited)
        hostile = await client_for(Role.OPERATOR, name="mallory")
        never = asyncio.Event()

        class Slow(Wire):
            async def receive(self) -> Any:
                await never.wait()

        scope = scope_of("POST", "/api/v1/messages/delete", content_length="1000")
        scope["headers"].append((b"authorization", hostile.headers["authorization"].encode()))
        slow = [Slow([]) for _ in range(2)]
        tasks = [asyncio.create_task(app(dict(scope), one.receive, one.send)) for one in slow]
        while limited.quotas.bodies.total() < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        third = Slow([])
        await app(dict(scope), third.receive, third.send)
        assert third.status == 429
        honest = await client_for(Role.OPERATOR, name="olga")
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=honest.headers) as client:
            done = await client.post(f"/api/v1/messages/{letter.id}/resolve", json={"why": "seen"})
            assert done.status_code == 200, done.text
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not limited.quotas.bodies

    run(scenario())
