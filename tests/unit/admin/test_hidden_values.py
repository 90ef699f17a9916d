"""What no detour may reveal: hidden values, and what lies in others' queues."""

from collections.abc import Mapping

import httpx
import pytest

from redrive.records import Redaction, Role
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, Clock, PutLetter, Run

CARD = "4111111111111111"
"""Sixteen characters, as an id of ours has."""
REDRIVES = "/api/v1/redrives"


async def hide(store: Store, kind: str, path: str, role: Role, clock: Clock) -> None:
    await store.redactions.set(
        Redaction(id=f"r{path}", kind="body" if kind == "body" else "header", path=path, hidden_from=role),
        who="test",
        now_ms=clock(),
    )


@pytest.mark.parametrize("q", [CARD, f"body.card:{CARD}", f"header.x-card:{CARD}", f"queue:orders {CARD}"])
def test_a_filter_that_somebody_else_wrote_tells_a_viewer_no_value(
    run: Run, client_for: ClientFor, put_letter: PutLetter, q: str
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body={"card": CARD}, headers={"x-card": CARD})
        admin, viewer = await client_for(Role.ADMIN), await client_for(Role.VIEWER)
        made = (await admin.post(REDRIVES, json={"q": q})).json()
        assert (made["total"], made["selection"]) == (1, q)
        for path in (REDRIVES, f"{REDRIVES}/{made['id']}", f"/api/v1/messages/{letter.id}", "/api/v1/groups", "/dlq"):
            answer = await viewer.get(path)
            assert answer.status_code == 200
            assert CARD not in answer.text, path

    run(scenario())


def test_the_audit_tells_an_operator_no_value_that_is_hidden_from_operators(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        letters = [await put_letter(body={"card": CARD}) for _ in range(3)]
        await hide(store, "body", "card", Role.OPERATOR, clock)
        admin, operator = await client_for(Role.ADMIN), await client_for(Role.OPERATOR)
        body = {"why": "x", "q": CARD, "limit": 1}
        assert (await admin.post("/api/v1/messages/resolve", json=body)).json()["done"] == 1
        assert (await admin.post(REDRIVES, json={"q": f"body.card:{CARD}"})).status_code == 202
        patch = {"why": "x", "body": f'{{"card": "{CARD}", "more": 1}}'}
        edited = await admin.patch(f"/api/v1/messages/{letters[2].id}", json=patch, headers={"If-Match": "*"})
        assert edited.status_code == 200
        one = await operator.post(f"/api/v1/messages/{letters[1].id}/resolve", json={"why": "by hand"})
        assert one.status_code == 200
        whole, told = await admin.get("/api/v1/audit"), await operator.get("/api/v1/audit")
        assert whole.text.count(CARD) >= 3
        assert told.status_code == 200
        assert CARD not in told.text
        # What is no filter stays readable: the id of the one that was resolved by itself.
        subjects = {(entry["action"], entry["subject"]) for entry in told.json()["entries"]}
        assert ("letters.resolved", letters[1].id) in subjects

    run(scenario())


def test_who_sees_a_masked_value_can_not_write_the_mask_back(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body={"card": CARD, "n": 1}, headers={"x-card": CARD, "x-n": 1})
        await hide(store, "body", "card", Role.OPERATOR, clock)
        await hide(store, "header", "X-Card", Role.OPERATOR, clock)
        operator, admin = await client_for(Role.OPERATOR), await client_for(Role.ADMIN)
        path = f"/api/v1/messages/{letter.id}"
        before = await admin.get(path)
        shown = (await operator.get(path)).json()
        assert CARD not in str(shown)
        for change in (
            {"body": shown["body"]["content"]},
            {"body": "{}"},
            {"body": ""},
            {"set_headers": shown["headers"]},
            {"set_headers": {"X-CARD": "x"}},
            {"drop_headers": ["x-card"]},
        ):
            answer = await edit(operator, path, change)
            assert answer.status_code == 403, change
            assert CARD not in answer.text
        assert (await admin.get(path)).json() == before.json()
        # What they see they may change, and the rest stays as it is.
        assert (await edit(operator, path, {"set_headers": {"x-n": 2}})).status_code == 200
        after = (await admin.get(path)).json()
        assert after["headers"] == {"x-card": CARD, "x-n": 2}
        assert after["body"] == before.json()["body"]

    run(scenario())


async def edit(client: httpx.AsyncClient, path: str, change: Mapping[str, object]) -> httpx.Response:
    return await client.patch(path, json={"why": "x", **change}, headers={"If-Match": "*"})


def test_headers_named_as_the_typed_form_are_hidden_like_others(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        letter = await put_letter(headers={"type": CARD, "entries": CARD})
        viewer, granted = await client_for(Role.VIEWER), await client_for(Role.VIEWER, payloads=True)
        path = f"/api/v1/messages/{letter.id}"
        assert (await viewer.get(path)).json()["headers"] == {"type": None, "entries": None}
        await hide(store, "header", "type", Role.VIEWER, clock)
        assert (await granted.get(f"{path}/headers")).json()["headers"] == {"type": "[redacted]", "entries": CARD}

    run(scenario())


@pytest.mark.parametrize("change", ["resolve", "reopen", "delete"])
def test_a_change_to_many_tells_nothing_of_what_is_outside_and_changes_none_of_it(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, change: str
) -> None:
    async def scenario() -> None:
        other = await put_letter(queue="payments", dlq="payments.parked", error_message=CARD)
        operator = await client_for(Role.OPERATOR, queues=("orders*",))
        path = f"/api/v1/messages/{change}"
        by_id = await operator.post(path, json={"why": "x", "ids": [other.id, "0000000000000000"]})
        # The one of another queue and the one that never was are told alike.
        reasons = by_id.json()["refused"]
        assert by_id.json()["done"] == 0
        assert reasons[other.id] == reasons["0000000000000000"]
        for q in ("", "queue:payments", f"id:{other.id}", "error:*", "dlq:payments.parked", "not queue:orders"):
            answer = await operator.post(path, json={"why": "x", "q": q})
            assert answer.status_code in (200, 422), q
            assert answer.json().get("done", 0) == 0, q
        assert await store.letters.get(other.id) == other

    run(scenario())


def test_a_kept_answer_is_repeated_to_nobody_else(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        ada, eve = await client_for(Role.OPERATOR), await client_for(Role.OPERATOR, queues=("payments",))
        viewer = await client_for(Role.VIEWER)
        path, headers = f"/api/v1/messages/{letter.id}/resolve", {"Idempotency-Key": "k"}
        first = await ada.post(path, json={"why": "x"}, headers=headers)
        again = await ada.post(path, json={"why": "x"}, headers=headers)
        assert (first.status_code, again.status_code, again.headers["idempotency-replayed"]) == (200, 200, "true")
        for client, status in ((eve, 404), (viewer, 403)):
            answer = await client.post(path, json={"why": "x"}, headers=headers)
            assert answer.status_code == status
            assert "idempotency-replayed" not in answer.headers

    run(scenario())
