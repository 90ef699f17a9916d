"""Every operation of the API with every kind of caller: what each is answered, and that a refusal changes nothing.

`TABLE` has a line for every operation; one that is new fails until somebody has thought about who may call it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from redrive.admin import ApiSettings, Services
from redrive.records import Role
from redrive.stores import Store
from tests.unit.admin.conftest import Clock, PutLetter, Run, make_token, without_patience
from tests.unit.admin.seeding import OTHER_QUEUE, Seeded, ask, seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An operation: who may call it, with what, and what its success and its answer to another queue's token are."""

    role: str
    """As `x-redrive-role` has it."""
    path: str = ""
    """With ids of what is there; as documented where it has none."""
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    ok: int = 200
    payloads: bool = False
    every_queue: bool = False
    elsewhere: int | None = None
    """What a token for another queue is answered, where its role is enough; None: `ok`, with nothing of this queue."""


WHY = {"why": "a test"}
MATCH = (("If-Match", '"1"'),)
MARK = "only-in-orders"
"""In the error's text of dead letters that a token for another queue must not see."""
TABLE: dict[str, Row] = {
    "GET /api/v1/messages": Row(role="viewer"),
    "GET /api/v1/messages/{message_id}": Row(role="viewer", elsewhere=404),
    "PATCH /api/v1/messages/{message_id}": Row(
        role="operator", body={**WHY, "set_headers": {"x": 1}}, headers=MATCH, elsewhere=404
    ),
    "DELETE /api/v1/messages/{message_id}": Row(role="operator", ok=204, elsewhere=404),
    "GET /api/v1/messages/{message_id}/body": Row(role="viewer", payloads=True, elsewhere=404),
    "GET /api/v1/messages/{message_id}/headers": Row(role="viewer", payloads=True, elsewhere=404),
    "POST /api/v1/messages/{message_id}/resolve": Row(role="operator", body=WHY, elsewhere=404),
    "POST /api/v1/messages/{message_id}/reopen": Row(
        role="operator", path="/api/v1/messages/{resolved}/reopen", body=WHY, elsewhere=404
    ),
    "POST /api/v1/messages/{message_id}/settle": Row(
        role="operator", path="/api/v1/messages/{in_doubt}/settle", body={**WHY, "arrived": True}, elsewhere=404
    ),
    "POST /api/v1/messages/resolve": Row(role="operator", body={**WHY, "q": "queue:orders"}),
    "POST /api/v1/messages/reopen": Row(role="operator", body={**WHY, "q": "queue:orders"}),
    "POST /api/v1/messages/delete": Row(role="operator", body={**WHY, "q": "queue:orders"}),
    "GET /api/v1/groups": Row(role="viewer"),
    "GET /api/v1/groups/{group_id}": Row(role="viewer", elsewhere=404),
    "POST /api/v1/groups/{group_id}/acknowledge": Row(role="operator", body=WHY, elsewhere=404),
    "POST /api/v1/groups/{group_id}/ignore": Row(role="operator", body=WHY, elsewhere=404),
    "POST /api/v1/groups/{group_id}/resolve": Row(role="operator", body=WHY, elsewhere=404),
    "POST /api/v1/groups/{group_id}/reopen": Row(role="operator", body=WHY, elsewhere=404),
    "POST /api/v1/groups/{group_id}/notes": Row(role="operator", body={"text": "seen"}, ok=201, elsewhere=404),
    "POST /api/v1/redrives": Row(role="operator", body={"queue": "orders"}, ok=202, elsewhere=409),
    "GET /api/v1/redrives": Row(role="viewer"),
    "GET /api/v1/redrives/{redrive_id}": Row(role="viewer", elsewhere=404),
    "GET /api/v1/redrives/{redrive_id}/items": Row(role="viewer", elsewhere=404),
    "POST /api/v1/redrives/{redrive_id}/pause": Row(role="operator", elsewhere=404),
    "POST /api/v1/redrives/{redrive_id}/resume": Row(
        role="operator", path="/api/v1/redrives/{paused}/resume", elsewhere=404
    ),
    "POST /api/v1/redrives/{redrive_id}/cancel": Row(role="operator", elsewhere=404),
    "GET /api/v1/stats": Row(role="viewer"),
    "GET /api/v1/stats/timeseries": Row(role="viewer"),
    "GET /api/v1/queues": Row(role="viewer"),
    "GET /api/v1/rules": Row(role="viewer"),
    "PUT /api/v1/rules/{scope}": Row(role="operator", body=WHY, elsewhere=404),
    "DELETE /api/v1/rules/{scope}": Row(role="operator", ok=204, elsewhere=404),
    "GET /api/v1/events": Row(role="viewer"),
    "GET /api/v1/audit": Row(role="operator", every_queue=True),
    "GET /api/v1/tokens": Row(role="admin", every_queue=True),
    "POST /api/v1/tokens": Row(role="admin", body={"name": "new", "role": "viewer"}, ok=201, every_queue=True),
    "GET /api/v1/tokens/{token_id}": Row(role="admin", every_queue=True),
    "DELETE /api/v1/tokens/{token_id}": Row(role="admin", every_queue=True),
    "GET /api/v1/messages/{message_id}/preview": Row(
        role="admin", path="/api/v1/messages/{message_id}/preview?role=viewer", elsewhere=404
    ),
    "GET /api/v1/redactions": Row(role="admin", every_queue=True),
    "POST /api/v1/redactions": Row(
        role="admin", body={"kind": "header", "path": "x-user", "hidden_from": "viewer"}, ok=201, every_queue=True
    ),
    "DELETE /api/v1/redactions/{redaction_id}": Row(role="admin", ok=204, every_queue=True),
    "GET /dlq": Row(role="viewer"),
    "GET /dlq/stats": Row(role="viewer"),
    "GET /dlq/{dlq_id}": Row(role="viewer", elsewhere=404),
    "DELETE /dlq/{dlq_id}": Row(role="operator", ok=204, elsewhere=404),
    "POST /dlq/{dlq_id}/retry": Row(role="operator", ok=202, elsewhere=404),
    "POST /dlq/{dlq_id}/resolve": Row(
        role="operator", body={"resolvedBy": "ada", "resolution": "by hand"}, elsewhere=404
    ),
    "GET /admin/dlq/queues": Row(role="admin"),
    # Without a broker nobody can look at a queue, and none that is unknown can be told from one that is elsewhere.
    "GET /admin/dlq/queues/{queue}/messages": Row(role="admin", elsewhere=503),
    "POST /admin/dlq/queues/{queue}/re-drive": Row(role="admin", body={"limit": 1}, ok=202, elsewhere=503),
    "GET /healthz": Row(role="none"),
    "GET /readyz": Row(role="none", ok=503),
    "GET /metrics": Row(role="viewer"),
}
RANKS = {"viewer": 0, "operator": 1, "admin": 2}
UNKNOWN = ("none", "garbage", "expired", "revoked")
KNOWN = ("viewer", "viewer with payloads", "operator", "admin")
LIMITED = tuple(f"{one} elsewhere" for one in KNOWN)


