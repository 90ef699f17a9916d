"""Every refusal is application/problem+json with a stable type; and the document says which to expect."""

import json
from collections import Counter
from typing import Any

import pytest
from fastapi import FastAPI

from redrive.admin.etags import etag, expected_version, required_version
from redrive.admin.problems import HttpProblem, conflict, forbidden, invalid, not_found, problem_of
from redrive.client import ClientError
from redrive.core import RedriveError
from redrive.deadletters import ActionRefused, InvalidEdit, PeekRefused, RecordNotFound, StillCollected, TargetRefused
from redrive.management import ManagementError
from redrive.records import InvalidFilter, Role, parse_filter
from redrive.stores import (
    FilterTooExpensive,
    IdempotencyConflict,
    InvalidCursor,
    InvalidScope,
    LetterBusy,
    Store,
    StoreError,
    StoreUnavailable,
    UnknownOperation,
    VersionConflict,
)
from redrive.stores.tokens import Tokens
from tests.unit.admin.conftest import ClientFor, Run


def invalid_filter() -> InvalidFilter:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter('status:"open', now_ms=0)
    return caught.value


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (not_found("group", "g"), 404, "not-found"),
        (forbidden("no"), 403, "forbidden"),
        (conflict("busy", "no"), 409, "busy"),
        (invalid("no"), 422, "invalid-request"),
        (ActionRefused("no"), 409, "refused"),
        (RecordNotFound("there is no group g"), 404, "not-found"),
        (UnknownOperation("x"), 404, "not-found"),
        (invalid_filter(), 422, "invalid-filter"),
        (FilterTooExpensive("it takes longer than 10 s to answer"), 422, "filter-too-dear"),
        (InvalidEdit("no"), 422, "invalid-request"),
        (InvalidCursor("no"), 422, "invalid-request"),
        (InvalidScope("no"), 422, "invalid-request"),
        (VersionConflict("x", 1, 2), 412, "version-conflict"),
        (LetterBusy("x", "it is retrying"), 409, "busy"),
        (IdempotencyConflict("k", "x"), 422, "idempotency-key-reused"),
        (TargetRefused.__new__(TargetRefused), 409, "target-refused"),
        (PeekRefused("no"), 409, "peek-would-destroy"),
        (StillCollected.__new__(StillCollected), 409, "still-collected"),
        (StoreUnavailable("postgresql://host/db", "it is gone", "try again"), 503, "store-unavailable"),
        (ClientError("no"), 503, "broker-unavailable"),
        (ManagementError("no"), 503, "management-unavailable"),
        (TimeoutError(), 503, "broker-unavailable"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_error_has_its_problem_type(error: Exception, status: int, name: str) -> None:
    problem = problem_of(error)
    assert problem is not None
    assert (problem.status, problem.name) == (status, name)
    if status == 503:
        assert problem.headers["Retry-After"] == "5"
    told = json.loads(bytes(problem.response("/x").body))
    assert (told["type"], told["status"], told["instance"]) == (f"urn:redrive:problem:{name}", status, "/x")


@pytest.mark.parametrize("error", [ValueError("x"), RedriveError("x"), StoreError("x")])
def test_what_has_no_meaning_is_our_own_fault(error: Exception) -> None:
    assert problem_of(error) is None


def test_a_client_is_not_told_where_the_database_is() -> None:
    problem = problem_of(StoreUnavailable("postgresql://secret-host/db", "it is gone", "start it"))
    assert problem is not None
    assert "secret-host" not in problem.detail


def test_an_answer_is_json_whatever_a_text_holds() -> None:
    problem = HttpProblem(
        status=409, name="x", title="\ud800", detail="\x00\u2028\udfff", extra={"status": 1, "a": "\ud800"}
    )
    told = json.loads(bytes(problem.response("/\udcff").body))
    assert (told["status"], told["a"]) == (409, "\ud800")


def test_a_filter_s_problems_are_told_with_their_places() -> None:
    problem = problem_of(invalid_filter())
    assert problem is not None
    (one,) = problem.extra["problems"]
    assert (one["code"], one["start"]) == ("open-quote", 0)


def test_what_is_wrong_with_a_request_is_told_without_its_values(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        answer = await client.post("/api/v1/tokens", json={"name": 7, "role": "4111111111111111", "x": "4111"})
        told = answer.json()
        assert (answer.status_code, told["type"]) == (422, "urn:redrive:problem:invalid-request")
        assert {one["at"] for one in told["errors"]} == {"body.name", "body.role", "body.x"}
        assert "4111" not in answer.text

    run(scenario())


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"{", {"Content-Type": "application/json"}),
        (b"\xff\xfe", {"Content-Type": "application/json"}),
        (b"[" * 100_000, {"Content-Type": "application/json"}),
        (b"{}", {"Content-Type": "text/plain"}),
        (b"", {"Content-Type": "application/json"}),
        (b'{"name": "\\ud800", "role": "admin"}', {"Content-Type": "application/json"}),
        (b'{"name": "a\\u0000b", "role": "admin"}', {"Content-Type": "application/json"}),
        (b"\x1f\x8b\x08", {"Content-Type": "application/json", "Content-Encoding": "gzip"}),
    ],
)
def test_a_body_that_can_t_be_read_is_refused(
    run: Run, client_for: ClientFor, store: Store, content: bytes, headers: dict[str, str]
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        answer = await client.post("/api/v1/tokens", content=content, headers=headers)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(await store.tokens.all()) == 1

    run(scenario())


def test_what_is_not_there_and_methods_that_are_not_taken_are_problems_too(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        for method, path, status in (
            ("GET", "/nowhere", 404),
            ("GET", "/api/v1/tokens/", 404),
            ("PUT", "/api/v1/tokens", 405),
            ("TRACE", "/api/v1/tokens", 405),
            ("GET", "/api/v1/tokens/%00", 422),
        ):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), path
            if status == 405:
                assert "GET" in answer.headers["allow"]

    run(scenario())


def test_a_database_that_is_gone_is_503_with_retry_after(
    run: Run, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> None:
        raise StoreUnavailable("x", "gone", "try again")

    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        monkeypatch.setattr(Tokens, "admit", gone)
        answer = await client.get("/api/v1/tokens")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["type"] == "urn:redrive:problem:store-unavailable"

    run(scenario())


def test_etags_are_versions() -> None:
    assert etag(3) == '"3"'
    assert expected_version('"3"') == 3
    assert expected_version(None) is None
    assert expected_version("*") is None
    assert required_version(' "3" ') == 3
    with pytest.raises(HttpProblem) as missing:
        required_version(None)
    assert missing.value.status == 428
    for odd in ("3", 'W/"3"', '"x"', '"3", "4"', '"' + "9" * 30 + '"', "", '"٣"'):
        with pytest.raises(HttpProblem) as refused:
            expected_version(odd)
        assert refused.value.status == 412


def operations(app: FastAPI) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation) for path, one in app.openapi()["paths"].items() for method, operation in one.items()
    ]


