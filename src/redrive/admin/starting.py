"""Starting a redrive from a request: looked at beforehand where the broker is at hand, and waiting where it is not.

A broker that is away refuses nobody: the operation is stored, its runner waits, and the answer says so.
"""

import asyncio
from dataclasses import dataclass

from fastapi import Request

from redrive.admin.access import Caller
from redrive.admin.broker_link import Doing
from redrive.admin.idempotency import HEADER
from redrive.admin.problems import Problem, conflict
from redrive.admin.services import Services
from redrive.admin.telling import none_sent_text
from redrive.client import ClientError
from redrive.records import ItemState, NewOperation, Operation, OperationState
from redrive.stores import StoreUnavailable

_LOOKED_AFTER_S = 0.05
_UNDER_WAY = (OperationState.WAITING, OperationState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRedrive:
    """An operation, and why it does not run at once; "" where it does."""

    operation: Operation
    note: str = ""


async def start_redrive(services: Services, new: NewOperation) -> StartedRedrive:
    """Creates the operation and tells this process's redriver. Raises `ActionRefused`, `TargetRefused`, and `Problem`
    409 where all that is named will be sent anyway."""
    await _refuse_twice(services, new)
    try:
        desk = (await services.link.broker()).desk
        operation = await desk.start(new)
        note = ""
    except (Problem, ClientError, TimeoutError) as error:
        if isinstance(error, Problem) and error.status != 503:
            raise
        operation = await services.redrives.start(new)
        note = "it waits for the broker, which can't be reached now"
    services.wake()
    worker = services.workers()
    if not note and worker.doing is Doing.WAITING:
        note = f"it waits {worker.reason_without_address}"
    return StartedRedrive(operation=operation, note=note)


async def why_none_sent(services: Services, operation: Operation) -> str:
    """How many an ended operation has skipped, and why, where it sent none; "" otherwise."""
    if not none_sent_text(operation) or operation.note:
        return ""
    try:
        skipped, _ = await services.store.operations.items(operation.id, 1, state=ItemState.SKIPPED)
    except StoreUnavailable:
        return ""
    return none_sent_text(operation, *(one.reason for one in skipped))


def operation_key(request: Request, caller: Caller) -> str | None:
    """The request's Idempotency-Key as the operation's: where an answer was lost before it was kept, the operation is
    found again all the same."""
    key = request.headers.get(HEADER)
    return None if key is None else f"{caller.token_id}:{key.strip()}"


async def _refuse_twice(services: Services, new: NewOperation) -> None:
    """The second of two requests for the same dead letters would skip them all: it is refused while that is known."""
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
        f"{who} is to be sent by operation {operation_id} already; wait for it, or cancel it with"
        f" POST /api/v1/redrives/{operation_id}/cancel",
    )


async def wait_ended(services: Services, operation: Operation, *, patience_s: float) -> Operation:
    """The operation as it is once it has ended, or after so long: who asks for a few gets them in one answer.

    A database that goes meanwhile is no reason to say that nothing was done: the operation is stored.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + patience_s
    while operation.state in _UNDER_WAY and loop.time() < until_s:
        await asyncio.sleep(_LOOKED_AFTER_S)
        try:
            found = await services.store.operations.get(operation.id)
        except StoreUnavailable:
            break
        operation = operation if found is None else found
    return operation
