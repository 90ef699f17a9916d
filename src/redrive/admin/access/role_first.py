"""Roles before bodies: who may not is told so before a byte of what they send is read.

The routes' own guards stand all the same; this only asks them earlier, where there is a body to come.
"""

from collections.abc import Iterable

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from redrive.admin.access.caller import Caller
from redrive.admin.access.guard import CALLER, Needs
from redrive.admin.problems import forbidden
from redrive.admin.services import Services

_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")


class RoleFirst:
    """Refuses with 403 what the route would refuse. `needed`: the routes, and what each needs of its caller."""

    def __init__(self, app: ASGIApp, *, services: Services, needed: Iterable[tuple[APIRoute, Needs]]) -> None:
        self._app = app
        self._services = services
        self._needed = tuple(needed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Raises `Problem` 403."""
        caller = scope.get(CALLER)
        if scope["type"] == "http" and scope["method"] not in _WITHOUT_BODY and isinstance(caller, Caller):
            found = self._find(scope)
            reason = None if found is None else found[1].lacks(caller)
            if found is not None and reason is not None:
                what = f"{scope['method']} {found[0].path_format}"
                await self._services.refusals.forbade(caller, what, reason, self._services)
                raise forbidden(reason)
        await self._app(scope, receive, send)

    def _find(self, scope: Scope) -> tuple[APIRoute, Needs] | None:
        for route, needs in self._needed:
            if route.matches(scope)[0] is Match.FULL:
                return route, needs
        return None
