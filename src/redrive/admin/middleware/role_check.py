"""Checks a caller's role before the request's body is read.

The routes check the same themselves. This only does it earlier for requests with a body, so that nobody can send a body
to an endpoint they may not use.
"""

from collections.abc import Iterable

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from redrive.admin.access.authorization import CALLER, Requires
from redrive.admin.access.caller import Caller
from redrive.admin.problems import forbidden
from redrive.admin.services import Services

_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")


class EarlyRoleCheck:
    """Refuses with 403 what the route would refuse. `required`: the routes, and what each requires of its caller."""

    def __init__(self, app: ASGIApp, *, services: Services, required: Iterable[tuple[APIRoute, Requires]]) -> None:
        self._app = app
        self._services = services
        self._required = tuple(required)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request. Raises `HttpProblem` 403."""
        caller = scope.get(CALLER)
        if scope["type"] == "http" and scope["method"] not in _WITHOUT_BODY and isinstance(caller, Caller):
            found = self._find(scope)
            reason = None if found is None else found[1].lacks(caller)
            if found is not None and reason is not None:
                what = f"{scope['method']} {found[0].path_format}"
                await self._services.refusal_audit.record_forbidden(caller, what, reason)
                raise forbidden(reason)
        await self._app(scope, receive, send)

    def _find(self, scope: Scope) -> tuple[APIRoute, Requires] | None:
        for route, requires in self._required:
            if route.matches(scope)[0] is Match.FULL:
                return route, requires
        return None