@pytest.fixture
def settings() -> ApiSettings:
    """Beyond loopback, where /metrics needs a token too."""
    return ApiSettings(host="192.0.2.1")


@pytest.fixture
def services(services: Services, run: Run) -> Iterator[Services]:
    """As the room's, but nobody waits for the broker."""
    yield from without_patience(services, run)


@dataclass(slots=True)
class Stage:
    """The API with one of everything, and a token of each kind."""

    app: FastAPI
    services: Services
    put_letter: PutLetter
    tokens: dict[str, str]
    database: Path
    seeded: Seeded = field(default_factory=Seeded)

    async def seed(self) -> None:
        """One of everything, anew; the calls go there from now on."""
        self.seeded = await seed(self.services, self.put_letter)
        self.seeded.letters.append((await self.put_letter(body={"order": 18}, error_message=MARK)).id)

    async def call(self, label: str, caller: str) -> httpx.Response:
        """Calls an operation as its row says."""
        row, (method, documented) = TABLE[label], label.split(" ", 1)
        body = b"" if row.body is None else httpx.Request("POST", "http://x", json=row.body).content
        headers = dict(row.headers)
        if body:
            headers["Content-Type"] = "application/json"
        token = self.tokens[caller]
        if token:
            headers["Authorization"] = token
        return await ask(
            self.app,
            method,
            self._path(row.path or documented),
            headers=headers,
            body=body,
            address=self.address(label),
        )

    def address(self, label: str) -> str:
        """Where a call comes from: one place for each, or many wrong tokens from one would be slowed down."""
        return f"198.51.100.{list(TABLE).index(label)}"

    def contents(
        self, *, without: tuple[str, ...] = ("audit", "audit_head", "sqlite_sequence")
    ) -> dict[str, list[Any]]:
        """Every row of every table."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            tables = database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            ).fetchall()
            return {
                name: sorted(database.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)  # noqa: S608
                for (name,) in tables
                if name not in without
            }

    def letters_of(self, queue: str) -> list[Any]:
        """The dead letters of a failed queue, all columns."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            return database.execute("SELECT * FROM letters WHERE queue = ? ORDER BY seq", (queue,)).fetchall()

    def _path(self, path: str) -> str:
        seeded = self.seeded
        return path.format(
            message_id=seeded.letters[5],
            dlq_id=seeded.letters[5],
            in_doubt=seeded.letters[2],
            resolved=seeded.letters[3],
            group_id=seeded.groups[0],
            redrive_id=seeded.operations[0],
            paused=seeded.operations[1],
            scope="queue:orders",
            token_id=seeded.tokens[0],
            redaction_id=seeded.redactions[0],
            queue="orders.parked",
        )


