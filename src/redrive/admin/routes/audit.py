"""`/api/v1/audit`: who did what to which messages, when, why.

Entries belong to no queue, so a token that is limited to some queues may not read them.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from redrive.admin.access.authorization import Requires
from redrive.admin.access.caller import Caller
from redrive.admin.access.caller_view import CurrentView
from redrive.admin.redrive_operations import visible_selection_text
from redrive.admin.schemas.audit import AuditTrail
from redrive.admin.services import services_of
from redrive.records import AuditEntry, Role, View, audit_json

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])

UnscopedOperatorCaller = Annotated[Caller, Depends(Requires(role=Role.OPERATOR, every_queue=True))]
_FILTER_ACTIONS = "letters."
"""Prefix of actions whose subject may be the text of a filter. It is an id if `ids` contains it."""


@router.get("", response_model=AuditTrail)
async def list_all(
    request: Request,
    caller: UnscopedOperatorCaller,
    view: CurrentView,
    who: Annotated[str | None, Query(max_length=1_000)] = None,
    action: Annotated[str | None, Query(max_length=1_000, examples=["letters.deleted"])] = None,
    subject: Annotated[str | None, Query(max_length=1_000, description="An id, a filter, a queue.")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    cursor: Annotated[str | None, Query(max_length=1_000)] = None,
) -> dict[str, Any]:
    """The audit trail, newest first. Entries never change."""
    entries, following = await services_of(request).store.audit.page(
        limit, cursor=cursor, who=who, action=action, subject=subject
    )
    return {"entries": [_shown(one, view) for one in entries], "next": following}


def _shown(entry: AuditEntry, view: View) -> dict[str, Any]:
    """An entry without what its reader may not see: the diff of an edit is payload, and a filter may name some."""
    shown = audit_json(entry)
    detail = dict(entry.detail)
    if isinstance(detail.get("diff"), str):
        detail["diff"] = view.payload_text(detail["diff"])
    if entry.action.startswith(_FILTER_ACTIONS) and entry.subject not in detail.get("ids", ()):
        shown["subject"] = visible_selection_text(view, entry.subject)
    if isinstance(detail.get("selection"), str):
        detail["selection"] = visible_selection_text(view, detail["selection"])
    return {**shown, "detail": detail}
