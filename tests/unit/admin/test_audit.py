"""`/api/v1/audit`: who did what; for operators of every queue."""

from typing import Any

from redrive.records import Redaction, Role, Status
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, Clock, PutLetter, Run

AUDIT = "/api/v1/audit"
MESSAGES = "/api/v1/messages"


def test_the_trail_is_paged_and_narrowed(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        letters = [await put_letter() for _ in range(3)]
        client = await client_for(Role.OPERATOR, name="ada")
        for letter in letters:
            await client.post(f"{MESSAGES}/{letter.id}/resolve", json={"why": "done"})
        seen: list[str] = []
        cursor = None
        while True:
            params: dict[str, Any] = {
                "limit": 1,
                "action": "letters.resolved",
                **({"cursor": cursor} if cursor else {}),
            }
            page = (await client.get(AUDIT, params=params)).json()
            seen += [one["subject"] for one in page["entries"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert seen == [letter.id for letter in letters[::-1]]
        by_subject = (await client.get(AUDIT, params={"subject": letters[0].id, "who": "ada"})).json()
        assert [(one["who"], one["why"]) for one in by_subject["entries"]] == [("ada", "done")]
        assert (await client.get(AUDIT, params={"who": "nobody"})).json() == {"entries": [], "next": None}
        assert (await client.get(AUDIT, params={"cursor": "x"})).status_code == 422

    run(scenario())


def test_neither_viewers_nor_tokens_for_some_queues_read_it(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        for client in (
            await client_for(Role.VIEWER, payloads=True),
            await client_for(Role.ADMIN, queues=("orders",)),
        ):
            assert (await client.get(AUDIT)).status_code == 403

    run(scenario())


def test_what_is_hidden_from_a_role_is_not_in_its_trail(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body={"card": 4711})
        await put_letter(body={"card": 4712}, status=Status.RESOLVED)
        rule = Redaction(id="r1", kind="body", path="card", hidden_from=Role.OPERATOR)
        admin, operator = await client_for(Role.ADMIN), await client_for(Role.OPERATOR)
        edit = {"body": '{"card": 9999}', "why": "w"}
        edited = await admin.patch(f"{MESSAGES}/{letter.id}", json=edit, headers={"If-Match": '"1"'})
        assert edited.status_code == 200
        done = await admin.post(f"{MESSAGES}/reopen", json={"q": "body.card:4712"})
        assert done.json()["done"] == 1
        await store.redactions.set(rule, who="t", now_ms=clock())
        seen, hidden = (await admin.get(AUDIT)).text, (await operator.get(AUDIT)).text
        assert "4712" in seen
        assert "9999" in seen
        for value in ("4711", "4712", "9999"):
            assert value not in hidden

    run(scenario())
