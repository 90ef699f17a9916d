"""The same request twice is done once, and answered alike; to the same token only."""

import asyncio

import pytest

from redrive.admin.middleware.idempotency import KEY_CHARACTERS_MAX
from redrive.records import Role
from redrive.stores import Store, StoreUnavailable
from redrive.stores.idempotent_responses import KEPT_MS, STALE_MS, IdempotentResponses
from tests.unit.admin.conftest import ClientFor, Clock, Noted, Run

PATH = "/api/v1/redactions"
NEW = {"kind": "body", "path": "customer.card", "hidden_from": "viewer"}
KEY = {"Idempotency-Key": "one"}


async def set_how_often(store: Store) -> int:
    entries, _ = await store.audit.page(100, action="redaction.set")
    return len(entries)


def test_the_same_key_and_body_is_done_once(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        first = await client.post(PATH, json=NEW, headers=KEY)
        second = await client.post(PATH, json=NEW, headers=KEY)
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.content == second.content
        assert "idempotency-replayed" not in first.headers
        assert second.headers["idempotency-replayed"] == "true"
        assert second.headers["content-type"] == first.headers["content-type"]
        assert await set_how_often(store) == 1

    run(scenario())


def test_without_a_key_it_is_done_twice(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        for _ in range(2):
            assert (await client.post(PATH, json=NEW)).status_code == 201
        assert await set_how_often(store) == 2

    run(scenario())


def test_another_body_path_or_query_with_the_key_is_refused(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        await client.post(PATH, json=NEW, headers=KEY)
        for path, body in (
            (PATH, {**NEW, "hidden_from": "operator"}),
            (f"{PATH}?x=1", NEW),
            ("/api/v1/tokens", NEW),
        ):
            answer = await client.post(path, json=body, headers=KEY)
            assert (answer.status_code, answer.json()["type"]) == (422, "urn:redrive:problem:idempotency-key-reused")
        assert await set_how_often(store) == 1

    run(scenario())


def test_a_key_is_its_token_s_own(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        first, second = await client_for(Role.ADMIN), await client_for(Role.ADMIN)
        await first.post(PATH, json=NEW, headers=KEY)
        answer = await second.post(PATH, json={**NEW, "path": "other"}, headers=KEY)
        assert (answer.status_code, answer.json()["path"]) == (201, "other")

    run(scenario())


def test_a_kept_answer_is_not_for_a_token_that_is_revoked(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        await client.post(PATH, json=NEW, headers=KEY)
        (token,) = await store.tokens.all()
        await store.tokens.revoke(token.id, who="x", now_ms=0)
        assert (await client.post(PATH, json=NEW, headers=KEY)).status_code == 401

    run(scenario())


def test_many_at_once_are_done_once(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        answers = await asyncio.gather(*(client.post(PATH, json=NEW, headers=KEY) for _ in range(10)))
        assert {one.status_code for one in answers} <= {201, 409}
        assert {one.json().get("type") for one in answers} <= {None, "urn:redrive:problem:in-flight"}
        assert await set_how_often(store) == 1

    run(scenario())


def test_one_in_flight_is_waited_for_and_taken_over_after_a_minute(
    run: Run, client_for: ClientFor, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object, **__: object) -> None:
        raise StoreUnavailable("x", "gone", "try again")

    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        # A process that dies between the reservation and the answer.
        with monkeypatch.context() as patch:
            patch.setattr(type(store.redactions), "set", dies)
            patch.setattr(IdempotentResponses, "release", dies)
            assert (await client.post(PATH, json=NEW, headers=KEY)).status_code == 503
        answer = await client.post(PATH, json=NEW, headers=KEY)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:redrive:problem:in-flight")
        clock.now_ms += STALE_MS
        assert (await client.post(PATH, json=NEW, headers=KEY)).status_code == 201
        assert await set_how_often(store) == 1

    run(scenario())


def test_a_refusal_releases_the_key(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        refused = await client.post(PATH, json={**NEW, "hidden_from": "nobody"}, headers=KEY)
        assert refused.status_code == 422
        assert (await client.post(PATH, json=NEW, headers=KEY)).status_code == 201

    run(scenario())


def test_a_server_error_releases_the_key(
    run: Run, client_for: ClientFor, store: Store, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the secret payload")

    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        with monkeypatch.context() as patch:
            patch.setattr(type(store.redactions), "set", breaks)
            assert (await client.post(PATH, json=NEW, headers=KEY)).status_code == 500
        assert (await client.post(PATH, json=NEW, headers=KEY)).status_code == 201

    run(scenario())


def test_what_is_done_is_answered_even_if_the_answer_can_t_be_kept(
    run: Run, client_for: ClientFor, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> None:
        raise StoreUnavailable("x", "gone", "try again")

    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        monkeypatch.setattr(IdempotentResponses, "keep", gone)
        assert (await client.post(PATH, json=NEW, headers=KEY)).status_code == 201
        assert "admin.answer_not_kept" in noted.names()

    run(scenario())


def test_a_day_later_the_key_is_new(run: Run, client_for: ClientFor, store: Store, clock: Clock) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        await client.post(PATH, json=NEW, headers=KEY)
        clock.now_ms += KEPT_MS + 1
        answer = await client.post(PATH, json={**NEW, "hidden_from": "operator"}, headers=KEY)
        assert (answer.status_code, answer.json()["hidden_from"]) == (201, "operator")

    run(scenario())


@pytest.mark.parametrize("key", ["", "   ", "x" * (KEY_CHARACTERS_MAX + 1), "é", "a\x00b"])
def test_what_can_t_be_a_key_is_refused_and_nothing_done(
    run: Run, client_for: ClientFor, store: Store, key: str
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        answer = await client.post(PATH, json=NEW, headers=[(b"Idempotency-Key", key.encode())])
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:redrive:problem:invalid-request")
        assert await set_how_often(store) == 0

    run(scenario())


def test_keys_count_for_posts_only(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        for _ in range(2):
            answer = await client.get(PATH, headers=KEY)
            assert "idempotency-replayed" not in answer.headers

    run(scenario())