def test_the_document_is_openapi_3_1_with_unique_ids(app: FastAPI) -> None:
    schema = app.openapi()
    assert schema["openapi"].startswith("3.1")
    ids = Counter(operation["operationId"] for _, _, operation in operations(app))
    assert [name for name, count in ids.items() if count > 1] == []
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert json.loads(json.dumps(schema)) == schema


def test_every_reference_leads_somewhere(app: FastAPI) -> None:
    schema = app.openapi()
    text = json.dumps(schema)
    names = {part.split('"', 1)[0] for part in text.split('"#/components/schemas/')[1:]}
    assert names <= set(schema["components"]["schemas"])


def test_every_operation_documents_its_problems(app: FastAPI) -> None:
    for method, path, operation in operations(app):
        place = f"{method} {path}"
        answers = operation["responses"]
        expected = {"503"}
        if operation["x-redrive-role"] != "none":
            expected |= {"401", "403", "429"}
        if "{" in path:
            expected |= {"404", "422"}
        if method != "get":
            expected |= {"409", "413", "422"}
        assert expected <= set(answers), place
        for status in expected - {"503"}:
            assert "application/problem+json" in answers[status]["content"], (place, status)
        if method == "post":
            assert any(one["name"] == "Idempotency-Key" for one in operation["parameters"]), place
        assert operation.get("description") or operation.get("summary"), place
