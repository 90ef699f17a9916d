"""`/api/v1/rules`: auto-retry rules, within the caller's queues."""

from typing import Any

import pytest

from redrive.records import Role
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, PutLetter, Run, audited

RULES = "/api/v1/rules"


def test_a_rule_is_set_listed_and_forgotten(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.OPERATOR, name="ada")
        rule = {"attempts": 5, "first_ms": 10_000, "max_ms": 600_000, "why": "flaky"}
        done = await client.put(f"{RULES}/queue:orders", json=rule)
        assert done.json() == {
            "scope": "queue:orders",
            "enabled": True,
            "attempts": 5,
            "first_ms": 10_000,
            "max_ms": 600_000,
            "settle_ms": 600_000,
            "declared": False,
        }
        assert (await client.get(RULES)).json() == {"rules": [done.json()]}
        due = await store.letters.get(letter.id)
        assert due is not None
        assert due.due_at_ms == letter.dead_at_ms + 10_000
        assert await audited(store, "rule.set") == [("ada", "queue:orders", 0)]
        assert await audited(store, "rule.applied") == [("ada", "queue:orders", 1)]
        assert (await client.delete(f"{RULES}/queue:orders")).status_code == 204
        assert (await client.delete(f"{RULES}/queue:orders")).status_code == 404
        assert (await client.get(RULES)).json() == {"rules": []}

    run(scenario())


def test_names_of_queues_with_slashes_are_taken_whole(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        client = await client_for(Role.OPERATOR)
        for name in ("a/b", "a%2Fc", "*", "x:y"):
            assert (await client.put(f"{RULES}/queue:{name}", json={})).status_code == 200
        assert [one.scope for one in await store.rules.all()] == ["queue:*", "queue:a/b", "queue:a/c", "queue:x:y"]

    run(scenario())


def test_a_limited_token_rules_its_own_queues_alone(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        await put_letter()
        await put_letter(queue="payments", dlq="payments.parked", group_id="cards")
        admin = await client_for(Role.ADMIN)
        scopes = ("*", "queue:orders", "queue:payments", "group:timeouts", "group:cards")
        for scope in scopes:
            assert (await admin.put(f"{RULES}/{scope}", json={"enabled": False})).status_code == 200
        client = await client_for(Role.OPERATOR, queues=("orders",))
        listed = (await client.get(RULES)).json()["rules"]
        assert [one["scope"] for one in listed] == ["*", "group:timeouts", "queue:orders"]
        statuses = {}
        for scope in scopes:
            put = await client.put(f"{RULES}/{scope}", json={"enabled": True})
            deleted = await client.delete(f"{RULES}/{scope}")
            statuses[scope] = (put.status_code, deleted.status_code)
        assert statuses == {
            "*": (403, 403),
            "queue:orders": (403, 403),  # an admin has set it
            "queue:payments": (404, 404),
            "group:timeouts": (403, 403),
            "group:cards": (404, 404),
        }
        assert [(one.scope, one.enabled) for one in await store.rules.all()] == [
            (scope, False) for scope in sorted(scopes)
        ]
        refused = await client.delete(f"{RULES}/queue:orders")
        assert "a token with more queues" in refused.json()["detail"]
        for scope in ("queue:orders", "group:timeouts"):
            assert (await admin.delete(f"{RULES}/{scope}")).status_code == 204
            assert (await client.put(f"{RULES}/{scope}", json={"enabled": True})).status_code == 200
            other = await client_for(Role.OPERATOR, queues=("orders",))
            assert (await other.put(f"{RULES}/{scope}", json={"enabled": False})).status_code == 200
            assert (await client.delete(f"{RULES}/{scope}")).status_code == 204

    run(scenario())


@pytest.mark.parametrize(
    ("scope", "rule", "status"),
    [
        ("orders", {}, 422),
        ("queue:", {}, 422),
        ("vhost:x", {}, 422),
        ("group:nobody", {}, 404),
        ("*", {"attempts": 0}, 422),
        ("*", {"first_ms": 2, "max_ms": 1}, 422),
        ("*", {"settle_ms": 10**18}, 422),
        ("*", {"unknown": 1}, 422),
    ],
)
def test_a_rule_that_can_t_be_is_refused(
    run: Run, client_for: ClientFor, store: Store, scope: str, rule: dict[str, Any], status: int
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.OPERATOR)
        assert (await client.put(f"{RULES}/{scope}", json=rule)).status_code == status
        assert await store.rules.all() == ()

    run(scenario())


def test_a_viewer_reads_rules_and_changes_none(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.VIEWER)
        assert (await client.get(RULES)).status_code == 200
        assert (await client.put(f"{RULES}/*", json={})).status_code == 403
        assert (await client.delete(f"{RULES}/*")).status_code == 403

    run(scenario())
