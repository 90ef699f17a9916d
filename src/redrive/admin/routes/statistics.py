"""`/api/v1/stats`: how many dead letters there are, by status and origin, and what happened over time."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from redrive.admin.access.authorization import ViewerCaller
from redrive.admin.access.caller_view import CurrentView
from redrive.admin.json_responses import json_response
from redrive.admin.problems import invalid
from redrive.admin.schemas.base import FILTER_CHARACTERS_MAX
from redrive.admin.schemas.statistics import Statistics, TimeSeries, series_json, stats_json
from redrive.admin.scope import scoped_filter
from redrive.admin.services import services_of
from redrive.admin.unindexed_searches import search_slot

router = APIRouter(prefix="/api/v1/stats", tags=["statistics"])

_DAY_MS = 86_400_000
_POINTS = 48
_YEARS = (1970, 2200)


@router.get("", response_model=Statistics)
async def totals(
    request: Request,
    caller: ViewerCaller,
    view: CurrentView,
    q: Annotated[
        str, Query(max_length=FILTER_CHARACTERS_MAX, description="The filter grammar; empty is everything.")
    ] = "",
) -> Response:
    """Counts by status, queue, dead-letter queue, topic, service, type and group.

    With a filter, or a token for some queues, at most the 2,000 newest that match are counted; `partial` says so.
    """
    asked = await scoped_filter(request, caller, view, q)
    async with search_slot(request, caller, asked):
        stats = await services_of(request).dead_letters.get_stats(asked)
    return json_response(stats_json(stats))


@router.get("/timeseries", response_model=TimeSeries)
async def time_series(
    request: Request,
    caller: ViewerCaller,
    since: Annotated[datetime | None, Query(alias="from", description="ISO 8601; a day ago by default.")] = None,
    until: Annotated[datetime | None, Query(description="ISO 8601; now by default.")] = None,
    bucket_s: Annotated[
        int | None, Query(ge=1, le=366 * 86_400, description="Made whole five minutes, and wide enough for 2,000.")
    ] = None,
    queue: Annotated[str | None, Query(max_length=255, description="One failed queue only.")] = None,
) -> Response:
    """How many dead letters arrived, were redriven, came back and were resolved, by time bucket."""
    services = services_of(request)
    until_ms = services.clock_ms() if until is None else _ms(until, "until")
    from_ms = max(until_ms - _DAY_MS, 0) if since is None else _ms(since, "from")
    if from_ms >= until_ms:
        raise invalid("from is not before until")
    width_s = max((until_ms - from_ms) // _POINTS // 1000, 1) if bucket_s is None else bucket_s
    buckets = await services.store.stats.series(
        from_ms=from_ms,
        until_ms=until_ms,
        bucket_ms=width_s * 1000,
        queue=None if queue is None else queue.replace("\0", "\ufffd"),
        dlqs=caller.all_dlqs,
    )
    return json_response(series_json(buckets, asked_s=width_s))


def _ms(moment: datetime, name: str) -> int:
    """Milliseconds; a time without a zone is UTC. Raises `HttpProblem` 422 for a year outside 1971 to 2199."""
    if not _YEARS[0] < moment.year < _YEARS[1]:
        raise invalid(f"{name} must be after {_YEARS[0]} and before {_YEARS[1]}")
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
