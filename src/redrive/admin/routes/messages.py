"""`/api/v1/messages`: find, read, edit, resolve, reopen and delete dead letters; one, or many at once.

The caller's view decides what is shown, the caller's scope what is found.
"""

import base64
import binascii
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request, Response

from redrive.admin.access.access_audit import audit_payload_read
from redrive.admin.access.authorization import AdminCaller, OperatorCaller, PayloadCaller, ViewerCaller, audit_forbidden
from redrive.admin.access.caller import Caller
from redrive.admin.access.caller_view import CurrentView, visible_content
from redrive.admin.etags import IfMatch, etag, expected_version, required_version
from redrive.admin.json_responses import json_response, yielding_to_requests
from redrive.admin.problems import conflict, invalid, not_found, unavailable
from redrive.admin.schemas import messages as schemas
from redrive.admin.schemas.base import FILTER_CHARACTERS_MAX
from redrive.admin.scope import GONE, LetterQuery, check_in_scope, find_letter, is_id, scoped_filter, select_letters
from redrive.admin.services import services_of
from redrive.admin.unindexed_searches import search_slot
from redrive.deadletters import LetterEdit
from redrive.records import (
    DeadLetter,
    LetterEvent,
    MessageContent,
    Role,
    Selection,
    View,
    attempt_json,
    letter_json,
    lifecycle_json,
    moment_json,
    trial_redaction,
)
from redrive.stores import ChangeResult, StoreUnavailable, VersionConflict, WholeLetter, redact_body
from redrive.wiring import describe_content, headers_from_json

router = APIRouter(prefix="/api/v1/messages", tags=["messages"])

_BULK = frozenset({"resolve", "reopen", "delete"})
_ETAG = {"ETag": {"description": "Its version, for If-Match.", "schema": {"type": "string"}}}
_TAGGED: dict[int | str, dict[str, Any]] = {200: {"headers": _ETAG}}
_RAW: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The body, byte for byte, but for what is hidden from the caller's role.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "X-Redrive-Redacted": {"description": "`true` where something is hidden.", "schema": {"type": "string"}}
        },
    }
}
Original = Annotated[bool, Query(description="As it was collected, before edits.")]


class _Raw(Response):
    media_type = "application/octet-stream"


