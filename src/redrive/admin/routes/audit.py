"""`/api/v1/audit`: who did what to which messages, when, why.

Entries belong to no queue, so a token for some queues may not read them.
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
_FILTERED = "letters."
"""Begins actions whose subject may be a filter's text; it is an id where `ids` has it."""


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
    """The audit trail, the newest first. Entries are never changed."""
    entries, following = await services_of(request).store.audit.page(
        limit, cursor=cursor, who=who, action=action, subject=subject
    )
    return {"entries": [_told(one, view) for one in entries], "next": following}


def _told(entry: AuditEntry, view: View) -> dict[str, Any]:
    """An entry without what its reader may not see: the difference of an edit is payload, a filter may name some."""
    told = audit_json(entry)
    detail = dict(entry.detail)
    if isinstance(detail.get("diff"), str):
        detail["diff"] = view.payload_text(detail["diff"])
    if entry.action.startswith(_FILTERED) and entry.subject not in detail.get("ids", ()):
        told["subject"] = visible_selection_text(view, entry.subject)
    if isinstance(detail.get("selection"), str):
        detail["selection"] = visible_selection_text(view, detail["selection"])
    return {**told, "detail": detail}
