"""What a route needs of its caller, said in the type of a parameter: `caller: OperatorCaller`.

`Needs` is plain data, so that the documentation (`x-redrive-role`) and a test can read it from the routes. A refusal is
noted in the audit.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from redrive.admin.access.caller import Caller
from redrive.admin.problems import forbidden, unauthenticated, wrong
from redrive.admin.services import services_of
from redrive.admin.wrong_requests import unknown_parameter
from redrive.records import Role

CALLER = "redrive.caller"
"""Where in a request's scope the authentication leaves the caller."""
REDACTIONS = "redrive.redactions"
"""Where it leaves the redactions, which it reads with the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """A dependency that gives the caller, or refuses with 403: too little a role, no grant, or not for all queues; and
    with 422 who may, but asks with a parameter that is not known."""

    role: Role
    payloads: bool = False
    every_queue: bool = False

    async def __call__(self, request: Request) -> Caller:
        """The caller. Raises `Problem` 401, 403 or 422."""
        caller = caller_of(request)
        reason = self.lacks(caller)
        if reason is not None:
            services = services_of(request)
            await services.refusals.forbade(caller, f"{request.method} {route_path(request)}", reason, services)
            raise forbidden(reason)
        check_parameters(request)
        return caller

    def lacks(self, caller: Caller) -> str | None:
        """Why the caller may not, in a sentence; None where it may."""
        if not caller.may(self.role):
            return f"this needs the role {self.role}, and the token has the role {caller.role}"
        if self.payloads and not caller.sees_payloads:
            return "this shows payloads, which the token is not granted; ask for one made with --payloads"
        if self.every_queue and caller.queues:
            return "this is about every queue, and the token is limited to some"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsBeyondLoopback(Needs):
    """The same, but where only this machine can ask nobody needs a token; then there is no caller."""

    async def __call__(self, request: Request) -> Caller | None:  # type: ignore[override]
        """The caller, or None. Raises `Problem` 401, 403 or 422."""
        if CALLER not in request.scope and services_of(request).settings.is_private:
            check_parameters(request)
            return None
        return await Needs.__call__(self, request)


ViewerCaller = Annotated[Caller, Depends(Needs(role=Role.VIEWER))]
PayloadCaller = Annotated[Caller, Depends(Needs(role=Role.VIEWER, payloads=True))]
OperatorCaller = Annotated[Caller, Depends(Needs(role=Role.OPERATOR))]
AdminCaller = Annotated[Caller, Depends(Needs(role=Role.ADMIN))]
WholeAdminCaller = Annotated[Caller, Depends(Needs(role=Role.ADMIN, every_queue=True))]
"""An admin whose token is not limited to some queues: who makes tokens could lift the limit."""


def caller_of(request: Request) -> Caller:
    """Whoever asks. Raises `Problem` 401 where nobody was asked for a token."""
    caller = request.scope.get(CALLER)
    if not isinstance(caller, Caller):
        raise unauthenticated("send a token: Authorization: Bearer rd_…")
    return caller


def check_parameters(request: Request) -> None:
    """Raises `Problem` 422 for a parameter in the query that the route does not take."""
    found = unknown_parameter(request)
    if found is not None:
        raise wrong([found])


def route_path(request: Request) -> str:
    """The path as it is documented, with its parameters' names: ids are none of the audit's subjects here."""
    route = request.scope.get("route")
    path = getattr(route, "path_format", None)
    return path if isinstance(path, str) else request.url.path
