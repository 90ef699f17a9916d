"""`/api/v1/events`: changes as server-sent events: `redrive` for operations, `stats` for the counts.

Each event has the current state of something, so a client that missed some has lost nothing; a stream begins with the
state of everything. With `Last-Event-ID` it also has the operations that ended meanwhile. A stream ends after some
minutes, and the client reconnects by itself: then the redactions are read again. It ends at once when its token becomes
invalid.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from redrive.admin.access.authorization import ViewerCaller
from redrive.admin.access.caller import Caller
from redrive.admin.access.caller_view import CurrentView
from redrive.admin.live_updates import LiveUpdates, Snapshot, live_updates_of
from redrive.admin.middleware.quotas import QUOTA, RequestQuota
from redrive.admin.redrive_operations import operation_view
from redrive.admin.scope import CurrentScope, OperationScope
from redrive.admin.services import Services, services_of
from redrive.records import Operation, Status, View

router = APIRouter(prefix="/api/v1/events", tags=["events"])

HEARTBEAT_S = 10.0
STREAM_S_MAX = 300
_RETRY_MS = 2_000
_CLOCKS_DIFFER_MS = 5_000
"""Between instances. What ended shortly before the last event is sent again rather than not at all."""
_EXAMPLE = (
    f"retry: {_RETRY_MS}\n\n"
    'id: 1769860800000\nevent: stats\ndata: {"total": 412, "by_status": {"pending": 400, "retrying": 12}, '
    '"by_queue": {"orders": {"pending": 400}}, "by_dlq": {"orders.parked": {"pending": 400}}}\n\n'
    ": still here\n\n"
)
_EVENTS = {
    "type": ["string", "object"],  # some take this for the schema of the text, some for that of each event
    "description": "`stats` or `redrive` events; `id` is a moment, `data` JSON.",
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events until the client goes away, the server stops, or `for_s` is over.",
        "content": {"text/event-stream": {"schema": _EVENTS, "example": _EXAMPLE}},
    },
}


class EventStream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


@router.get("", response_class=EventStream, responses=_ANSWERS)
async def watch(
    request: Request,
    caller: ViewerCaller,
    view: CurrentView,
    scope: CurrentScope,
    for_s: Annotated[int, Query(ge=1, le=STREAM_S_MAX, description="The stream ends after so long.")] = STREAM_S_MAX,
    last_event_id: Annotated[str | None, Header(max_length=100, description="The id of the last event seen.")] = None,
) -> EventStream:
    """Operations within the token's queues and counts, at most two seconds late.

    `stats` has `total`, `by_status` and `by_queue` only for a token that sees every queue: the queue that a letter
    names does not show whose letter it is.
    """
    updates = live_updates_of(request)
    updates.require_room()
    quota = request.scope.get(QUOTA)
    if isinstance(quota, RequestQuota):
        quota.take_stream()
    stream = EventFeed(
        caller=caller, view=view, scope=scope, services=services_of(request), since_ms=read_event_id(last_event_id)
    )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventStream(stream.run(updates, for_s=for_s), headers=headers)


def read_event_id(text: str | None) -> int | None:
    """The time that an event's id stands for; an id that is not ours counts as none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 15 else None


class EventFeed:
    """The events of one stream: it remembers what it sent, and sends what differs."""

    def __init__(
        self, *, caller: Caller, view: View, scope: OperationScope, services: Services, since_ms: int | None
    ) -> None:
        self._caller = caller
        self._view = view
        self._scope = scope
        self._services = services
        self._since_ms = since_ms
        self._sent: dict[str, Operation] = {}
        self._stats: dict[str, Any] | None = None

    async def run(self, updates: LiveUpdates, *, for_s: float) -> AsyncIterator[str]:
        """The text of the stream, piece by piece; a comment if there was no event for a while."""
        clock = asyncio.get_running_loop().time
        until_s, last_sent_s = clock() + for_s, clock()
        yield f"retry: {_RETRY_MS}\n\n"
        last: Snapshot | None = None
        with updates.watching(self._caller.token_id):
            while not updates.is_closed and clock() < until_s:
                patience_s = min(HEARTBEAT_S - (clock() - last_sent_s), until_s - clock())
                snapshot = await updates.wait_newer(last, timeout_s=max(patience_s, 0.0))
                if snapshot is not None and self._caller.token_id in snapshot.refused:
                    return
                text = "" if snapshot is None else "".join(await self.events(snapshot))
                last = last if snapshot is None else snapshot
                if not text and clock() - last_sent_s >= HEARTBEAT_S:
                    text = ": still here\n\n"
                if text:
                    last_sent_s = clock()
                    yield text

    async def events(self, snapshot: Snapshot) -> list[str]:
        """Events for what differs from the last snapshot."""
        is_first = self._stats is None
        found = []
        stats = self._counts(snapshot)
        if stats != self._stats:
            self._stats = stats
            found.append(_event("stats", snapshot.at_ms, stats))
        changed = [one for id, one in snapshot.operations.items() if self._sent.get(id) != one]
        ended = [one for id, one in snapshot.ended.items() if self._sent.get(id) != one]
        self._sent = {**snapshot.operations, **snapshot.ended}
        if is_first:
            since_ms = None if self._since_ms is None else self._since_ms - _CLOCKS_DIFFER_MS
            ended = [] if since_ms is None else [one for one in ended if (one.ended_at_ms or 0) >= since_ms]
        for one in await self._scope.visible(self._caller, [*ended, *changed]):
            found.append(_event("redrive", snapshot.at_ms, operation_view(one, self._view, self._services)))
        return found

    def _counts(self, snapshot: Snapshot) -> dict[str, Any]:
        """The counts of the caller's queues. A limited caller gets them by the queue that letters were collected from:
        by the queue they name, others' letters would be among them."""
        stats, queues = snapshot.stats, self._caller.queues
        return {
            "total": None if queues else stats.total,
            "by_status": None if queues else {one.value: stats.by_status.get(one.value, 0) for one in Status},
            "by_queue": None if queues else stats.by_queue,
            "by_dlq": {name: counts for name, counts in stats.by_dlq.items() if self._caller.sees_dlq(name)},
        }


def _event(name: str, at_ms: int, data: dict[str, Any]) -> str:
    # ASCII, and JSON has no line ends: a stored text can't begin a field of the event.
    return f"id: {at_ms}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
