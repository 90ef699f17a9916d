"""Invalid requests: the response says in a sentence what is wrong, where, and what to write instead."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from redrive.records import Role
from tests.unit.admin.conftest import ClientFor, PutLetter, Run


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


def test_a_missing_role_is_refused_before_a_parameter(run: Run, client_for: ClientFor) -> None:
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
def test_an_invalid_request_gets_a_sentence_with_place_and_remedy(
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
