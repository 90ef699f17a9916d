"""`/admin/dlq`: the endpoints of the file pipeline's document: known queues, a peek, a re-drive with a limit.

The document's own version used the management API's destructive get. This one can't lose a message: it peeks at queues,
and sends back from the store, where the collector put the messages. Copies go to the exchange `retry.q.X` with key
`retry` if the failed queue q.X has one, otherwise to the failed queue itself.
"""

import asyncio
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from redrive.admin.access.access_audit import audit_payload_read
from redrive.admin.access.authorization import AdminCaller
from redrive.admin.access.caller import Caller
from redrive.admin.access.caller_view import CurrentView, visible_content
from redrive.admin.compat.bookly import content_of, payload_of
from redrive.admin.compat.pipeline_schemas import (
    PEEK_MAX,
    PeekedQueue,
    PipelineQueues,
    RedrivenQueue,
    RedriveQueueRequest,
)
from redrive.admin.problems import HttpProblem, conflict
from redrive.admin.redrive_operations import operation_key, start_redrive, wait_ended, why_none_sent
from redrive.admin.services import CurrentServices, Services
from redrive.admin.shared_broker import broker_unavailable
from redrive.client import ClientError
from redrive.deadletters import PeekedMessage, PeekRefused
from redrive.records import (
    DeadLetter,
    Filter,
    MessageContent,
    NameTerm,
    NewOperation,
    OperationKind,
    RedriveTarget,
    Selection,
    Status,
    View,
    format_filter,
)
from redrive.wiring import KnownQueue

router = APIRouter(prefix="/admin/dlq", tags=["File pipeline"])

RETRY_EXCHANGE, RETRY_KEY = "retry.{queue}", "retry"
_OPEN = (Status.PENDING, Status.FAILED)
_COLLECT_S_MAX = 5.0
_COLLECT_S_MIN = 0.5
"""A batch of the collector is neither on the queue nor stored for at most this long."""
_REDRIVE_S_MAX = 5.0
_POLL_S = 0.05
_PEEK_BYTES_MAX = 64_000_000
"""For the messages of one response."""


@router.get("/queues", response_model=PipelineQueues, summary="Known dead-letter queues")
async def list_queues(caller: AdminCaller, services: CurrentServices) -> dict[str, Any]:
    """The dead-letter queues that FILE declares, that the broker has by their names, and that the store knows."""
    known = await services.broker.queues()
    worker = services.workers()
    queues = [
        {
            "queue": one.dlq,
            "source_queue": one.known_queue,
            "messages": one.messages,
            "consumers": one.consumers,
            "stored": {status.upper(): one.stored.get(status, 0) for status in map(str, Status)},
            "collecting": worker.why_not(one.dlq) == "",
            "stopped": one.stopped,
        }
        for one in known.queues
        if _sees(caller, one)
    ]
    return {"queues": queues, "problem": known.problem, "worker": worker.text}


@router.get("/queues/{queue:path}/messages", response_model=PeekedQueue, summary="Look at the first messages")
async def peek(
    queue: str,
    caller: AdminCaller,
    view: CurrentView,
    services: CurrentServices,
    limit: Annotated[int, Query(ge=1, le=PEEK_MAX)] = 20,
) -> dict[str, Any]:
    """The stored messages of a queue, then those on it; nothing is removed. If the queue itself can't be peeked at,
    only the stored ones are shown and `note` says why; 409 or 503 if there are none."""
    await _known(services, caller, queue)
    page = await services.dead_letters.list(
        _stored_of(services, caller, queue, (*_OPEN, Status.IN_DOUBT)), limit=limit, newest_first=False
    )
    await audit_payload_read(services, caller, view, f"queue {queue}", queue)
    messages: list[dict[str, Any]] = []
    held, is_full = 0, False
    for one in page.letters:
        held += one.size_bytes
        is_full = bool(messages) and held > _PEEK_BYTES_MAX
        if is_full:
            break
        messages.append(await _stored_entry(services, view, one))
    if is_full:
        return {
            "queue": queue,
            "messages": messages,
            "left": None,
            "note": "the others are too large to be shown at once",
        }
    note, left = "", None
    try:
        peeked = await services.broker.peek(queue, limit)
    except PeekRefused as error:
        if not messages and queue not in services.workers().queues:
            raise
        note = str(error)
    except HttpProblem as error:
        # This process collects the queue, so an empty store is an answer too.
        if error.status != 503 or not (messages or services.workers().why_not(queue) == ""):
            raise
        note = f"the queue itself could not be peeked at: {error.detail}"
        left = await _ready(services, queue)
    else:
        room = limit - len(messages)
        messages += [await _queued_entry(view, one) for one in peeked.messages[:room]]
        left = peeked.left + max(0, len(peeked.messages) - room)
        note = peeked.note
    return {"queue": queue, "messages": messages, "left": left, "note": note}


