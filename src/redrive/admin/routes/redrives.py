"""`/api/v1/redrives`: send dead letters back, as operations that can be watched, paused, resumed and cancelled.

An operation is accepted whether or not the broker can be reached. While it can't, the operation waits and its note says
so.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from redrive.admin.access.authorization import OperatorCaller, ViewerCaller, audit_forbidden
from redrive.admin.access.caller import Caller
from redrive.admin.access.caller_view import CurrentView
from redrive.admin.problems import HttpProblem
from redrive.admin.redrive_operations import operation_key, operation_view, start_redrive, why_none_sent
from redrive.admin.schemas import redrives as schemas
from redrive.admin.scope import CurrentScope, LetterQuery, find_group, select_letters
from redrive.admin.services import Services, services_of
from redrive.admin.unindexed_searches import search_slot
from redrive.client import ClientError
from redrive.deadletters import RedrivePlan
from redrive.records import (
    ItemState,
    NameTerm,
    NewOperation,
    Operation,
    OperationKind,
    OperationState,
    RedriveTarget,
    Term,
    View,
    item_json,
)
from redrive.stores import IdempotencyConflict

router = APIRouter(prefix="/api/v1/redrives", tags=["redrives"])

_QUEUE = "{queue}"
_CREATED: dict[int | str, dict[str, Any]] = {
    200: {"model": schemas.Plan, "description": "A dry run: what would be sent where. Nothing was changed."},
    202: {
        "model": schemas.Redrive,
        "description": "It is stored and will be run.",
        "headers": {"Location": {"description": "Where to watch it.", "schema": {"type": "string"}}},
    },
    404: {"description": "There is no such group, or it is not of the token's queues."},
}


@router.post("", status_code=202, response_model=schemas.Redrive, responses=_CREATED)
async def create(
    request: Request,
    caller: OperatorCaller,
    view: CurrentView,
    asked: schemas.RedriveRequest,
) -> Response:
    """Sends dead letters back: pending and failed ones, the longest dead first. The selection is fixed now."""
    services = services_of(request)
    new = await _new_operation(request, caller, view, asked)
    if asked.dry_run:
        async with search_slot(request, caller, new.selection.filter):
            return JSONResponse(await _plan(services, new), status_code=200)
    try:
        async with search_slot(request, caller, new.selection.filter):
            started = await start_redrive(services, new)
        operation, note = started.operation, started.note
    except IdempotencyConflict as error:
        # `dead:>2h` means another time in a repeated request: the same text is the same request.
        found = await services.store.operations.get(error.operation_id)
        if found is None or not _is_same(found, new):
            raise
        operation, note = found, ""
    shown = operation_view(operation, view, services, note=note)
    headers = {"Location": f"{router.prefix}/{operation.id}"}
    return JSONResponse(schemas.Redrive(**shown).model_dump(mode="json"), status_code=202, headers=headers)


@router.get("", response_model=schemas.Redrives)
async def list_all(
    request: Request,
    caller: ViewerCaller,
    view: CurrentView,
    scope: CurrentScope,
    state: OperationState | None = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    cursor: Annotated[str | None, Query(max_length=1_000)] = None,
) -> dict[str, Any]:
    """Operations, newest first: those of people and of auto-retry. Only those that are entirely within the token's
    queues."""
    found, following = await scope.page(caller, limit, cursor=cursor, state=state)
    services = services_of(request)
    return {"redrives": [operation_view(one, view, services) for one in found], "next": following}


@router.get("/{redrive_id}", response_model=schemas.Redrive)
async def show(
    request: Request, caller: ViewerCaller, view: CurrentView, scope: CurrentScope, redrive_id: str
) -> dict[str, Any]:
    """An operation: its progress, its speed, and when it will be done."""
    services = services_of(request)
    operation = await scope.find(caller, redrive_id)
    return operation_view(operation, view, services, note=await why_none_sent(services, operation))


@router.get("/{redrive_id}/items", response_model=schemas.Items)
async def list_items(
    request: Request,
    caller: ViewerCaller,
    scope: CurrentScope,
    redrive_id: str,
    state: ItemState | None = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    cursor: Annotated[str | None, Query(max_length=1_000)] = None,
) -> dict[str, Any]:
    """The outcome of each dead letter, in the order they are sent."""
    operation = await scope.find(caller, redrive_id)
    found, following = await services_of(request).store.operations.items(
        operation.id, limit, cursor=cursor, state=state
    )
    return {"items": [item_json(one) for one in found], "next": following}


@router.post("/{redrive_id}/pause", response_model=schemas.Redrive)
async def pause(
    request: Request, caller: OperatorCaller, view: CurrentView, scope: CurrentScope, redrive_id: str
) -> dict[str, Any]:
    """Pauses an operation after its current batch, on whichever instance it runs."""
    services = services_of(request)
    operation = await scope.find(caller, redrive_id)
    return operation_view(await services.redrives.pause(operation.id, who=caller.who), view, services)


@router.post("/{redrive_id}/resume", response_model=schemas.Redrive)
async def resume(
    request: Request, caller: OperatorCaller, view: CurrentView, scope: CurrentScope, redrive_id: str
) -> dict[str, Any]:
    """Resumes a paused operation."""
    services = services_of(request)
    operation = await scope.find(caller, redrive_id)
    if caller.queues and operation.queues != caller.queues:
        # It would continue with the rights of its author.
        reason = "the token is limited to some queues, and the author of this redrive is not; they must resume it"
        raise await audit_forbidden(request, caller, reason)
    resumed = await services.redrives.resume(operation.id, who=caller.who)
    services.wake()
    return operation_view(resumed, view, services)


@router.post("/{redrive_id}/cancel", response_model=schemas.Redrive)
async def cancel(
    request: Request, caller: OperatorCaller, view: CurrentView, scope: CurrentScope, redrive_id: str
) -> dict[str, Any]:
    """Cancels an operation after its current batch; what was not sent stays a dead letter."""
    services = services_of(request)
    operation = await scope.find(caller, redrive_id)
    return operation_view(await services.redrives.cancel(operation.id, who=caller.who), view, services)


async def _new_operation(request: Request, caller: Caller, view: View, asked: schemas.RedriveRequest) -> NewOperation:
    services = services_of(request)
    terms: list[Term] = []
    if asked.queue is not None:
        terms.append(NameTerm(field="queue", values=(asked.queue,)))
    if asked.group is not None:
        group = await find_group(services, caller, asked.group)
        terms.append(NameTerm(field="group", values=(group.id,)))
    query = LetterQuery(
        ids=asked.ids,
        q=asked.q or "",
        limit=asked.limit,
        include_in_doubt=asked.include_in_doubt,
        terms=terms,
        # A connection reaches one vhost only.
        hidden_terms=(NameTerm(field="vhost", values=(services.connections.target.vhost,)),),
    )
    scoped = await select_letters(request, caller, view, query)
    return NewOperation(
        kind=OperationKind.REDRIVE,
        selection=scoped.selection,
        target=await _target(request, caller, asked.target),
        rate_per_s=asked.rate_per_s,
        keep_attempts=asked.keep_attempts,
        ramp=tuple(asked.ramp),
        settle_s=asked.settle_s,
        who=caller.who,
        why=asked.why,
        queues=caller.queues,
        token_id=caller.token_id,
        idempotency_key=operation_key(request, caller),
    )


async def _target(request: Request, caller: Caller, asked: schemas.TargetRequest | None) -> RedriveTarget:
    """The target. Raises `HttpProblem` 403 if a limited caller would send to a queue that is not theirs."""
    if asked is None or asked.exchange is None:
        return RedriveTarget()
    target = RedriveTarget(exchange=asked.exchange, routing_key=asked.routing_key)
    if caller.queues:
        # Another exchange may route to any queue.
        is_named = target.exchange == "" and target.routing_key is not None
        if not is_named or not (target.routing_key == _QUEUE or caller.may_use(target.routing_key or "")):
            reason = "the token is limited to some queues: send to the failed queue, or to one of them by its name"
            raise await audit_forbidden(request, caller, reason)
    return target


async def _plan(services: Services, new: NewOperation) -> dict[str, Any]:
    note = ""
    try:
        plan = await (await services.broker.get()).plan(new)
    except (HttpProblem, ClientError, TimeoutError) as error:
        if isinstance(error, HttpProblem) and error.status != 503:
            raise
        reason = (
            error.without_broker_detail().detail if isinstance(error, HttpProblem) else "the broker can't be asked now"
        )
        note = f"the target could not be checked: {reason}"
        plan = await services.redrives.plan(new)
    return _shown_plan(plan, note).model_dump(mode="json")


def _shown_plan(plan: RedrivePlan, note: str) -> schemas.Plan:
    preflight = plan.preflight
    targets = None
    if preflight is not None:
        targets = [
            schemas.PlannedTarget(
                exchange=one.exchange,
                routing_key=one.routing_key,
                copies=one.copies,
                exists=one.exists,
                consumers=one.consumers,
                messages_ready=one.messages_ready,
            )
            for one in preflight.targets
        ]
    elif not note:
        targets = []  # nothing would be sent
    return schemas.Plan(
        dry_run=True,
        total=plan.preview.total,
        by_queue=plan.preview.by_queue,
        left_alone=plan.preview.left_alone,
        targets=targets,
        findings=[
            schemas.PlanFinding(code=one.code, severity=str(one.severity), address=one.address, text=one.text)
            for one in (() if preflight is None else preflight.findings)
        ],
        note=note,
    )


def _is_same(operation: Operation, new: NewOperation) -> bool:
    """Whether an operation was requested with the same text."""
    return not new.selection.ids and (
        operation.kind,
        operation.selection_text,
        operation.target,
        operation.rate_per_s,
        operation.keep_attempts,
        operation.ramp,
        operation.settle_s,
        operation.who,
        operation.why,
    ) == (
        new.kind,
        new.selection.filter_text,
        new.target,
        new.rate_per_s,
        new.keep_attempts,
        new.ramp,
        new.settle_s,
        new.who,
        new.why,
    )
