"""Health, metrics, and the documentation: for machines, and for people who have no token yet."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from redrive.admin.access.authorization import RequiresBeyondLoopback
from redrive.admin.access.caller import Caller
from redrive.admin.docs_page import CONTENT_SECURITY_POLICY, docs_page
from redrive.admin.metrics import CONTENT_TYPE, dead_letter_metrics
from redrive.admin.problems import HttpProblem
from redrive.admin.schemas.health import Health, Readiness
from redrive.admin.services import Services, services_of
from redrive.admin.worker_state import WorkerState
from redrive.records import Filter, Role
from redrive.stores import CLOCK_OFF_MS, StoreError

router = APIRouter(tags=["health"])

_METRICS = RequiresBeyondLoopback(role=Role.VIEWER)
_CHECK_S_MAX = 5.0


@router.get("/healthz")
async def healthz() -> Health:
    """Whether the process is alive: any answer shows that it is."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Readiness, "description": "Something is out of reach."}})
async def readyz(request: Request, response: Response) -> Readiness:
    """Whether the database and the broker can be reached, and the worker collects."""
    services = services_of(request)
    worker = services.workers()
    database, broker = await asyncio.gather(_database(services), _broker(services))
    is_ready = database == "ok" and broker == "ok" and worker.is_ready
    if not is_ready:
        response.status_code = 503
        response.headers["Retry-After"] = "5"
    word: Literal["ready", "not ready"] = "ready" if is_ready else "not ready"
    return Readiness(
        status=word,
        database=database,
        broker=broker,
        worker=_worker_text(services, worker),
        clock=_clock_text(services.store.clock_off_ms),
    )


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' text."}},
)
async def metrics(request: Request, caller: Annotated[Caller | None, Depends(_METRICS)]) -> Response:
    """Metrics for Prometheus. Without a token if only this machine can reach the API."""
    services = services_of(request)
    terms = () if caller is None else caller.scope_terms()
    stats = await services.dead_letters.get_stats(Filter(terms) if terms else None)
    # The process's own metrics are about every queue.
    counted = "" if terms else services.metrics()
    return Response(counted + dead_letter_metrics(stats), media_type=CONTENT_TYPE)


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> Response:
    """The operations as a page for people; no scripts, nothing from other hosts."""
    page = docs_page(request.app.openapi())
    return HTMLResponse(page, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


async def _database(services: Services) -> str:
    try:
        async with asyncio.timeout(_CHECK_S_MAX):
            await services.store.tokens.find("")
    except (StoreError, TimeoutError):
        return "out of reach"
    return "ok"


async def _broker(services: Services) -> str:
    try:
        async with asyncio.timeout(_CHECK_S_MAX):
            await services.broker.get()
    except (HttpProblem, TimeoutError):
        return "out of reach"
    return "ok"


def _clock_text(off_ms: int) -> str:
    if abs(off_ms) < CLOCK_OFF_MS:
        return "ok"
    direction = "ahead of" if off_ms > 0 else "behind"
    return f"{abs(off_ms) / 1000:.1f} s {direction} the database's, which decides"


def _worker_text(services: Services, worker: WorkerState) -> str:
    """With its reason only if nobody but this machine can ask: it may name hosts."""
    return worker.text if services.settings.is_private else str(worker.activity)
