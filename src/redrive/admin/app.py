"""The app: routes, and around them what every request goes through, from the outside:

security_headers    headers for browsers, on every answer
limits.Boundary     time; every error ends here
shares.FairTurns    nobody takes what is the others'
authentication      who it is; without a token nothing more is read
role_first          may they at all; before a body is read
limits.Bodies       the body, whole, up to its size
idempotency         repeated requests are answered again
routes              with their roles (access.guard)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from redrive.admin import problems
from redrive.admin.access.authentication import Authentication
from redrive.admin.access.guard import Needs
from redrive.admin.access.refusals import QUIET_MS
from redrive.admin.access.role_first import RoleFirst
from redrive.admin.documenting import api_routes, document, needs_of
from redrive.admin.idempotency import Idempotency
from redrive.admin.limits import Bodies, Boundary
from redrive.admin.routes import ROUTERS
from redrive.admin.security_headers import SecurityHeaders
from redrive.admin.services import Services
from redrive.admin.shares import FairTurns


def create_app(services: Services) -> FastAPI:
    """The API on these services. Nothing is opened or closed here but what the app itself begins."""

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        telling = asyncio.create_task(_tell_refusals(services), name="redrive refusals to the audit")
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait([telling])
            await services.refusals.flush(services, all_of_them=True)

    app = FastAPI(
        title="Redrive",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=living,
        generate_unique_id_function=_operation_id,
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(Boundary, services=services),
            Middleware(FairTurns, settings=services.settings, shares=services.shares),
            Middleware(Authentication, services=services),
            Middleware(RoleFirst, services=services, needed=_needed()),
            Middleware(Bodies, settings=services.settings),
            Middleware(Idempotency, services=services),
        ],
    )
    app.state.services = services
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    document(app, ROUTERS)
    return app


def _needed() -> list[tuple[APIRoute, Needs]]:
    found = [(route, needs_of(route)) for route in api_routes(ROUTERS)]
    return [(route, needs) for route, needs in found if needs is not None]


def _operation_id(route: APIRoute) -> str:
    """`messages_resolve`: the module and the function. Clients are generated from it."""
    return f"{route.endpoint.__module__.rsplit('.', 1)[-1]}_{route.name}"


async def _tell_refusals(services: Services) -> None:
    while True:
        await asyncio.sleep(QUIET_MS / 1000)
        await services.refusals.flush(services)
