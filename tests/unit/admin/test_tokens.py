"""Tokens over the API: made, shown, revoked; a secret is in one response and nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from redrive.records import Role
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, Clock, Run, audited

NEW: dict[str, Any] = {"name": "ada", "role": "operator", "queues": ["orders*"], "expires_in_days": 1, "why": "on call"}
DAY_MS = 86_400_000


def everything_in(folder: Path) -> bytes:
    """Every byte of the database and its log."""
    return b"".join(path.read_bytes() for path in folder.glob("redrive.db*"))


def test_a_token_is_made_used_and_revoked(run: Run, client_for: ClientFor, clock: Clock, store: Store) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN, name="root")
        made = await admin.post("/api/v1/tokens", json=NEW)
        assert made.status_code == 201
        told = made.json()
        assert made.headers["location"] == f"/api/v1/tokens/{told['id']}"
        assert (told["name"], told["role"], told["queues"], told["payloads"], told["state"], told["created_by"]) == (
            *("ada", "operator", ["orders*"], True, "valid", "root"),
        )
        ada = {"Authorization": f"Bearer {told['token']}"}
        assert (await admin.get("/api/v1/messages", headers=ada)).status_code == 200
        revoked = await admin.delete(f"/api/v1/tokens/{told['id']}")
        assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
        assert (await admin.get("/api/v1/messages", headers=ada)).status_code == 401
        again = await admin.delete(f"/api/v1/tokens/{told['id']}")
        assert again.json() == revoked.json()
        assert await audited(store, "token.revoked") == [("root", told["id"], 1)]
        assert ("root", told["id"], 1) in await audited(store, "token.created")

    run(scenario())


def test_a_secret_is_in_one_answer_and_nowhere_else(
    run: Run, client_for: ClientFor, store: Store, tmp_path: Path
) -> None:
    async def scenario() -> str:
        admin = await client_for(Role.ADMIN)
        made = (await admin.post("/api/v1/tokens", json=NEW, headers={"Idempotency-Key": "k1"})).json()
        secret = str(made["token"].rsplit("_", 1)[1])
        for path in ("/api/v1/tokens", f"/api/v1/tokens/{made['id']}", "/api/v1/audit"):
            assert secret not in (await admin.get(path)).text
        again = await admin.post("/api/v1/tokens", json=NEW, headers={"Idempotency-Key": "k1"})
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == {**made, "token": None}
        assert again.headers["location"] == f"/api/v1/tokens/{made['id']}"
        return secret

    secret = run(scenario())
    assert b"on call" in everything_in(tmp_path)
    assert secret.encode() not in everything_in(tmp_path)


def test_a_token_expires(run: Run, client_for: ClientFor, clock: Clock) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN)
        made = (await admin.post("/api/v1/tokens", json=NEW)).json()
        clock.now_ms += DAY_MS
        shown = await admin.get(f"/api/v1/tokens/{made['id']}")
        assert shown.json()["state"] == "expired"
        never = await admin.post("/api/v1/tokens", json={**NEW, "name": "bot", "expires_in_days": None})
        assert never.json()["expires_at"] is None

    run(scenario())


@pytest.mark.parametrize(
    ("change", "status", "name"),
    [
        ({"name": ""}, 422, "invalid-request"),
        ({"name": "   "}, 422, "invalid-request"),
        ({"name": "a\x1b[2Jb"}, 422, "invalid-request"),
        ({"name": "x" * 101}, 422, "invalid-request"),
        ({"role": "god"}, 422, "invalid-request"),
        ({"queues": [""]}, 422, "invalid-request"),
        ({"queues": ["q" * 256]}, 422, "invalid-request"),
        ({"queues": ["q"] * 51}, 422, "invalid-request"),
        ({"expires_in_days": 0}, 422, "invalid-request"),
        ({"expires_in_days": 10**12}, 422, "invalid-request"),
        ({"is_admin": True}, 422, "invalid-request"),
        ({"name": "admin 0"}, 409, "name-taken"),
    ],
)
def test_what_is_no_token_is_not_made(
    run: Run, client_for: ClientFor, store: Store, change: dict[str, Any], status: int, name: str
) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN)
        answer = await admin.post("/api/v1/tokens", json={**NEW, **change})
        assert (answer.status_code, answer.json()["type"]) == (status, f"urn:redrive:problem:{name}")
        assert [token.name for token in await store.tokens.all()] == ["admin 0"]

    run(scenario())


@pytest.mark.parametrize("token_id", ["0000000000000000", "x", "..%2f..", "%00", "A", "x" * 65])
def test_a_token_that_is_not_there_is_not_found(run: Run, client_for: ClientFor, token_id: str) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN)
        for method in ("GET", "DELETE"):
            assert (await admin.request(method, f"/api/v1/tokens/{token_id}")).status_code in (404, 422)

    run(scenario())


def test_a_name_is_never_free_again_and_nobody_looks_like_another(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN)
        first = (await admin.post("/api/v1/tokens", json=NEW)).json()
        assert (await admin.post("/api/v1/tokens", json=NEW)).status_code == 409
        await admin.delete(f"/api/v1/tokens/{first['id']}")
        for name in (NEW["name"], NEW["name"].upper(), f"  {NEW['name']} ", NEW["name"].replace("a", "\uff41")):
            answer = await admin.post("/api/v1/tokens", json={**NEW, "name": name})
            assert (answer.status_code, answer.json()["type"]) == (409, "urn:redrive:problem:name-taken"), name
        assert (await admin.post("/api/v1/tokens", json={**NEW, "name": "somebody else"})).status_code == 201

    run(scenario())


@pytest.mark.parametrize(
    "name",
    [
        "local", "Local", "\uff2cocal", "lo\u00adcal", "retention", "auto-retry", "redrive", "redrive serve",
        "redrive x", "cli:root", "address 10.0.0.1", "collector", "system", "ada, as told by bob", "ada, as told by",
    ],
)  # fmt: skip
def test_nobody_is_named_like_redrive_itself(run: Run, client_for: ClientFor, name: str) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN)
        answer = await admin.post("/api/v1/tokens", json={**NEW, "name": name})
        assert answer.status_code == 422, answer.text

    run(scenario())


def test_the_audit_says_what_was_granted_and_by_which_token(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN, name="ada")
        new = {"name": "vic", "role": "viewer", "queues": ["orders*"], "payloads": True, "expires_in_days": None}
        assert (await admin.post("/api/v1/tokens", json=new)).status_code == 201
        (entry,), _ = await store.audit.page(1, action="token.created")
        (ada,) = [one for one in await store.tokens.all() if one.name == "ada"]
        assert (entry.who, entry.token_id) == ("ada", ada.id)
        assert entry.detail == {
            "name": "vic",
            "role": "viewer",
            "queues": ["orders*"],
            "every_queue": False,
            "payloads": True,
            "expires_at": None,
        }

    run(scenario())
