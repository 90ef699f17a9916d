"""A database that fails in the middle of a request: the response does not claim that nothing was done."""

from typing import Any

import pytest

from redrive.records import Role
from redrive.stores import Store, StoreUnavailable
from redrive.stores.letters import changes as changing
from tests.unit.admin.conftest import ClientFor, PutLetter, Run

GONE = StoreUnavailable("the database", "it went", "try again")


class TestADatabaseThatGoesInTheMiddle:
    def test_a_stored_retry_is_answered_202(
        self, run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario() -> None:
            letter = await put_letter()
            client = await client_for(Role.OPERATOR)
            create = store.operations.create

            async def create_and_go(*arguments: Any, **options: Any) -> Any:
                operation = await create(*arguments, **options)
                monkeypatch.setattr(store.letters, "get", gone)
                return operation

            monkeypatch.setattr(store.operations, "create", create_and_go)
            answer = await client.post(f"/dlq/{letter.id}/retry")
            operations, _ = await store.operations.page(10)
            assert answer.status_code == 202
            assert [one.id for one in operations] == [answer.json()["operation"]]

        run(scenario())

    def test_a_change_of_many_does_not_say_that_nothing_was_done(
        self, run: Run, client_for: ClientFor, put_letter: PutLetter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario() -> None:
            for _ in range(3):
                await put_letter()
            apply, turns = changing._apply, iter(range(9))

            async def apply_once(*arguments: Any, **options: Any) -> int:
                if next(turns):
                    raise GONE
                return await apply(*arguments, **options)

            monkeypatch.setattr(changing, "PIECE", 1)
            monkeypatch.setattr(changing, "_apply", apply_once)
            client = await client_for(Role.OPERATOR)
            answer = await client.post("/api/v1/messages/resolve", json={"q": "", "why": "refunded"})
            listed = (await client.get("/api/v1/messages")).json()["messages"]
            assert sorted(one["status"] for one in listed) == ["pending", "pending", "resolved"]
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
            assert answer.json()["type"] == "urn:redrive:problem:store-unavailable"
            assert "some may be changed" in answer.json()["detail"]

        run(scenario())


async def gone(*arguments: object, **options: object) -> Any:
    raise GONE
