"""`/api/v1/groups`: listed and changed within the caller's queues."""

from typing import Any

import pytest

from redrive.records import GroupState, Role
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, PutLetter, Run, audited

GROUPS = "/api/v1/groups"


async def put_groups(put_letter: PutLetter) -> None:
    """Two of `orders`, one of `payments`."""
    for group, queue, count in (("timeouts", "orders", 3), ("crashes", "orders", 1), ("cards", "payments", 2)):
        for _ in range(count):
            await put_letter(queue=queue, dlq=f"{queue}.parked", group_id=group, title="Boom: card N was refused")


def test_groups_are_listed_in_both_orders_with_cursors(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_groups(put_letter)
        client = await client_for(Role.OPERATOR)
        for order, expected in (
            ("count", ["timeouts", "cards", "crashes"]),
            ("last_seen", ["cards", "crashes", "timeouts"]),
        ):
            seen: list[str] = []
            cursor = None
            while True:
                params: dict[str, Any] = {"limit": 1, "order": order, **({"cursor": cursor} if cursor else {})}
                page = (await client.get(GROUPS, params=params)).json()
                seen += [one["id"] for one in page["groups"]]
                cursor = page["next"]
                if cursor is None:
                    break
            assert seen == expected
        one = (await client.get(f"{GROUPS}/timeouts")).json()
        assert (one["count"], one["by_status"], one["title"]) == (3, {"pending": 3}, "Boom: card N was refused")

    run(scenario())


def test_a_token_for_some_queues_sees_only_their_groups(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        await put_groups(put_letter)
        client = await client_for(Role.ADMIN, queues=("ord*", "other"))
        seen: list[str] = []
        cursor = None
        while True:
            params: dict[str, Any] = {"limit": 1, **({"cursor": cursor} if cursor else {})}
            page = (await client.get(GROUPS, params=params)).json()
            seen += [one["id"] for one in page["groups"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert seen == ["crashes", "timeouts"]
        assert (await client.get(GROUPS, params={"queue": "payments"})).json()["groups"] == []
        assert (await client.get(f"{GROUPS}/cards")).status_code == 404
        for word in ("acknowledge", "ignore", "resolve", "reopen"):
            assert (await client.post(f"{GROUPS}/cards/{word}", json={"why": "w"})).status_code == 404
        assert (await client.post(f"{GROUPS}/cards/notes", json={"text": "t"})).status_code == 404
        group = await store.groups.get("cards")
        assert group is not None
        assert (group.state, group.notes) == (GroupState.OPEN, ())

    run(scenario())


@pytest.mark.parametrize(
    ("word", "state"),
    [("acknowledge", "acknowledged"), ("ignore", "ignored"), ("resolve", "resolved"), ("reopen", "open")],
)
def test_what_people_say_about_a_group_is_kept_with_who_and_why(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, word: str, state: str
) -> None:
    async def scenario() -> None:
        await put_groups(put_letter)
        client = await client_for(Role.OPERATOR, name="ada")
        said = await client.post(f"{GROUPS}/timeouts/{word}", json={"why": "because"})
        assert (said.status_code, said.json()["state"]) == (200, state)
        shown = (await client.get(f"{GROUPS}/timeouts")).json()["said"]
        assert (shown["state"], shown["who"], shown["why"]) == (state, "ada", "because")
        assert await audited(store, f"group.{state}") == [("ada", "timeouts", 3)]
        assert (await client.post(f"{GROUPS}/nobody/{word}", json={"why": "w"})).status_code == 404

    run(scenario())


def test_ignoring_and_resolving_need_a_reason(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_groups(put_letter)
        client = await client_for(Role.OPERATOR)
        for word in ("ignore", "resolve"):
            for wrong in ({}, {"why": " "}):
                assert (await client.post(f"{GROUPS}/timeouts/{word}", json=wrong)).status_code == 422
        for wrong in ({}, {"text": ""}, {"text": "\n"}):
            assert (await client.post(f"{GROUPS}/timeouts/notes", json=wrong)).status_code == 422

    run(scenario())


def test_a_note_is_written_beside_a_group(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_groups(put_letter)
        client = await client_for(Role.OPERATOR, name="ada")
        noted = await client.post(f"{GROUPS}/timeouts/notes", json={"text": "ticket 4711"})
        assert noted.status_code == 201
        assert [(one["who"], one["text"]) for one in noted.json()["notes"]] == [("ada", "ticket 4711")]
        assert (await client.get(f"{GROUPS}/timeouts")).json() == noted.json()

    run(scenario())


def test_a_viewer_without_a_grant_sees_the_type_and_not_the_message(
    run: Run, client_for: ClientFor, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        await put_groups(put_letter)
        client = await client_for(Role.VIEWER)
        for answer in (await client.get(GROUPS), await client.get(f"{GROUPS}/timeouts")):
            assert answer.status_code == 200
            assert "card N" not in answer.text
        one = (await client.get(f"{GROUPS}/timeouts")).json()
        assert (one["title"], one["redacted"]) == ("TimeoutError", True)
        assert (await client.post(f"{GROUPS}/timeouts/acknowledge", json={})).status_code == 403

    run(scenario())
