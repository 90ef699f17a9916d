"""Attempts to get round a token's scope, one entry for every operation of the API.

The attacker's token is for one queue, `MINE`; each attack tries to reach `THEIRS`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from redrive.records import (
    DeadLetter,
)

MINE, MY_DLQ = "orders", "orders.parked"
THEIRS, THEIR_DLQ = "payments", "payments.parked"
Call: TypeAlias = tuple[str, str, Any]
"""Method, path, body."""


@dataclass(slots=True)
class Ids:
    """What there is. Each attack finds everything anew."""

    mine: str = ""
    edited: str = ""
    """Of my dead-letter queue; an operator has edited where it says it came from."""
    forged: str = ""
    """Of my dead-letter queue, and says that it failed in theirs."""
    theirs: str = ""
    claimed: str = ""
    """Of their dead-letter queue, and says that it failed in mine."""
    my_group: str = ""
    forged_group: str = ""
    their_group: str = ""
    claimed_group: str = ""
    their_operation: str = ""
    whole_operation: str = ""
    """Made by an admin of letters that are mine, to their queue; paused."""
    token: str = ""
    redaction: str = "0000000000000000"
    letters: dict[str, DeadLetter] = field(default_factory=dict)


WHY = {"why": "an attack"}


def _each(path: str, body: Any = None, *, method: str = "POST") -> Callable[[Ids], list[Call]]:
    """The call on each letter that is not, or not quite, the attacker's."""

    def calls(ids: Ids) -> list[Call]:
        return [(method, path.format(one), body) for one in (ids.theirs, ids.claimed, ids.forged)]

    return calls


def _groups(path: str, body: Any = None, *, method: str = "POST") -> Callable[[Ids], list[Call]]:
    def calls(ids: Ids) -> list[Call]:
        return [(method, path.format(one), body) for one in (ids.their_group, ids.claimed_group, ids.forged_group)]

    return calls


def _gets(*paths: str) -> Callable[[Ids], list[Call]]:
    return lambda ids: [("GET", path, None) for path in paths]


def _many(path: str) -> Callable[[Ids], list[Call]]:
    def calls(ids: Ids) -> list[Call]:
        named = [ids.theirs, ids.claimed, ids.forged]
        questions = ("", f"queue:{THEIRS}", f"queue:{MINE}", f"dlq:{THEIR_DLQ}", f"vhost:/ -queue:{MINE}")
        return [("POST", path, {**WHY, "ids": named}), *(("POST", path, {**WHY, "q": q}) for q in questions)]

    return calls


def _redrives(ids: Ids) -> list[Call]:
    selections: list[dict[str, Any]] = [
        {"ids": [ids.mine, ids.edited, ids.forged, ids.theirs, ids.claimed]},
        {"queue": THEIRS},
        {"queue": MINE},
        {"q": f"dlq:{THEIR_DLQ}"},
        {"q": ""},
        {"group": ids.forged_group},
        {"group": ids.claimed_group},
        {"group": ids.their_group},
    ]
    targets: list[dict[str, Any]] = [
        {},
        {"target": {"exchange": "", "routing_key": THEIRS}},
        {"target": {"exchange": "", "routing_key": "{queue}"}},
        {"target": {"exchange": "events", "routing_key": "any"}},
        {"target": {"exchange": "", "routing_key": THEIR_DLQ}},
        {"target": {"exchange": "{queue}"}},
        {"target": {"exchange": "", "routing_key": MY_DLQ}},
        {"dry_run": True, "target": {"exchange": "", "routing_key": THEIRS}},
    ]
    return [("POST", "/api/v1/redrives", {**one, **to}) for one in selections for to in targets]


def _edits(ids: Ids) -> list[Call]:
    body = {**WHY, "set_headers": {"x-original-queue": THEIRS, "x-original-routing-key": THEIRS}}
    edits: list[Call] = [("PATCH", f"/api/v1/messages/{one}", body) for one in (ids.edited, ids.theirs, ids.claimed)]
    marks = {**WHY, "set_headers": {"x-redriven-id": ids.theirs, "x-redriven-count": 0, "x-redriven-mark": "x"}}
    edits.append(("PATCH", f"/api/v1/messages/{ids.mine}", marks))
    return [*edits, ("POST", "/api/v1/redrives", {"ids": [ids.edited]}), ("POST", f"/dlq/{ids.edited}/retry", None)]


def _rules(ids: Ids) -> list[Call]:
    scopes = ("*", f"queue:{THEIRS}", f"queue:{MINE}", *(f"group:{one}" for one in _group_ids(ids)))
    rule = {**WHY, "attempts": 5, "first_ms": 1_000, "max_ms": 1_000}
    return [("PUT", f"/api/v1/rules/{scope}", rule) for scope in scopes]


def _group_ids(ids: Ids) -> tuple[str, ...]:
    return (ids.my_group, ids.forged_group, ids.their_group, ids.claimed_group)


def _operations(path: str) -> Callable[[Ids], list[Call]]:
    method = "POST" if path.count("/") > 1 and not path.endswith(("items", "}")) else "GET"
    return lambda ids: [(method, path.format(one), None) for one in (ids.their_operation, ids.whole_operation)]


