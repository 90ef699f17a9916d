"""`/api/v1/groups`: dead letters of one kind, and what people say about them. A group belongs to its failed queue."""

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
    """Groups that have dead letters, the last seen or the largest first."""
    found, following = await services_of(request).store.groups.page(
        limit=limit, cursor=cursor, state=state, queue=queue, order=order, queues=caller.queues
    )
    return json_response({"groups": [_told(one, view) for one in found], "next": following})


@router.get("/{group_id}", response_model=schemas.Group)
async def show(request: Request, caller: ViewerCaller, view: CurrentView, group_id: str) -> dict[str, Any]:
    """A group with its notes."""
    return _told(await find_group(services_of(request), caller, group_id), view)


@router.post("/{group_id}/acknowledge", response_model=schemas.Group)
async def acknowledge(
    request: Request,
    caller: OperatorCaller,
    view: CurrentView,
    group_id: str,
    asked: schemas.GroupRequest | None = None,
) -> dict[str, Any]:
    """Somebody has seen it and works on it."""
    return await _say(request, caller, view, group_id, GroupState.ACKNOWLEDGED, "" if asked is None else asked.why)


@router.post("/{group_id}/ignore", response_model=schemas.Group)
async def ignore(
    request: Request, caller: OperatorCaller, view: CurrentView, group_id: str, asked: schemas.GroupReasonRequest
) -> dict[str, Any]:
    """Nobody wants to hear of it."""
    return await _say(request, caller, view, group_id, GroupState.IGNORED, asked.why)


@router.post("/{group_id}/resolve", response_model=schemas.Group)
async def resolve(
    request: Request, caller: OperatorCaller, view: CurrentView, group_id: str, asked: schemas.GroupReasonRequest
) -> dict[str, Any]:
    """Its cause is gone; a new dead letter of the kind makes it `regressed`. Its dead letters stay as they are."""
    return await _say(request, caller, view, group_id, GroupState.RESOLVED, asked.why)


@router.post("/{group_id}/reopen", response_model=schemas.Group)
async def reopen(
    request: Request,
    caller: OperatorCaller,
    view: CurrentView,
    group_id: str,
    asked: schemas.GroupRequest | None = None,
) -> dict[str, Any]:
    """As if nobody had said anything."""
    return await _say(request, caller, view, group_id, GroupState.OPEN, "" if asked is None else asked.why)


@router.post("/{group_id}/notes", response_model=schemas.Group, status_code=201)
async def note(
    request: Request, caller: OperatorCaller, view: CurrentView, group_id: str, asked: schemas.NoteRequest
) -> dict[str, Any]:
    """Writes a note beside a group; the answer is the group with all of them."""
    services = services_of(request)
    group = await find_group(services, caller, group_id)
    return _told(await services.dead_letters.add_note(group.id, asked.text, who=caller.who), view)


async def _say(
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
    return _told(said, view)


def _told(group: Group, view: View) -> dict[str, Any]:
    return {**view.group(group_json(group)), "redacted": not view.is_whole}
