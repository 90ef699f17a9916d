"""`/api/v1/messages`: found, read, edited, settled; never beyond the caller's queues or view."""

import base64
import json
from typing import Any

import httpx
import pytest

from redrive.records import DeadLetter, Redaction, Role, Status
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, Clock, PutLetter, Run, audited

MESSAGES = "/api/v1/messages"


async def put_two_queues(put_letter: PutLetter) -> tuple[DeadLetter, DeadLetter]:
    """One of `orders`, one of `payments`."""
    mine = await put_letter(body={"order": 17}, headers={"x-tenant": "acme"})
    other = await put_letter(queue="payments", dlq="payments.parked", group_id="payments-g", body={"card": 4711})
    return mine, other


def ids(answer: dict[str, Any]) -> list[str]:
    return [one["id"] for one in answer["messages"]]


def test_a_list_is_paged_by_cursor_in_both_orders(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        letters = [await put_letter() for _ in range(5)]
        client = await client_for(Role.VIEWER)
        for order, expected in (("oldest", letters), ("newest", letters[::-1])):
            seen: list[str] = []
            cursor = None
            while True:
                params: dict[str, Any] = {"limit": 2, "order": order, **({"cursor": cursor} if cursor else {})}
                page = (await client.get(MESSAGES, params=params)).json()
                seen += ids(page)
                cursor = page["next"]
                if cursor is None:
                    break
            assert seen == [one.id for one in expected]
        wrong = await client.get(MESSAGES, params={"cursor": "nonsense"})
        assert (wrong.status_code, wrong.json()["type"]) == (422, "urn:redrive:problem:invalid-request")

    run(scenario())


def test_a_filter_finds_and_an_invalid_one_is_explained(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        mine, other = await put_two_queues(put_letter)
        client = await client_for(Role.OPERATOR)
        found = (await client.get(MESSAGES, params={"q": "body.order:17"})).json()
        assert ids(found) == [mine.id]
        assert ids((await client.get(MESSAGES, params={"q": "queue:pay*"})).json()) == [other.id]
        wrong = await client.get(MESSAGES, params={"q": "que:orders"})
        assert wrong.status_code == 422
        assert wrong.json()["problems"][0]["code"] == "unknown-field"

    run(scenario())


def test_a_token_for_some_queues_finds_only_theirs(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        mine, other = await put_two_queues(put_letter)
        by_queue = await client_for(Role.ADMIN, queues=("ord*",))
        by_dlq = await client_for(Role.ADMIN, queues=("orders.parked",))
        for client in (by_queue, by_dlq):
            assert ids((await client.get(MESSAGES)).json()) == [mine.id]
            assert ids((await client.get(MESSAGES, params={"q": "queue:payments"})).json()) == []
            assert ids((await client.get(MESSAGES, params={"q": f"id:{other.id}"})).json()) == []
            assert (await client.get(f"{MESSAGES}/{mine.id}")).status_code == 200
            for path in ("", "/body", "/headers"):
                assert (await client.get(f"{MESSAGES}/{other.id}{path}")).status_code == 404

    run(scenario())


@pytest.mark.parametrize("method", ["resolve", "reopen", "settle", "delete", "patch"])
def test_a_change_outside_the_scope_is_not_found_and_changes_nothing(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, method: str
) -> None:
    async def scenario() -> None:
        _, other = await put_two_queues(put_letter)
        client = await client_for(Role.ADMIN, queues=("orders",))
        path = f"{MESSAGES}/{other.id}"
        if method == "delete":
            answer = await client.delete(path)
        elif method == "patch":
            answer = await client.patch(path, json={"body": "x", "why": "y"}, headers={"If-Match": '"1"'})
        else:
            body = {"why": "y", "arrived": True} if method == "settle" else {"why": "y"}
            answer = await client.post(f"{path}/{method}", json=body)
        assert answer.status_code == 404
        assert await store.letters.get(other.id) == other

    run(scenario())


def test_a_bulk_change_leaves_others_queues_alone(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        mine, other = await put_two_queues(put_letter)
        client = await client_for(Role.OPERATOR, queues=("orders",))
        by_filter = await client.post(f"{MESSAGES}/resolve", json={"q": "", "why": "done"})
        assert by_filter.json() == {"done": 1, "refused": {}, "not_done": {}}
        by_id = await client.post(f"{MESSAGES}/delete", json={"ids": [other.id, mine.id, "nobody"]})
        gone = "there is no such dead letter"
        assert by_id.json() == {"done": 1, "refused": {other.id: gone, "nobody": gone}, "not_done": {gone: 2}}
        assert await store.letters.get(mine.id) is None
        assert await store.letters.get(other.id) == other
        none = await client.post(f"{MESSAGES}/delete", json={"ids": [other.id]})
        assert none.json() == {"done": 0, "refused": {other.id: gone}, "not_done": {gone: 1}}
        assert await store.letters.get(other.id) == other
        entries, _ = await store.audit.page(10, action="letters.resolved")
        assert [entry.subject for entry in entries] == ["queue:orders"]

    run(scenario())


async def _change(client: httpx.AsyncClient, id: str, change: str, **more: bool) -> int:
    if change == "delete":
        return (await client.delete(f"{MESSAGES}/{id}", params=more)).status_code
    return (await client.post(f"{MESSAGES}/{id}/{change}", json={"why": "enough", **more})).status_code


def test_a_bulk_change_says_why_it_left_some_alone(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        pending = await put_letter()
        retrying = await put_letter(status=Status.RETRYING)
        client = await client_for(Role.OPERATOR)
        answer = await client.post(f"{MESSAGES}/reopen", json={"ids": [pending.id, retrying.id]})
        assert answer.json()["done"] == 0
        assert "pending already" in answer.json()["refused"][pending.id]
        assert "on its way" in answer.json()["refused"][retrying.id]
        assert sorted(answer.json()["not_done"].values()) == [1, 1]
        by_filter = (await client.post(f"{MESSAGES}/reopen", json={"q": ""})).json()
        assert (by_filter["done"], by_filter["not_done"]) == (0, answer.json()["not_done"])
        ended = await client.post(f"{MESSAGES}/resolve", json={"q": "", "why": "done", "end_waiting": True})
        assert ended.json() == {"done": 2, "refused": {}, "not_done": {}}
        for change in ("resolve", "reopen", "delete"):
            for status in (Status.RETRYING, Status.WAITING):
                one = await put_letter(status=status)
                assert await _change(client, one.id, change) == 409
                assert await _change(client, one.id, change, end_waiting=True) in (200, 204)
        for wrong in (
            {},
            {"ids": [], "q": ""},
            {"ids": [pending.id], "q": ""},
            {"q": "", "limit": 0},
            {"q": "", "x": 1},
        ):
            assert (await client.post(f"{MESSAGES}/reopen", json=wrong)).status_code == 422

    run(scenario())


def test_a_message_is_shown_whole_to_an_operator(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        letter = await put_letter(body={"order": 17}, headers={"x-tenant": "acme", "x-n": 7})
        client = await client_for(Role.OPERATOR)
        answer = await client.get(f"{MESSAGES}/{letter.id}")
        assert answer.headers["ETag"] == '"1"'
        told = answer.json()
        assert told["headers"]["x-tenant"] == "acme"
        assert told["body"] == {"encoding": "utf-8", "content": '{"order": 17}'}
        assert told["error"]["message"] == "it took too long"
        assert told["redacted"] is False
        assert [one["event"] for one in told["life"]][:1] == ["collected"]

    run(scenario())


def test_a_viewer_without_a_grant_sees_no_payload_and_can_t_search_it(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body={"card": "4711-0815"}, headers={"x-user": "ada@example.com"})
        client = await client_for(Role.VIEWER)
        answers = [await client.get(MESSAGES), await client.get(f"{MESSAGES}/{letter.id}")]
        for answer in answers:
            assert answer.status_code == 200
            for secret in ("4711", "ada@example.com", "it took too long"):
                assert secret not in answer.text
        told = answers[1].json()
        assert (told["redacted"], told["body"], told["error"]["type"]) == (True, None, "TimeoutError")
        for path in ("body", "headers"):
            assert (await client.get(f"{MESSAGES}/{letter.id}/{path}")).status_code == 403
        for q in ("body.card:4711", "header.x-user:*", "ada", "error:long"):
            assert (await client.get(MESSAGES, params={"q": q})).status_code == 403, q
        assert len(await audited(store, "access.forbidden")) == 3  # each route once a minute
        granted = await client_for(Role.VIEWER, payloads=True)
        assert (await granted.get(f"{MESSAGES}/{letter.id}/body")).status_code == 200

    run(scenario())


def test_a_body_comes_byte_for_byte_and_never_as_a_page(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        page = b"<script>alert(1)</script>\x00\xff"
        letter = await put_letter(body=page)
        client = await client_for(Role.OPERATOR)
        answer = await client.get(f"{MESSAGES}/{letter.id}/body")
        assert answer.content == page
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        whole = (await client.get(f"{MESSAGES}/{letter.id}")).json()
        assert base64.b64decode(whole["body"]["content"]) == page

    run(scenario())


def test_headers_come_with_their_types(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        letter = await put_letter(headers={"text": "a", "whole": 7, "large": 1 << 60, "double": 1.0, "list": [1, "b"]})
        client = await client_for(Role.OPERATOR)
        told = (await client.get(f"{MESSAGES}/{letter.id}/headers")).json()
        assert told["headers"]["text"] == "a"
        assert told["headers"]["whole"] == 7
        assert told["headers"]["large"] == {"type": "long-long-int", "value": str(1 << 60)}
        assert told["headers"]["double"] == {"type": "double", "value": 1.0}
        assert told["headers"]["list"] == [1, "b"]

    run(scenario())


def test_an_edit_needs_the_version_that_was_read(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body={"order": 17}, headers={"x-old": "1"})
        client = await client_for(Role.OPERATOR, name="ada")
        path = f"{MESSAGES}/{letter.id}"
        edit = {
            "body": '{"order": 18}',
            "set_headers": {"x-size": {"type": "short-int", "value": 7}},
            "drop_headers": ["x-old"],
            "why": "wrong order",
        }
        assert (await client.patch(path, json=edit)).status_code == 428
        assert (await client.patch(path, json=edit, headers={"If-Match": '"9"'})).status_code == 412
        done = await client.patch(path, json=edit, headers={"If-Match": '"1"'})
        assert (done.status_code, done.headers["ETag"], done.json()["edited"]) == (200, '"2"', True)
        assert (await client.patch(path, json=edit, headers={"If-Match": '"1"'})).status_code == 412
        now = (await client.get(path)).json()
        assert now["body"]["content"] == '{"order": 18}'
        assert now["headers"] == {"x-size": {"type": "short-int", "value": 7}}
        before = (await client.get(path, params={"original": True})).json()
        assert before["body"]["content"] == '{"order": 17}'
        entries, _ = await store.audit.page(10, action="letter.edited")
        assert [(entry.who, entry.why) for entry in entries] == [("ada", "wrong order")]

    run(scenario())


@pytest.mark.parametrize(
    "edit",
    [
        {"body": "a", "body_base64": "YQ==", "why": "w"},
        {"body_base64": "no base64!", "why": "w"},
        {"set_headers": {"x": {"type": "nothing", "value": 1}}, "why": "w"},
        {"set_headers": {"x-redriven-id": "1"}, "why": "w"},
        {"properties": {"no_such": "x"}, "why": "w"},
        {"properties": {"expiration": "1"}, "why": "w"},
        {"body": "{}", "why": "nothing changes"},
        {"body": "x", "why": "  "},
        {"body": "x"},
        {"body": "\ud800", "why": "w"},
    ],
)
def test_an_edit_that_can_t_be_made_is_refused_in_a_sentence(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, edit: dict[str, Any]
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body=b"{}")
        client = await client_for(Role.OPERATOR)
        headers = {"If-Match": '"1"', "Content-Type": "application/json"}
        answer = await client.patch(f"{MESSAGES}/{letter.id}", content=json.dumps(edit), headers=headers)
        assert answer.status_code == 422, answer.text
        assert answer.json()["detail"]
        assert await store.letters.get(letter.id) == letter

    run(scenario())


def test_who_does_not_see_all_of_a_body_can_t_overwrite_it(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body={"card": 4711}, headers={"x-user": "ada", "x-tenant": "acme"})
        for number, (kind, path) in enumerate([("body", "card"), ("header", "x-user")]):
            rule = Redaction(id=f"r{number}", kind=kind, path=path, hidden_from=Role.OPERATOR)  # type: ignore[arg-type]
            await store.redactions.set(rule, who="t", now_ms=clock())
        client = await client_for(Role.OPERATOR)
        assert "4711" not in (await client.get(f"{MESSAGES}/{letter.id}/body")).text
        for edit in ({"body": "{}"}, {"set_headers": {"X-User": "eve"}}, {"drop_headers": ["x-user"]}):
            answer = await client.patch(
                f"{MESSAGES}/{letter.id}", json={**edit, "why": "w"}, headers={"If-Match": '"1"'}
            )
            assert answer.status_code == 403, edit
        assert await store.letters.get(letter.id) == letter
        allowed = await client.patch(
            f"{MESSAGES}/{letter.id}",
            json={"set_headers": {"x-tenant": "new"}, "why": "w"},
            headers={"If-Match": '"1"'},
        )
        assert allowed.status_code == 200

    run(scenario())


def test_resolving_reopening_and_deleting_answer_the_new_version(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.OPERATOR, name="ada")
        path = f"{MESSAGES}/{letter.id}"
        assert (await client.post(f"{path}/resolve", json={"why": "w"}, headers={"If-Match": '"5"'})).status_code == 412
        done = await client.post(f"{path}/resolve", json={"why": "refunded"}, headers={"If-Match": '"1"'})
        assert (done.json()["status"], done.json()["resolved_by"], done.headers["ETag"]) == ("resolved", "ada", '"2"')
        assert (await client.post(f"{path}/reopen", json={})).json()["status"] == "pending"
        again = await client.post(f"{path}/reopen", json={})
        assert (again.status_code, again.json()["type"]) == (409, "urn:redrive:problem:refused")
        assert (await client.delete(path, headers={"If-Match": '"1"'})).status_code == 412
        gone = await client.delete(path, params={"why": "a test"})
        assert (gone.status_code, gone.content) == (204, b"")
        assert await store.letters.get(letter.id) is None
        assert (await client.delete(path)).status_code == 404
        assert [who for who, _, _ in await audited(store, "letters.deleted")] == ["ada"]

    run(scenario())


def test_a_doubt_is_settled_either_way(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        one = await put_letter(status=Status.IN_DOUBT)
        two = await put_letter(status=Status.IN_DOUBT)
        client = await client_for(Role.OPERATOR)
        settle = {"arrived": True, "why": "seen there"}
        path = f"{MESSAGES}/{one.id}/settle"
        assert (await client.post(path, json=settle, headers={"If-Match": '"7"'})).status_code == 412
        assert (await client.post(path, json=settle)).json()["status"] == "resolved"
        assert (await client.post(path, json=settle)).status_code == 409
        lost = await client.post(f"{MESSAGES}/{two.id}/settle", json={"arrived": False, "why": "not there"})
        assert lost.json()["status"] == "pending"

    run(scenario())


def test_what_is_on_its_way_can_be_neither_resolved_nor_deleted(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter(status=Status.RETRYING)
        client = await client_for(Role.OPERATOR)
        path = f"{MESSAGES}/{letter.id}"
        assert (await client.post(f"{path}/resolve", json={"why": "w"})).status_code == 409
        assert (await client.delete(path)).status_code == 409
        edit = await client.patch(path, json={"body": "x", "why": "w"}, headers={"If-Match": '"1"'})
        assert edit.status_code == 409
        assert await store.letters.get(letter.id) == letter

    run(scenario())


def test_a_path_of_a_change_to_many_takes_post_alone(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        for word in ("resolve", "reopen", "delete"):
            answer = await client.get(f"{MESSAGES}/{word}")
            assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
        for odd in ("nobody", "a%00b", "..%2f..%2fetc", "%F0%9F%92%A3", "x" * 3_000):
            assert (await client.get(f"{MESSAGES}/{odd}")).status_code == 404, odd

    run(scenario())


def test_a_viewer_changes_nothing(run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.VIEWER, payloads=True)
        path = f"{MESSAGES}/{letter.id}"
        answers = [
            await client.post(f"{path}/resolve", json={"why": "w"}),
            await client.delete(path),
            await client.patch(path, json={"body": "x", "why": "w"}, headers={"If-Match": '"1"'}),
            await client.post(f"{MESSAGES}/delete", json={"q": ""}),
        ]
        assert [answer.status_code for answer in answers] == [403] * 4
        assert await store.letters.get(letter.id) == letter

    run(scenario())
