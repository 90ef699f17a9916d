"""Redactions: which values of messages are hidden from which roles."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from redrive.admin.access.authorization import UnscopedAdminCaller
from redrive.admin.schemas.redactions import NewRedaction, RedactionList, RedactionShape
from redrive.admin.services import services_of
from redrive.records import Redaction, check_redaction_path

router = APIRouter(prefix="/api/v1/redactions", tags=["redactions"])

RedactionId = Annotated[str, Path(min_length=1, max_length=64, pattern="^[0-9a-z]+$", examples=["1hv7d2m9x0abcdef"])]
Why = Annotated[str, Query(max_length=2000, description="For the audit.")]


@router.get("")
async def list_all(request: Request, caller: UnscopedAdminCaller) -> RedactionList:
    """All redactions."""
    found = await services_of(request).store.redactions.all()
    return RedactionList(redactions=[_shape(one) for one in found])


@router.post("", status_code=201)
async def create(request: Request, caller: UnscopedAdminCaller, new: NewRedaction) -> RedactionShape:
    """Hides a value from a role and the roles below it. A path that is hidden already gets the new role."""
    services = services_of(request)
    redaction = Redaction(
        id=services.new_id(), kind=new.kind, path=check_redaction_path(new.kind, new.path), hidden_from=new.hidden_from
    )
    stored = await services.store.redactions.set(redaction, who=caller.who, now_ms=services.clock_ms(), why=new.why)
    return _shape(stored)


@router.delete("/{redaction_id}", status_code=204)
async def remove(request: Request, caller: UnscopedAdminCaller, redaction_id: RedactionId, why: Why = "") -> None:
    """Removes a redaction: everybody who sees payloads sees the value again."""
    services = services_of(request)
    await services.store.redactions.remove(redaction_id, who=caller.who, now_ms=services.clock_ms(), why=why)


def _shape(redaction: Redaction) -> RedactionShape:
    return RedactionShape(id=redaction.id, kind=redaction.kind, path=redaction.path, hidden_from=redaction.hidden_from)
