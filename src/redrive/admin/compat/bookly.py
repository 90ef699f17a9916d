"""`/dlq`: the endpoints of Bookly's runbook; its curl commands work as they are written.

The same dead letters as under /api/v1, in Bookly's words: an event has a topic, a service and an event type. Statuses
are in upper case, and read in any case.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from redrive.admin.access.access_audit import audit_payload_read
from redrive.admin.access.authorization import OperatorCaller, ViewerCaller
from redrive.admin.access.caller_view import CurrentView, visible_content
from redrive.admin.compat.bookly_schemas import (
    BooklyStats,
    Entries,
    Entry,
    ResolveEntryRequest,
    Retried,
    WholeEntry,
    in_camel_case,
)
from redrive.admin.json_responses import json_response, yielding_to_requests
from redrive.admin.problems import conflict, invalid
from redrive.admin.redrive_operations import operation_key, start_redrive, wait_ended, why_none_sent
from redrive.admin.scope import find_letter
from redrive.admin.services import CurrentServices, Services
from redrive.admin.unindexed_searches import search_slot
from redrive.records import (
    AS_TOLD_BY,
    IN_FLIGHT,
    DeadLetter,
    Filter,
    NameTerm,
    NewOperation,
    OperationKind,
    Selection,
    Status,
    Term,
    TimeTerm,
    View,
    letter_json,
    too_many_stars,
)
from redrive.stores import StoreUnavailable

router = APIRouter(prefix="/dlq", tags=["Bookly"])

_RETRY_S_MAX = 3.0
_VALUES_MAX = 100
"""Of one parameter."""
_RETRIED = "retried by hand"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@router.get("", response_model=Entries, summary="List dead letters")
async def list_entries(
    request: Request,
    caller: ViewerCaller,
    view: CurrentView,
    services: CurrentServices,
    status: Annotated[
        list[str] | None,
        Query(max_length=_VALUES_MAX, description="Repeatable, or several with commas; in any case."),
    ] = None,
    topic: Annotated[
        list[str] | None, Query(max_length=_VALUES_MAX, description="Repeatable; `*` stands for anything.")
    ] = None,
    service: Annotated[list[str] | None, Query(max_length=_VALUES_MAX)] = None,
    event_type: Annotated[list[str] | None, Query(max_length=_VALUES_MAX, alias="eventType")] = None,
    queue: Annotated[
        list[str] | None, Query(max_length=_VALUES_MAX, description="The failed queue or the DLQ.")
    ] = None,
    since: Annotated[datetime | None, Query(alias="from", description="Dead from then on, ISO 8601.")] = None,
    until: Annotated[datetime | None, Query(alias="to", description="Dead before then, ISO 8601.")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    cursor: Annotated[str | None, Query(max_length=1_000)] = None,
) -> Response:
    """The dead letters of the caller's queues, the most recently dead first."""
    terms = _status_terms(status)
    if topic:
        terms.append(NameTerm(field="topic", values=_checked("topic", topic)))
    if service:
        terms.append(NameTerm(field="service", values=_checked("service", service)))
    if event_type:
        terms.append(NameTerm(field="type", values=_checked("eventType", event_type)))
    if queue:
        terms.append(NameTerm(field="queue", values=_checked("queue", queue)))
    if since is not None or until is not None:
        terms.append(TimeTerm(field="dead", from_ms=_ms(since), until_ms=_ms(until)))
    too_dear = too_many_stars(terms)
    if too_dear is not None:
        raise invalid(f"{too_dear}; write the names out, or ask several times")
    asked = Filter((*caller.scope_terms(), *terms))
    async with search_slot(request, caller, asked):
        page = await services.dead_letters.list(asked, limit=limit, cursor=cursor)
    items = [in_camel_case(entry_of(one, view)) async for one in yielding_to_requests(page.letters)]
    return json_response({"items": items, "nextCursor": page.next_cursor})


@router.get("/stats", response_model=BooklyStats, summary="Count dead letters")
async def get_stats(caller: ViewerCaller, services: CurrentServices) -> Response:
    """How many there are, by status, topic, service and event type."""
    stats = await services.dead_letters.get_stats(Filter(caller.scope_terms()))
    counts = {
        "total": stats.total,
        "by_status": {status.upper(): stats.by_status.get(status, 0) for status in map(str, Status)},
        "by_topic": _in_upper_case(stats.by_topic),
        "by_service": _in_upper_case(stats.by_service),
        "by_event_type": _in_upper_case(stats.by_type),
        "partial": stats.is_partial,
    }
    return json_response(in_camel_case(counts))


@router.get("/{dlq_id}", response_model=WholeEntry, summary="One dead letter with its message")
async def get_entry(dlq_id: str, caller: ViewerCaller, view: CurrentView, services: CurrentServices) -> dict[str, Any]:
    """A dead letter with its payload and headers, as far as the caller may see them."""
    letter = await find_letter(services, caller, dlq_id)
    await audit_payload_read(services, caller, view, letter.id, letter.queue)
    return {**entry_of(letter, view), **await content_of(services, view, letter.id)}