@router.post("/queues/{queue:path}/re-drive", response_model=RedrivenQueue, status_code=202, summary="Send some back")
async def redrive(
    queue: str,
    caller: AdminCaller,
    services: CurrentServices,
    request: Request,
    response: Response,
    asked: RedriveQueueRequest | None = None,
) -> dict[str, Any]:
    """Sends the longest dead back. If this process collects the queue, messages still on it are collected first;
    otherwise only stored ones are sent, and the response says how many are left on the queue."""
    limit = (RedriveQueueRequest() if asked is None else asked).limit
    await _known(services, caller, queue)
    left, note = await _collect_first(services, caller, queue, limit)
    filter = _stored_of(services, caller, queue, _OPEN)
    text = format_filter(Filter((NameTerm(field="dlq", values=(queue,)),)))
    new = NewOperation(
        kind=OperationKind.REDRIVE,
        selection=Selection(filter=filter, filter_text=text, limit=limit),
        who=caller.who,
        why=f"re-drive of {queue}",
        queues=caller.queues,
        token_id=caller.token_id,
        idempotency_key=operation_key(request, caller),
    )
    preview = (await services.redrives.plan(new)).preview
    # A limited caller sends to their queues by name: an exchange may route to any queue.
    target = RedriveTarget() if caller.queues else await _target(services, list(preview.by_queue))
    if not preview.total and new.idempotency_key is None:
        if left:
            raise conflict("not-collected", f"nothing of {queue} is stored, and {note}")
        return _nothing(queue, target, left)
    started = await start_redrive(services, replace(new, target=target))
    operation = started.operation
    if not started.note:
        operation = await wait_ended(services, operation, patience_s=_REDRIVE_S_MAX)
    none_sent = await why_none_sent(services, operation)
    response.headers["Location"] = f"/api/v1/redrives/{operation.id}"
    return {
        "queue": queue,
        "operation": operation.id,
        "state": str(operation.state),
        "total": operation.total,
        "redriven": operation.sent,
        "refused": operation.refused,
        "in_doubt": operation.in_doubt,
        "target": {"exchange": operation.target.exchange, "routing_key": operation.target.routing_key},
        "left": left,
        "note": "; ".join(one for one in (operation.note, started.note, none_sent, note) if one),
    }


async def _known(services: Services, caller: Caller, queue: str) -> KnownQueue:
    """The queue, if it is a known dead-letter queue. Raises `HttpProblem` 404, or 503 if that can't be found out."""
    known = await services.broker.queues()
    for one in known.queues:
        if one.dlq == queue and _sees(caller, one):
            return one
    # Without a management API, a queue may be collected by its name alone.
    named = KnownQueue(vhost=services.connections.target.vhost, dlq=queue)
    if queue in services.workers().queues and _sees(caller, named):
        return named
    if known.problem is not None:
        raise broker_unavailable(known.problem)
    raise HttpProblem(
        status=404,
        name="unknown-queue",
        title="No known dead-letter queue",
        detail="there is no such dead-letter queue; GET /admin/dlq/queues lists those that are known",
    )


def _sees(caller: Caller, known: KnownQueue) -> bool:
    return caller.knows_dlq(known.dlq, known.known_queue)