ATTACKS: dict[str, Callable[[Ids], list[Call]]] = {
    "GET /api/v1/messages": _gets(
        "/api/v1/messages", f"/api/v1/messages?q=queue:{MINE}", f"/api/v1/messages?q=queue:{THEIRS}"
    ),
    "GET /api/v1/messages/{message_id}": _each("/api/v1/messages/{}", method="GET"),
    "PATCH /api/v1/messages/{message_id}": _edits,
    "DELETE /api/v1/messages/{message_id}": _each("/api/v1/messages/{}", method="DELETE"),
    "GET /api/v1/messages/{message_id}/body": _each("/api/v1/messages/{}/body", method="GET"),
    "GET /api/v1/messages/{message_id}/preview": _each("/api/v1/messages/{}/preview?role=viewer", method="GET"),
    "GET /api/v1/messages/{message_id}/headers": _each("/api/v1/messages/{}/headers", method="GET"),
    "POST /api/v1/messages/{message_id}/resolve": _each("/api/v1/messages/{}/resolve", WHY),
    "POST /api/v1/messages/{message_id}/reopen": _each("/api/v1/messages/{}/reopen", WHY),
    "POST /api/v1/messages/{message_id}/settle": _each("/api/v1/messages/{}/settle", {**WHY, "arrived": True}),
    "POST /api/v1/messages/resolve": _many("/api/v1/messages/resolve"),
    "POST /api/v1/messages/reopen": _many("/api/v1/messages/reopen"),
    "POST /api/v1/messages/delete": _many("/api/v1/messages/delete"),
    "GET /api/v1/groups": _gets("/api/v1/groups", f"/api/v1/groups?queue={THEIRS}", f"/api/v1/groups?queue={MINE}"),
    "GET /api/v1/groups/{group_id}": _groups("/api/v1/groups/{}", method="GET"),
    "POST /api/v1/groups/{group_id}/acknowledge": _groups("/api/v1/groups/{}/acknowledge", WHY),
    "POST /api/v1/groups/{group_id}/ignore": _groups("/api/v1/groups/{}/ignore", WHY),
    "POST /api/v1/groups/{group_id}/resolve": _groups("/api/v1/groups/{}/resolve", WHY),
    "POST /api/v1/groups/{group_id}/reopen": _groups("/api/v1/groups/{}/reopen", WHY),
    "POST /api/v1/groups/{group_id}/notes": _groups("/api/v1/groups/{}/notes", {"text": "seen"}),
    "POST /api/v1/redrives": _redrives,
    "GET /api/v1/redrives": _gets("/api/v1/redrives"),
    "GET /api/v1/redrives/{redrive_id}": _operations("/api/v1/redrives/{}"),
    "GET /api/v1/redrives/{redrive_id}/items": _operations("/api/v1/redrives/{}/items"),
    "POST /api/v1/redrives/{redrive_id}/pause": _operations("/api/v1/redrives/{}/pause"),
    "POST /api/v1/redrives/{redrive_id}/resume": _operations("/api/v1/redrives/{}/resume"),
    "POST /api/v1/redrives/{redrive_id}/cancel": _operations("/api/v1/redrives/{}/cancel"),
    "GET /api/v1/stats": _gets("/api/v1/stats"),
    "GET /api/v1/stats/timeseries": _gets("/api/v1/stats/timeseries"),
    "GET /api/v1/queues": _gets("/api/v1/queues"),
    "GET /api/v1/rules": _gets("/api/v1/rules"),
    "PUT /api/v1/rules/{scope}": _rules,
    "DELETE /api/v1/rules/{scope}": lambda ids: [
        ("DELETE", f"/api/v1/rules/{scope}", None)
        for scope in ("*", f"queue:{THEIRS}", f"queue:{MINE}", f"group:{ids.their_group}", f"group:{ids.claimed_group}")
    ],
    "GET /api/v1/events": _gets("/api/v1/events"),
    "GET /api/v1/audit": _gets("/api/v1/audit"),
    "GET /api/v1/tokens": _gets("/api/v1/tokens"),
    "POST /api/v1/tokens": lambda ids: [("POST", "/api/v1/tokens", {"name": "wide", "role": "admin"})],
    "GET /api/v1/tokens/{token_id}": lambda ids: [("GET", f"/api/v1/tokens/{ids.token}", None)],
    "DELETE /api/v1/tokens/{token_id}": lambda ids: [("DELETE", f"/api/v1/tokens/{ids.token}", None)],
    "GET /api/v1/redactions": _gets("/api/v1/redactions"),
    "POST /api/v1/redactions": lambda ids: [
        ("POST", "/api/v1/redactions", {"kind": "header", "path": "x", "hidden_from": "viewer"})
    ],
    "DELETE /api/v1/redactions/{redaction_id}": lambda ids: [("DELETE", f"/api/v1/redactions/{ids.redaction}", None)],
    "GET /dlq": _gets("/dlq", f"/dlq?queue={MINE}", f"/dlq?queue={THEIRS}"),
    "GET /dlq/stats": _gets("/dlq/stats"),
    "GET /dlq/{dlq_id}": _each("/dlq/{}", method="GET"),
    "DELETE /dlq/{dlq_id}": _each("/dlq/{}", method="DELETE"),
    "POST /dlq/{dlq_id}/retry": _each("/dlq/{}/retry"),
    "POST /dlq/{dlq_id}/resolve": _each("/dlq/{}/resolve", {"resolvedBy": "ada", "resolution": "by hand"}),
    "GET /admin/dlq/queues": _gets("/admin/dlq/queues"),
    "GET /admin/dlq/queues/{queue}/messages": _gets(
        f"/admin/dlq/queues/{THEIR_DLQ}/messages", f"/admin/dlq/queues/{MY_DLQ}/messages"
    ),
    "POST /admin/dlq/queues/{queue}/re-drive": lambda ids: [
        ("POST", f"/admin/dlq/queues/{dlq}/re-drive", {"limit": 10}) for dlq in (THEIR_DLQ, MY_DLQ)
    ],
    "GET /healthz": _gets("/healthz"),
    "GET /readyz": _gets("/readyz"),
    "GET /metrics": _gets("/metrics"),
}
