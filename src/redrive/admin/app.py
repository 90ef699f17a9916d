"""The app: the middleware every request passes, and the routes behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from redrive.admin.access.access_audit import QUIET_MS
from redrive.admin.compat import bookly, pipeline
from redrive.admin.middleware.authentication import Authentication
from redrive.admin.middleware.error_boundary import ErrorBoundary
from redrive.admin.middleware.idempotency import Idempotency
from redrive.admin.middleware.quotas import QuotaMiddleware
from redrive.admin.middleware.request_bodies import RequestBodies
from redrive.admin.middleware.role_check import EarlyRoleCheck
from redrive.admin.middleware.security_headers import SecurityHeaders
from redrive.admin.openapi import install_openapi, required_by_route
from redrive.admin.problems import install_problem_handlers
from redrive.admin.routes import (
    audit,
    events,
    groups,
    health,
    messages,
    queues,
    redactions,
    redrives,
    rules,
    statistics,
    tokens,
)
from redrive.admin.services import Services

ROUTERS: tuple[APIRouter, ...] = (
    messages.router,
    groups.router,
    redrives.router,
    statistics.router,
    queues.router,
    rules.router,
    events.router,
    audit.router,
    tokens.router,
    redactions.router,
    bookly.router,
    pipeline.router,
    health.router,
)
"""In the order of the documentation."""


def create_app(services: Services) -> FastAPI:
    """The API on these services. The app opens and closes nothing of theirs."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        flushing = asyncio.create_task(_flush_refusals(services), name="redrive refusals to the audit")
        try:
            yield
        finally:
            flushing.cancel()
            await asyncio.wait([flushing])
            await services.refusal_audit.flush(all_of_them=True)

    app = FastAPI(
        title="Redrive",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        generate_unique_id_function=_operation_id,
        middleware=_middleware(services),
    )
    app.state.services = services
    install_problem_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    install_openapi(app, ROUTERS)
    return app


def _middleware(services: Services) -> list[Middleware]:
    """The outermost first: each sees a request before those below it, and its response after them."""
    return [
        Middleware(SecurityHeaders),  # headers for browsers, on every response
        Middleware(ErrorBoundary, services=services),  # a time limit; turns every error into a response
        Middleware(QuotaMiddleware, quotas=services.quotas),  # no token takes the API from the others
        Middleware(Authentication, services=services),  # finds the caller; without a token nothing more is read
        Middleware(EarlyRoleCheck, services=services, required=required_by_route(ROUTERS)),  # before the body is read
        Middleware(RequestBodies, settings=services.settings),  # the whole body, up to its size
        Middleware(Idempotency, services=services),  # repeats the response to a repeated request
    ]


def _operation_id(route: APIRoute) -> str:
    """`messages_resolve`: the module and the function. Generated clients use it as a name."""
    return f"{route.endpoint.__module__.rsplit('.', 1)[-1]}_{route.name}"


async def _flush_refusals(services: Services) -> None:
    while True:
        await asyncio.sleep(QUIET_MS / 1000)
        await services.refusal_audit.flush()
