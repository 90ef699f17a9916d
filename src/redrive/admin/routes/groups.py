"""`/api/v1/groups`: dead letters with the same cause, and what people say about them. A group belongs to its failed
queue."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from redrive.admin.access.authorization import OperatorCaller, ViewerCaller
from redrive.admin.access.caller import Caller
from redrive.admin.access.caller_view import CurrentView
from redrive.admin.json_responses import json_response
from redrive.admin.schemas import groups as schemas
from redrive.admin.scope import find_group
from redrive.admin.services import services_of
from redrive.records import Group, GroupState, View, group_json

router = APIRouter(prefix="/api/v1/groups", tags=["groups"])


@router.get("", response_model=schemas.Groups)
async def list_all(
    request: Request,
    caller: ViewerCaller,
    view: CurrentView,
    state: GroupState | None = None,
    queue: Annotated[str | None, Query(max_length=255, description="The failed queue.")] = None,
    order: Literal["last_seen", "count"] = "last_seen",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    cursor: Annotated[str | None, Query(max_length=1_000)] = None,
) -> Response:
    """Groups that have dead letters: those seen last first, or the largest first."""
    found, following = await services_of(request).store.groups.page(
        limit=limit, cursor=cursor, state=state, queue=queue, order=order, queues=caller.queues
    )
    return json_response({"groups": [_shown(one, view) for one in found], "next": following})


@router.get("/{group_id}", response_model=schemas.Group)
async def show(request: Request, caller: ViewerCaller, view: CurrentView, group_id: str) -> dict[str, Any]:
    """A group with its notes."""
    return _shown(await find_group(services_of(request), caller, group_id), view)


@router.post("/{group_id}/acknowledge", response_model=schemas.Group)
async def acknowledge(
    request: Request,
    caller: OperatorCaller,
    view: CurrentView,
    group_id: str,
    asked: schemas.GroupRequest | None = None,
) -> dict[str, Any]:
    """Marks a group as acknowledged: somebody works on it."""
    return await _set_state(
        request, caller, view, group_id, GroupState.ACKNOWLEDGED, "" if asked is None else asked.why
    )


@router.post("/{group_id}/ignore", response_model=schemas.Group)
async def ignore(
    request: Request, caller: OperatorCaller, view: CurrentView, group_id: str, asked: schemas.GroupReasonRequest
) -> dict[str, Any]:
    """Marks a group as ignored."""
    return await _set_state(request, caller, view, group_id, GroupState.IGNORED, asked.why)


@router.post("/{group_id}/resolve", response_model=schemas.Group)
async def resolve(
    request: Request, caller: OperatorCaller, view: CurrentView, group_id: str, asked: schemas.GroupReasonRequest
) -> dict[str, Any]:
    """Marks a group as resolved: its cause is gone. A new dead letter in it makes it `regressed`. Its dead letters do
    not change."""
    return await _set_state(request, caller, view, group_id, GroupState.RESOLVED, asked.why)


@router.post("/{group_id}/reopen", response_model=schemas.Group)
async def reopen(
    request: Request,
    caller: OperatorCaller,
    view: CurrentView,
    group_id: str,
    asked: schemas.GroupRequest | None = None,
) -> dict[str, Any]:
    """Opens a group again, as if nobody had given it a state."""
    return await _set_state(request, caller, view, group_id, GroupState.OPEN, "" if asked is None else asked.why)


@router.post("/{group_id}/notes", response_model=schemas.Group, status_code=201)
async def note(
    request: Request, caller: OperatorCaller, view: CurrentView, group_id: str, asked: schemas.NoteRequest
) -> dict[str, Any]:
    """Adds a note to a group. The response is the group with all its notes."""
    services = services_of(request)
    group = await find_group(services, caller, group_id)
    return _shown(await services.dead_letters.add_note(group.id, asked.text, who=caller.who), view)


async def _set_state(
    request: Request, caller: Caller, view: View, group_id: str, state: GroupState, why: str
) -> dict[str, Any]:
    services = services_of(request)
    group = await find_group(services, caller, group_id)
    dead_letters, who = services.dead_letters, caller.who
    match state:
        case GroupState.ACKNOWLEDGED:
            said = await dead_letters.acknowledge_group(group.id, who=who, why=why)
        case GroupState.IGNORED:
            said = await dead_letters.ignore_group(group.id, who=who, why=why)
        case GroupState.RESOLVED:
            said = await dead_letters.resolve_group(group.id, who=who, why=why)
        case _:
            said = await dead_letters.reopen_group(group.id, who=who, why=why)
    return _shown(said, view)


def _shown(group: Group, view: View) -> dict[str, Any]:
    return {**view.group(group_json(group)), "redacted": not view.is_whole}