@router.get("", response_model=schemas.Messages)
async def list_all(
    request: Request,
    caller: ViewerCaller,
    view: CurrentView,
    q: Annotated[
        str,
        Query(
            max_length=FILTER_CHARACTERS_MAX,
            description="The filter grammar.",
            examples=["queue:orders error:Timeout dead:>2h"],
        ),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    cursor: Annotated[str | None, Query(max_length=1_000, description="`next` of the page before.")] = None,
    order: Literal["newest", "oldest"] = "newest",
) -> Response:
    """Dead letters by the time they died; a search for words orders them by the time they were stored."""
    asked = await scoped_filter(request, caller, view, q)
    async with search_slot(request, caller, asked):
        page = await services_of(request).dead_letters.list(
            asked, limit=limit, cursor=cursor, newest_first=order == "newest"
        )
    letters = [view.letter(letter_json(one)) async for one in yielding_to_requests(page.letters)]
    return json_response({"messages": letters, "next": page.next_cursor, "partial": page.is_partial})


@router.get("/{message_id}", response_model=schemas.WholeMessage, responses=_TAGGED)
async def show(
    request: Request,
    caller: ViewerCaller,
    view: CurrentView,
    message_id: str,
    original: Original = False,
) -> Response:
    """Everything about a dead letter: its attempts, its life, typed headers, body."""
    _refuse_bulk(message_id)
    found = (
        await services_of(request).store.letters.whole(message_id, edited=not original) if is_id(message_id) else None
    )
    if found is None:
        raise not_found("dead letter", message_id)
    await check_in_scope(services_of(request), caller, found.letter)
    await audit_payload_read(services_of(request), caller, view, found.letter.id, found.letter.queue)
    return json_response(await whole_message(found, view), headers={"ETag": etag(found.letter.version)})


async def whole_message(found: WholeLetter, view: View) -> dict[str, Any]:
    """Everything about a dead letter, as a view shows it."""
    whole = {
        **letter_json(found.letter),
        "stack": found.letter.stack,
        "history": [attempt_json(one) for one in found.history],
        "life": [lifecycle_json(one) for one in found.lifecycle],
        "past": [{"at": moment_json(one.at_ms), "redrives": one.redrives} for one in found.earlier_contents],
    }
    shown = await visible_content(view, found.content)
    body = None if shown["body"] is None else {"encoding": shown["body_encoding"], "content": shown["body"]}
    shown_letter = view.letter(whole)
    redacted = shown_letter["redacted"] or shown["redacted"]
    return {
        **shown_letter,
        "properties": shown["properties"],
        "headers": shown["headers"],
        "body": body,
        "body_hidden": shown["body_hidden"],
        "redacted": redacted,
    }


@router.get("/{message_id}/body", response_class=_Raw, responses=_RAW)
async def show_body(
    request: Request, caller: PayloadCaller, view: CurrentView, message_id: str, original: Original = False
) -> Response:
    """The body alone, as bytes, as a download: a browser must never show it as a page of this API."""
    letter, content = await _content(request, caller, message_id, original=original)
    shown = await redact_body(view, content.body)
    body = shown.body
    if body is None:
        raise await audit_forbidden(request, caller, f"the body of this message is hidden from your role: {shown.why}")
    await audit_payload_read(services_of(request), caller, view, letter.id, letter.queue)
    headers = {
        "Content-Disposition": f'attachment; filename="{letter.id}.bin"',
        "X-Content-Type-Options": "nosniff",
        "ETag": etag(letter.version),
        "X-Redrive-Redacted": "true" if body != content.body else "false",
    }
    return _Raw(body, headers=headers)


@router.get("/{message_id}/headers", response_model=schemas.Properties, responses=_TAGGED)
async def show_headers(
    request: Request,
    response: Response,
    caller: PayloadCaller,
    view: CurrentView,
    message_id: str,
    original: Original = False,
) -> dict[str, Any]:
    """Properties and headers with their AMQP types."""
    letter, content = await _content(request, caller, message_id, original=original)
    await audit_payload_read(services_of(request), caller, view, letter.id, letter.queue)
    described = describe_content(content)
    properties, headers = view.properties(described.properties), view.headers(described.headers)
    is_redacted = properties != described.properties or headers != described.headers
    response.headers["ETag"] = etag(letter.version)
    return {"properties": properties, "headers": headers, "redacted": is_redacted}


@router.get("/{message_id}/preview", response_model=schemas.WholeMessage)
async def preview(
    request: Request,
    caller: AdminCaller,
    view: CurrentView,
    message_id: str,
    role: Annotated[Role, Query(description="Whose view.")],
    payloads: Annotated[bool, Query(description="Whether a viewer is granted payloads.")] = False,
    hide_body: Annotated[
        list[str] | None, Query(max_length=50, description="As if these paths were hidden from the role too.")
    ] = None,
    hide_header: Annotated[list[str] | None, Query(max_length=50, description="The same of headers.")] = None,
) -> Response:
    """A dead letter as a role would see it, by the redactions as they are and by further ones that are only tried."""
    services = services_of(request)
    found = await services.store.letters.whole(message_id) if is_id(message_id) else None
    if found is None:
        raise not_found("dead letter", message_id)
    await check_in_scope(services, caller, found.letter)
    await audit_payload_read(services, caller, view, found.letter.id, found.letter.queue)
    tried = [
        *(trial_redaction("body", one, role) for one in hide_body or ()),
        *(trial_redaction("header", one, role) for one in hide_header or ()),
    ]
    redactions = [*await services.store.redactions.all(), *tried]
    sees_payloads = payloads or role.includes(Role.OPERATOR)
    # A preview must not show more than the caller sees: some values may be hidden from admins too.
    own = [one for one in redactions if one.hidden_from.includes(caller.role)]
    others = [replace(one, hidden_from=role) for one in own if not one.hidden_from.includes(role)]
    shown = View.of_role(role, sees_payloads=sees_payloads, redactions=[*redactions, *others])
    return json_response(await whole_message(found, shown))


@router.patch("/{message_id}", response_model=schemas.Message, responses=_TAGGED)
async def edit(
    request: Request,
    response: Response,
    caller: OperatorCaller,
    view: CurrentView,
    message_id: str,
    asked: schemas.EditRequest,
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Changes the body, headers or properties that a redrive will send; the original and the difference are kept."""
    version = required_version(if_match)
    letter, content = await _content(request, caller, message_id)
    _check_version(letter, version)
    change = _read_edit(asked)
    await _check_hidden(request, caller, view, content, change)
    # Even with `If-Match: *` only the version that was checked is changed: a hidden value may have come in between.
    edited = await services_of(request).dead_letters.edit(
        letter.id, change, who=caller.who, why=asked.why, if_version=letter.version
    )
    return _shown(edited, view, response)


@router.post("/{message_id}/resolve", response_model=schemas.Message, responses=_TAGGED)
async def resolve(
    request: Request,
    response: Response,
    caller: OperatorCaller,
    view: CurrentView,
    message_id: str,
    asked: schemas.ResolveRequest,
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Marks a dead letter as resolved: nothing more is to be done about it."""
    letter, version = await _letter(request, caller, message_id), expected_version(if_match)
    selection = Selection(ids=(letter.id,), ends_waiting=asked.end_waiting)
    changed = await services_of(request).dead_letters.resolve(
        selection, who=caller.who, why=asked.why, if_version=version
    )
    return await _after(request, response, caller, view, letter.id, changed)


@router.post("/{message_id}/reopen", response_model=schemas.Message, responses=_TAGGED)
async def reopen(
    request: Request,
    response: Response,
    caller: OperatorCaller,
    view: CurrentView,
    message_id: str,
    asked: schemas.ReopenRequest | None = None,
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Makes a failed, doubtful or resolved dead letter pending again."""
    letter, version = await _letter(request, caller, message_id), expected_version(if_match)
    wanted = schemas.ReopenRequest() if asked is None else asked
    selection = Selection(ids=(letter.id,), ends_waiting=wanted.end_waiting)
    changed = await services_of(request).dead_letters.reopen(
        selection, who=caller.who, why=wanted.why, if_version=version
    )
    return await _after(request, response, caller, view, letter.id, changed)


@router.post("/{message_id}/settle", response_model=schemas.Message, responses=_TAGGED)
async def settle(
    request: Request,
    response: Response,
    caller: OperatorCaller,
    view: CurrentView,
    message_id: str,
    asked: schemas.SettleRequest,
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Decides a dead letter in doubt: resolved if its copy arrived, else pending again."""
    letter, version = await _letter(request, caller, message_id), expected_version(if_match)
    _check_version(letter, version)
    resolved = await services_of(request).dead_letters.resolve_doubt(
        letter.id, arrived=asked.arrived, who=caller.who, why=asked.why
    )
    return _shown(resolved, view, response)


@router.delete("/{message_id}", status_code=204, response_class=Response)
async def remove(
    request: Request,
    caller: OperatorCaller,
    message_id: str,
    why: Annotated[str, Query(max_length=2_000, description="For the audit.")] = "",
    end_waiting: Annotated[bool, Query(description=schemas.END_WAITING)] = False,
    if_match: IfMatch = None,
) -> Response:
    """Deletes a dead letter for good; only the audit still has it."""
    letter, version = await _letter(request, caller, message_id), expected_version(if_match)
    selection = Selection(ids=(letter.id,), ends_waiting=end_waiting)
    changed = await services_of(request).dead_letters.delete(selection, who=caller.who, why=why, if_version=version)
    _require(letter.id, changed)
    return Response(status_code=204)


@router.post("/resolve", response_model=schemas.Changed)
async def resolve_many(
    request: Request, caller: OperatorCaller, view: CurrentView, asked: schemas.ResolveManyRequest
) -> dict[str, Any]:
    """Marks these as resolved. Those that are being sent are left alone."""
    return await _change_many(request, caller, view, asked, LetterEvent.RESOLVED, asked.why)


@router.post("/reopen", response_model=schemas.Changed)
async def reopen_many(
    request: Request, caller: OperatorCaller, view: CurrentView, asked: schemas.ChangeManyRequest
) -> dict[str, Any]:
    """Makes failed, doubtful and resolved ones pending again."""
    return await _change_many(request, caller, view, asked, LetterEvent.REOPENED, asked.why)


@router.post("/delete", response_model=schemas.Changed)
async def remove_many(
    request: Request, caller: OperatorCaller, view: CurrentView, asked: schemas.ChangeManyRequest
) -> dict[str, Any]:
    """Deletes these for good; only the audit still has them. Those that are being sent are left alone."""
    return await _change_many(request, caller, view, asked, LetterEvent.DELETED, asked.why)


def _refuse_bulk(id: str) -> None:
    if id in _BULK:
        # This is the path of a change to many, which takes POST only.
        raise HTTPException(405, headers={"Allow": "POST"})


async def _letter(request: Request, caller: Caller, id: str) -> DeadLetter:
    _refuse_bulk(id)
    return await find_letter(services_of(request), caller, id)


async def _content(
    request: Request, caller: Caller, id: str, *, original: bool = False
) -> tuple[DeadLetter, MessageContent]:
    letter = await _letter(request, caller, id)
    content = await services_of(request).store.letters.content(letter.id, edited=not original)
    if content is None:
        raise not_found("dead letter", id)
    return letter, content


def _check_version(letter: DeadLetter, version: int | None) -> None:
    if version is not None and version != letter.version:
        raise VersionConflict(letter.id, version, letter.version)


def _read_edit(asked: schemas.EditRequest) -> LetterEdit:
    """The edit a request asks for. Raises `HttpProblem` 422, `InvalidEdit`."""
    body = None if asked.body is None else asked.body.encode()
    if asked.body_base64 is not None:
        try:
            body = base64.b64decode(asked.body_base64, validate=True)
        except (binascii.Error, ValueError):
            raise invalid("body_base64 is no base64") from None
    return LetterEdit(
        body=body,
        set_headers=headers_from_json(asked.set_headers),
        drop_headers=tuple(asked.drop_headers),
        properties=asked.properties,
    )


async def _check_hidden(
    request: Request, caller: Caller, view: View, content: MessageContent, change: LetterEdit
) -> None:
    """Raises `HttpProblem` 403 if the edit would overwrite values the caller can't see."""
    if change.body is not None and (await redact_body(view, content.body)).body != content.body:
        reason = "parts of this body are hidden from your role, and a new body would overwrite them"
        raise await audit_forbidden(request, caller, reason)
    for name in (*change.set_headers, *change.drop_headers):
        if view.hides_header(name):
            raise await audit_forbidden(
                request, caller, f"the header {name} is hidden from your role; it can't be edited"
            )


async def _change_many(
    request: Request, caller: Caller, view: View, asked: schemas.LettersRequest, event: LetterEvent, why: str
) -> dict[str, Any]:
    query = LetterQuery(ids=asked.ids, q=asked.q or "", limit=asked.limit, include_in_doubt=asked.include_in_doubt)
    scoped = await select_letters(request, caller, view, query)
    dead_letters = services_of(request).dead_letters
    selection = replace(scoped.selection, ends_waiting=asked.end_waiting)
    try:
        async with search_slot(request, caller, selection.filter):
            if event is LetterEvent.RESOLVED:
                changed = await dead_letters.resolve(selection, who=caller.who, why=why)
            elif event is LetterEvent.REOPENED:
                changed = await dead_letters.reopen(selection, who=caller.who, why=why)
            else:
                changed = await dead_letters.delete(selection, who=caller.who, why=why)
    except StoreUnavailable as error:
        # Many are changed in several transactions.
        reason = f"the database can't be used now ({error.reason})"
        detail = f"{reason}; some may be changed and others not, as the audit shows; ask again"
        raise unavailable("store-unavailable", "The database can't be used now", detail) from None
    refused = {id: reason for id, reason in changed.refused.items() if asked.ids is not None and id in asked.ids}
    refused |= dict.fromkeys(scoped.outside, GONE)
    not_done = changed.not_done if asked.ids is None else dict(Counter(refused.values()))
    return {"done": changed.done, "refused": refused, "not_done": not_done}


async def _after(
    request: Request, response: Response, caller: Caller, view: View, id: str, changed: ChangeResult
) -> dict[str, Any]:
    _require(id, changed)
    return _shown(await _letter(request, caller, id), view, response)


def _require(id: str, changed: ChangeResult) -> None:
    reason = changed.refused.get(id)
    if reason == GONE:
        raise not_found("dead letter", id)
    if reason is not None:
        raise conflict("refused", f"dead letter {id}: {reason}")


def _shown(letter: DeadLetter, view: View, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = etag(letter.version)
    return view.letter(letter_json(letter))