@pytest.fixture
def stage(
    app: FastAPI,
    services: Services,
    store: Store,
    clock: Clock,
    put_letter: PutLetter,
    tmp_path: Path,
    run: Run,
) -> Stage:
    """The API with one of everything."""

    async def make() -> Stage:
        kinds: dict[str, dict[str, Any]] = {
            "expired": {"role": Role.ADMIN, "expires_at_ms": clock() - 1},
            "revoked": {"role": Role.ADMIN, "is_revoked": True},
            "viewer": {"role": Role.VIEWER},
            "viewer with payloads": {"role": Role.VIEWER, "payloads": True},
            "operator": {"role": Role.OPERATOR},
            "admin": {"role": Role.ADMIN},
        }
        for name in KNOWN:
            kinds[f"{name} elsewhere"] = {**kinds[name], "queues": (f"{OTHER_QUEUE}*",)}
        tokens = {"none": "", "garbage": "Bearer rd_garbage"}
        for name, kind in kinds.items():
            tokens[name] = f"Bearer {await make_token(store, name, now_ms=clock(), **kind)}"
        staged = Stage(
            app=app, services=services, put_letter=put_letter, tokens=tokens, database=tmp_path / "redrive.db"
        )
        await staged.seed()
        return staged

    made: Stage = run(make())
    return made


def expected(row: Row, caller: str) -> int:
    """What the table says this caller is answered."""
    if row.role == "none":
        return row.ok
    if caller in UNKNOWN:
        return 401
    kind = caller.removesuffix(" elsewhere")
    is_limited = kind != caller
    has_role = RANKS[kind.split()[0]] >= RANKS[row.role]
    sees_payloads = kind != "viewer"
    if not has_role or (row.payloads and not sees_payloads) or (row.every_queue and is_limited):
        return 403
    return row.ok if not is_limited or row.elsewhere is None else row.elsewhere


def test_the_table_has_a_row_for_every_operation_and_each_says_what_the_document_says(app: FastAPI) -> None:
    documented = {}
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            documented[f"{method.upper()} {path}"] = (
                operation["x-redrive-role"],
                operation.get("x-redrive-payloads", False),
                operation.get("x-redrive-every-queue", False),
            )
    assert documented == {label: (row.role, row.payloads, row.every_queue) for label, row in TABLE.items()}


@pytest.mark.parametrize("caller", [*UNKNOWN, *KNOWN, *LIMITED])
def test_a_refusal_changes_nothing_and_is_audited(run: Run, stage: Stage, store: Store, caller: str) -> None:
    async def scenario() -> None:
        refused = {label: expected(row, caller) for label, row in TABLE.items()}
        refused = {label: status for label, status in refused.items() if status in (401, 403, 404)}
        before = stage.contents()
        answered = {}
        for label in refused:
            answer = await stage.call(label, caller)
            answered[label] = answer.status_code
            assert answer.headers["content-type"] == "application/problem+json", label
            assert answer.json()["status"] == answer.status_code, label
            assert MARK not in answer.text, label
            assert answer.status_code != 401 or answer.headers["www-authenticate"] == "Bearer", label
        assert answered == refused
        assert stage.contents() == before
        # A token that is known is refused by its name, any other by its address; what is not there is no refusal.
        told = {(entry.who, entry.subject) for entry in (await store.audit.page(1_000))[0] if entry.who != "seed"}
        for label, status in refused.items():
            if status != 404:
                who = (f"address {stage.address(label)}", "api") if status == 401 else (caller, label)
                assert who in told, label

    run(scenario())


@pytest.mark.parametrize(
    "caller",
    [pytest.param(one, marks=pytest.mark.slow if one == "admin" else ()) for one in ("none", *KNOWN, *LIMITED)],
)
def test_who_may_is_answered_as_the_table_says(run: Run, stage: Stage, caller: str) -> None:
    async def scenario() -> None:
        for label, row in TABLE.items():
            status = expected(row, caller)
            if status in (401, 403, 404):
                continue
            before = stage.letters_of("orders")
            answer = await stage.call(label, caller)
            assert answer.status_code == status, (label, answer.text)
            if caller in LIMITED:
                assert MARK not in answer.text, label
                assert "orders.parked" not in answer.text.replace("/queues/orders.parked/", ""), label
                assert not [id for id in stage.seeded.letters + stage.seeded.operations if id in answer.text], label
                assert stage.letters_of("orders") == before, label
            if not label.startswith("GET"):
                await stage.seed()  # the next one shall find everything too

    run(scenario())
