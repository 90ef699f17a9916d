"""Redrive operations as requests start them and responses show them.

With a broker, a redrive's targets are checked before it starts. Without one it is accepted nevertheless: the operation
is stored, its runner waits, and the response says so.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from redrive.admin.access.caller import Caller
from redrive.admin.middleware.idempotency import HEADER
from redrive.admin.problems import HttpProblem, conflict
from redrive.admin.services import Services
from redrive.admin.worker_state import WorkerActivity
from redrive.client import ClientError
from redrive.records import ItemState, NewOperation, Operation, OperationState, View, operation_json
from redrive.stores import StoreUnavailable

_POLL_S = 0.05
_UNDER_WAY = (OperationState.WAITING, OperationState.RUNNING)
_PLAIN_SELECTION = re.compile(r"\d+ (by id|dead letters)|all|due|everything|")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRedrive:
    """An operation, and why it does not run at once; "" if it does."""

    operation: Operation
    note: str = ""


async def start_redrive(services: Services, new: NewOperation) -> StartedRedrive:
    """Stores the operation and wakes this process's redriver. Raises `ActionRefused`, `TargetRefused`, and
    `HttpProblem` 409 if other operations will send everything it names."""
    await _refuse_duplicate(services, new)
    try:
        operation = await (await services.broker.get()).service.start(new)
        note = ""
    except (HttpProblem, ClientError, TimeoutError) as error:
        if isinstance(error, HttpProblem) and error.status != 503:
            raise
        operation = await services.redrives.start(new)
        note = "it waits for the broker, which can't be reached now"
    services.wake()
    worker = services.workers()
    if not note and worker.activity is WorkerActivity.WAITING:
        note = f"it waits {worker.reason_without_address}"
    return StartedRedrive(operation=operation, note=note)


async def why_none_sent(services: Services, operation: Operation) -> str:
    """How many dead letters an ended operation skipped, and why, if it sent none; "" otherwise."""
    if not none_sent_text(operation) or operation.note:
        return ""
    try:
        skipped, _ = await services.store.operations.items(operation.id, 1, state=ItemState.SKIPPED)
    except StoreUnavailable:
        return ""
    return none_sent_text(operation, *(one.reason for one in skipped))


def operation_key(request: Request, caller: Caller) -> str | None:
    """The request's Idempotency-Key as the operation's: the operation is found again even if the response was lost
    before it was stored."""
    key = request.headers.get(HEADER)
    return None if key is None else f"{caller.token_id}:{key.strip()}"


async def wait_ended(services: Services, operation: Operation, *, patience_s: float) -> Operation:
    """The operation once it has ended, or after `patience_s`, so that a small redrive has its result in one response.

    If the database fails meanwhile, the operation is returned as it was: it is stored.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + patience_s
    while operation.state in _UNDER_WAY and loop.time() < until_s:
        await asyncio.sleep(_POLL_S)
        try:
            found = await services.store.operations.get(operation.id)
        except StoreUnavailable:
            break
        operation = operation if found is None else found
    return operation


def operation_view(operation: Operation, view: View, services: Services, *, note: str = "") -> dict[str, Any]:
    """An operation as `schemas.redrives.Redrive` has it, without what the view hides. `note`: why it waits, if that is
    known and not stored."""
    shown = operation_json(operation)
    speed = measured_per_s(operation, now_ms=services.clock_ms())
    return {
        **shown,
        "selection": visible_selection_text(view, operation.selection_text),
        "note": operation.note or note or _why_waiting(operation, services) or none_sent_text(operation),
        "measured_per_s": speed,
        "eta_s": None if speed is None else operation.left / speed,
    }


def measured_per_s(operation: Operation, *, now_ms: int) -> float | None:
    """Items per second since it was started; None if it does not run, or has not ended any."""
    if operation.state is not OperationState.RUNNING or operation.started_at_ms is None:
        return None
    done, passed_ms = operation.total - operation.left, now_ms - operation.started_at_ms
    return done * 1000 / passed_ms if done > 0 and passed_ms > 0 else None


def none_sent_text(operation: Operation, reason: str = "its items say why") -> str:
    """How many dead letters an ended operation skipped, if it sent none; "" otherwise."""
    if operation.ended_at_ms is None or operation.sent or not operation.skipped:
        return ""
    were = "was" if operation.skipped == 1 else "were"
    return f"nothing was sent: {operation.skipped:,} of {operation.total:,} {were} skipped ({reason})"


def visible_selection_text(view: View, text: str) -> str:
    """The text of a selection: a count as it is, a filter only if the view may show it.

    A text that looks like an id is no exception: somebody may have searched for the sixteen digits of a card.
    """
    return text if _PLAIN_SELECTION.fullmatch(text) else view.filter_text(text)


async def _refuse_duplicate(services: Services, new: NewOperation) -> None:
    """Refuses a request for dead letters that are all in operations under way: it would skip every one of them."""
    ids = new.selection.ids
    if not ids:
        return
    found = await services.store.operations.under_way(ids, but_for_key=new.idempotency_key)
    if len(found) < len(set(ids)):
        return
    who = f"dead letter {ids[0]}" if len(found) == 1 else f"each of these {len(found):,} dead letters"
    operation_id = found[ids[0]]
    raise conflict(
        "queued-already",
        f"{who} will be sent by operation {operation_id} already; wait for it, or cancel it with"
        f" POST /api/v1/redrives/{operation_id}/cancel",
    )


def _why_waiting(operation: Operation, services: Services) -> str:
    worker = services.workers()
    if operation.state is not OperationState.WAITING or worker.is_ready or not worker.reason:
        return ""
    return f"it waits: {worker.reason_without_address}"
