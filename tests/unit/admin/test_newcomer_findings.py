"""What somebody who used the API for the first time stumbled over: looks without a management API, misspelt parameters,
sentences about bodies, and the same retry twice.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from redrive.admin import ApiSettings, Services, SharedBroker, WorkerActivity, WorkerState
from redrive.admin.problems import management_unavailable
from redrive.admin.settings import InvalidSettings
from redrive.deadletters import PeekResult
from redrive.records import OperationState, Role
from redrive.stores import Store
from redrive.wiring import KnownQueue, KnownQueues
from tests.unit.admin.conftest import ClientFor, PutLetter, Run, app_on

DLQ = "orders.parked"
PEEK = f"/admin/dlq/queues/{DLQ}/messages"
COLLECTING = WorkerState(activity=WorkerActivity.COLLECTING, queues={DLQ: ""})
AWAY = WorkerState(activity=WorkerActivity.WAITING, reason="for the broker: no connection", queues={DLQ: ""})


class WithoutManagement(SharedBroker):
    """The broker answers, its management API does not."""

    async def queues(self) -> KnownQueues:
        return KnownQueues(address="here", queues=(KnownQueue(vhost="/", dlq=DLQ, known_queue="orders"),))

    async def peek(self, queue: str, limit: int) -> PeekResult:
        raise management_unavailable("the management API does not answer at http://here:15672")


@pytest.fixture
def doing() -> list[WorkerState]:
    """What the worker does; the last one counts."""
    return [WorkerState(activity=WorkerActivity.OFF)]


@pytest.fixture
def app(services: Services, doing: list[WorkerState]) -> FastAPI:
    broker = WithoutManagement(services.connections, services.store, patience_s=0.1)
    return app_on(replace(services, broker=broker, workers=lambda: doing[-1]))


def test_without_a_management_api_what_is_stored_is_shown_and_why_no_more(
    run: Run, client_for: ClientFor, put_letter: PutLetter, doing: list[WorkerState]
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        refused = await client.get(PEEK)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:redrive:problem:management-unavailable")
        assert refused.json()["title"] == "The broker's management API can't be asked"
        assert refused.headers["retry-after"]
        # What is collected here is stored: nothing stored is an answer.
        doing.append(COLLECTING)
        empty = await client.get(PEEK)
        assert (empty.status_code, empty.json()["messages"]) == (200, [])
        assert "http://here:15672" in empty.json()["note"]
        # But not while nothing is collected.
        doing.append(AWAY)
        assert (await client.get(PEEK)).status_code == 503
        letter = await put_letter()
        told = (await client.get(PEEK)).json()
        assert [one["id"] for one in told["messages"]] == [letter.id]
        assert (told["left"], "http://here:15672" in told["note"]) == (None, True)

    run(scenario())


def test_a_queue_is_not_said_to_be_collected_while_the_worker_waits(
    run: Run, client_for: ClientFor, doing: list[WorkerState]
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        found = []
        for state in (COLLECTING, AWAY, WorkerState(activity=WorkerActivity.OFF)):
            doing.append(state)
            pipeline = (await client.get("/admin/dlq/queues")).json()
            ours = (await client.get("/api/v1/queues")).json()
            found.append((pipeline["queues"][0]["collecting"], ours["queues"][0]["collecting"], pipeline["worker"]))
        waiting = "waiting: for the broker: no connection"
        assert found == [(True, "yes", "collecting"), (False, waiting, waiting), (False, None, "off")]

    run(scenario())


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/dlq?colour=red", "the parameter `colour` is not known; known here: "),
        ("/dlq?statsu=FAILED", "the parameter `statsu` is not known; did you mean `status`?"),
        ("/api/v1/messages?filter=error:Timeout", "the parameter `filter` is not known; "),
        ("/api/v1/messages?limit=1&limits=2", "the parameter `limits` is not known; did you mean `limit`?"),
        ("/api/v1/queues?queue=orders", "the parameter `queue` is not known; none is known here"),
        ("/dlq/stats?%00=1", "the parameter `\\x00` is not known; none is known here"),
    ],
)
def test_a_parameter_that_is_not_known_is_refused(run: Run, client_for: ClientFor, path: str, says: str) -> None:
    async def scenario() -> None:
        answer = await (await client_for(Role.ADMIN)).get(path)
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:redrive:problem:invalid-request")
        assert answer.json()["detail"].startswith(says)

    run(scenario())


def test_whoever_may_not_hears_that_first(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        assert (await (await client_for(Role.VIEWER)).get("/api/v1/tokens?x=1")).status_code == 403
        assert (await (await client_for(None)).get("/api/v1/tokens?x=1")).status_code == 401

    run(scenario())


Asking = Callable[[httpx.AsyncClient], Any]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (
            lambda client: client.post("/api/v1/redrives"),
            "the body is missing; send it as JSON, with the header Content-Type: application/json",
        ),
        (
            lambda client: client.post("/api/v1/redrives", content=b'{"q": ""}'),
            "the body is not sent as JSON; send it as JSON, with the header Content-Type: application/json",
        ),
        (
            lambda client: client.post(
                "/api/v1/redrives", content=b"{q}", headers={"Content-Type": "application/json"}
            ),
            "the body is no JSON: Expecting property name enclosed in double quotes at character 1; send it as JSON",
        ),
        (
            lambda client: client.get("/dlq?from=yesterday"),
            "the parameter `from` is no date and time; write it like 2026-01-31T12:00:00Z",
        ),
        (lambda client: client.get("/dlq?limit=0"), "the parameter `limit` must be at least 1"),
        (lambda client: client.get("/api/v1/redrives?state=x"), "the parameter `state` must be 'waiting', "),
        (
            lambda client: client.post("/api/v1/redrives", json={"q": "", "dryrun": True}),
            "`dryrun` in the body is not known; leave it out, or see /docs for what there is",
        ),
        (lambda client: client.post("/api/v1/redrives", json={}), "the body can't be used: say which: by ids, or by q"),
    ],
)
def test_what_is_wrong_is_a_sentence_with_its_place_and_what_to_do(
    run: Run, client_for: ClientFor, ask: Asking, says: str
) -> None:
    async def scenario() -> None:
        answer = await ask(await client_for(Role.ADMIN))
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(says), answer.json()["detail"]

    run(scenario())


@pytest.mark.parametrize("body", [None, b'{"q": ""}'])
def test_where_every_field_may_be_left_out_so_may_the_body(
    run: Run, client_for: ClientFor, put_letter: PutLetter, body: bytes | None
) -> None:
    async def scenario() -> None:
        await put_letter()
        client = await client_for(Role.OPERATOR)
        expected = 200 if body is None else 422
        for action in ("acknowledge", "reopen"):
            assert (await client.post(f"/api/v1/groups/timeouts/{action}", content=body)).status_code == expected

    run(scenario())


def test_a_dead_letter_that_will_be_sent_is_not_asked_for_again(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter, other = await put_letter(), await put_letter()
        client = await client_for(Role.OPERATOR)
        first = await client.post(f"/dlq/{letter.id}/retry")
        assert first.status_code == 202
        operation = first.json()["operation"]
        second = await client.post(f"/dlq/{letter.id}/retry")
        assert (second.status_code, second.json()["type"]) == (409, "urn:redrive:problem:queued-already")
        assert operation in second.json()["detail"]
        assert (await client.post("/api/v1/redrives", json={"ids": [letter.id]})).status_code == 409
        assert [one.id for one in (await store.operations.page(10))[0]] == [operation]
        # With another one there is something to do, and what waits no more is no hindrance.
        both = await client.post("/api/v1/redrives", json={"ids": [letter.id, other.id]})
        assert both.status_code == 202
        for id in (operation, both.json()["id"]):
            assert (await client.post(f"/api/v1/redrives/{id}/cancel")).status_code == 200
        assert (await client.post(f"/dlq/{letter.id}/retry")).status_code == 202

    run(scenario())


def test_the_same_key_finds_its_own_operation(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.OPERATOR)
        key = {"Idempotency-Key": "k"}
        answers = [await client.post(f"/dlq/{letter.id}/retry", headers=key) for _ in range(2)]
        assert len({one.json()["operation"] for one in answers}) == 1

    run(scenario())


def test_an_operation_that_sent_nothing_says_how_many_it_skipped_and_why(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, services: Services
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.OPERATOR)
        id = (await client.post(f"/dlq/{letter.id}/retry")).json()["operation"]
        await client.delete(f"/dlq/{letter.id}")
        now_ms = services.clock_ms()
        lease = await store.leases.acquire(f"operation:{id}", owner="test", ttl_ms=60_000)
        assert lease is not None
        await store.operations.claim(id, lease, now_ms=now_ms)
        assert await store.operations.take(id, lease, limit=10, now_ms=now_ms) == ()
        told = (await client.get(f"/api/v1/redrives/{id}")).json()
        assert told["state"] == OperationState.DONE
        assert told["note"] == "nothing was sent: 1 of 1 was skipped (it was deleted)"
        assert (await client.get(f"/api/v1/redrives/{id}/items")).json()["items"][0]["reason"] == "it was deleted"
        (listed,) = (await client.get("/api/v1/redrives")).json()["redrives"]
        assert listed["note"] == "nothing was sent: 1 of 1 was skipped (its items say why)"

    run(scenario())


@pytest.mark.parametrize("proxy", ["foo", "10.0.0.5/8", "", "proxy.example:80"])
def test_a_proxy_that_is_no_address_is_refused(proxy: str) -> None:
    with pytest.raises(InvalidSettings, match=r"neither an address nor a network; write it like 10\.0\.0\.5"):
        ApiSettings(trusted_proxies=("10.0.0.0/24", "::1", proxy))