async def _collect_first(services: Services, caller: Caller, queue: str, limit: int) -> tuple[int | None, str]:
    """Waits a while until enough is stored or the queue is empty. Returns how many messages are left on the queue, and
    a sentence about them."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    wanted = _stored_of(services, caller, queue, _OPEN)
    while True:
        left = await _ready(services, queue)
        is_collected = services.workers().why_not(queue) == ""
        if left is None or not is_collected:
            break
        stored = await services.store.letters.count(wanted, now_ms=services.clock_ms(), at_most=limit)
        waited_s = loop.time() - began_s
        if stored >= limit or (left == 0 and waited_s >= _COLLECT_S_MIN) or waited_s >= _COLLECT_S_MAX:
            break
        await asyncio.sleep(_POLL_S)
    if not left:
        return left, ""
    lie = f"{left:,} {'message lies' if left == 1 else 'messages lie'} on the queue itself"
    if is_collected:
        return left, f"{lie} and will be collected; ask again for them"
    return left, f"{lie}, which this process does not collect; run redrive collect, or serve without --no-collect"


async def _ready(services: Services, queue: str) -> int | None:
    try:
        return await (await services.broker.get()).messages_ready(queue)
    except (HttpProblem, ClientError, TimeoutError):
        return None


async def _target(services: Services, failed_queues: list[str]) -> RedriveTarget:
    """The retry exchanges of the failed queues if all of them have one, else the queues themselves."""
    if not failed_queues:
        return RedriveTarget()
    known = (
        set()
        if services.connections.loaded is None
        else {one.name for one in services.connections.loaded.topology.exchanges}
    )
    for queue in failed_queues:
        name = RETRY_EXCHANGE.replace("{queue}", queue)
        if name not in known and not await _has_exchange(services, name):
            return RedriveTarget()
    return RedriveTarget(exchange=RETRY_EXCHANGE, routing_key=RETRY_KEY)


async def _has_exchange(services: Services, name: str) -> bool:
    if len(name.encode()) > 255:
        return False
    try:
        return await (await services.broker.get()).has_exchange(name)
    except (HttpProblem, ClientError, TimeoutError):
        return False


def _stored_of(services: Services, caller: Caller, queue: str, statuses: tuple[Status, ...]) -> Filter:
    return Filter(
        (
            *caller.scope_terms(),
            NameTerm(field="vhost", values=(services.connections.target.vhost,)),
            NameTerm(field="dlq", values=(queue,)),
            NameTerm(field="status", values=tuple(str(one) for one in statuses)),
        )
    )


def _nothing(queue: str, target: RedriveTarget, left: int | None) -> dict[str, Any]:
    return {
        "queue": queue,
        "operation": None,
        "state": "done",
        "total": 0,
        "redriven": 0,
        "refused": 0,
        "in_doubt": 0,
        "target": {"exchange": target.exchange, "routing_key": target.routing_key},
        "left": left,
        "note": "there is nothing to send back",
    }


async def _stored_entry(services: Services, view: View, letter: DeadLetter) -> dict[str, Any]:
    return {
        "where": "stored",
        "id": letter.id,
        "status": str(letter.status).upper(),
        "message_id": letter.message_id,
        "exchange": letter.exchange,
        "routing_key": letter.routing_key,
        "redelivered": False,
        **await content_of(services, view, letter.id),
    }


async def _queued_entry(view: View, message: PeekedMessage) -> dict[str, Any]:
    shown = await visible_content(view, MessageContent(properties=message.properties, body=message.body))
    message_id = shown["properties"].get("message_id")
    return {
        "where": "queue",
        "id": None,
        "status": None,
        "message_id": message_id if isinstance(message_id, str) else None,
        "exchange": _storable(message.exchange),
        "routing_key": _storable(message.routing_key),
        "redelivered": message.redelivered,
        **payload_of(shown),
    }


def _storable(name: str) -> str:
    """A name as JSON text: AMQP's may be no UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()