@router.post("/{dlq_id}/retry", response_model=Retried, status_code=202, summary="Send one back")
async def retry(
    dlq_id: str,
    caller: OperatorCaller,
    view: CurrentView,
    services: CurrentServices,
    request: Request,
    response: Response,
) -> dict[str, Any]:
    """Sends a dead letter to the queue it failed in, and answers with its state then; its auto-retry starts again. A
    resolved one is reopened first. 409 while a copy of it is on its way, or a waiting or running operation will send
    one."""
    letter = await find_letter(services, caller, dlq_id)
    if letter.status in IN_FLIGHT:
        raise conflict(
            "on-its-way", f"dead letter {letter.id} is on its way already; wait until it comes back or settles"
        )
    selection = Selection(ids=(letter.id,))
    if letter.status is Status.RESOLVED:
        await services.dead_letters.reopen(selection, who=caller.who, why=_RETRIED)
    new = NewOperation(
        kind=OperationKind.REDRIVE,
        selection=selection,
        who=caller.who,
        why=_RETRIED,
        queues=caller.queues,
        token_id=caller.token_id,
        idempotency_key=operation_key(request, caller),
    )
    started = await start_redrive(services, new)
    # One message takes milliseconds: the response should show the result.
    operation = started.operation
    if not started.note:
        operation = await wait_ended(services, operation, patience_s=_RETRY_S_MAX)
    response.headers["Location"] = f"/api/v1/redrives/{operation.id}"
    try:
        found = await services.store.letters.get(letter.id)
    except StoreUnavailable:
        found = None  # it is on its way nevertheless: a client that got an error would send it again
    shown = entry_of(letter if found is None else found, view)
    note = operation.note or started.note or await why_none_sent(services, operation)
    return {**shown, "operation": operation.id, "note": note}


@router.post("/{dlq_id}/resolve", response_model=Entry, summary="Mark one as resolved")
async def resolve(
    dlq_id: str, asked: ResolveEntryRequest, caller: OperatorCaller, view: CurrentView, services: CurrentServices
) -> dict[str, Any]:
    """Marks a dead letter as resolved. The audit has the token's name, and beside it the name in the request."""
    letter = await find_letter(services, caller, dlq_id)
    claimed = asked.resolved_by.strip()
    resolved = await services.dead_letters.resolve_manually(
        letter.id, caller.who, asked.resolution, on_behalf_of=None if claimed == caller.who else claimed
    )
    return entry_of(resolved, view)


@router.delete("/{dlq_id}", status_code=204, summary="Delete one for good")
async def remove(dlq_id: str, caller: OperatorCaller, services: CurrentServices) -> None:
    """Deletes a dead letter for good; only the audit still has it."""
    letter = await find_letter(services, caller, dlq_id)
    await services.dead_letters.remove(letter.id, who=caller.who)


def entry_of(letter: DeadLetter, view: View) -> dict[str, Any]:
    """A dead letter in Bookly's words, as the view shows it."""
    shown = view.letter(letter_json(letter))
    is_resolved = letter.status is Status.RESOLVED
    resolved_by = shown["resolved_by"]
    return {
        "id": shown["id"],
        "status": str(letter.status).upper(),
        "event_id": shown["message_id"],
        "event_type": shown["type"],
        "topic": shown["routing_key"],
        "service": shown["service"],
        "queue": shown["queue"],
        "dlq": shown["dlq"],
        "correlation_id": shown["correlation_id"],
        "error": _error_text(shown["error"]),
        "reason": shown["reason"],
        "attempts": shown["attempts"],
        "retry_count": shown["redrives"],
        "failed_at": shown["dead_at"],
        "created_at": shown["collected_at"],
        "updated_at": shown["updated_at"],
        "next_retry_at": shown["due_at"],
        "status_reason": shown["status_reason"],
        "resolved_by": None if resolved_by is None else resolved_by.rpartition(AS_TOLD_BY)[0] or resolved_by,
        "resolution": shown["status_reason"] if is_resolved else None,
        "redacted": shown["redacted"],
    }


async def content_of(services: Services, view: View, letter_id: str) -> dict[str, Any]:
    """A dead letter's message as the view shows it; nulls if it is gone."""
    content = await services.store.letters.content(letter_id)
    if content is None:
        return {"payload": None, "payload_encoding": None, "headers": None, "properties": None}
    return payload_of(await visible_content(view, content))


def payload_of(shown: dict[str, Any]) -> dict[str, Any]:
    """What a view shows of a message, by the field names of both documents."""
    return {
        "payload": shown["body"],
        "payload_encoding": shown["body_encoding"],
        "headers": shown["headers"],
        "properties": shown["properties"],
    }


def _status_terms(asked: list[str] | None) -> list[Term]:
    words = list(dict.fromkeys(_split(asked)))
    known = [str(status) for status in Status]
    for word in words:
        if word.lower() not in known:
            raise invalid(f"there is no such status; write {', '.join(known).upper()}")
    return [NameTerm(field="status", values=tuple(word.lower() for word in words))] if words else []


def _checked(name: str, values: list[str]) -> tuple[str, ...]:
    if any(_UNSTORABLE.search(value) for value in values):
        raise invalid(f"{name} has a character that no stored text has")
    return tuple(values)


def _split(values: list[str] | None) -> list[str]:
    return [word.strip() for value in values or () for word in value.split(",") if word.strip()]


def _ms(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _in_upper_case(counts: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {key: {status.upper(): n for status, n in by.items()} for key, by in counts.items()}


def _error_text(error: dict[str, Any] | None) -> str | None:
    if error is None:
        return None
    parts: Iterable[str | None] = (error["type"], error["message"])
    code = None if error["status_code"] is None else f"status {error['status_code']}"
    return ": ".join(part for part in parts if part) or code
