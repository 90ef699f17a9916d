"""What a route requires of its caller, as the type of a parameter: `caller: OperatorCaller`.

`Requires` is plain data, so that the OpenAPI document (`x-redrive-role`) and a test can read it from the routes. The
audit records refusals.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from redrive.admin.access.caller import Caller
from redrive.admin.problems import HttpProblem, forbidden, invalid_parts, unauthenticated
from redrive.admin.services import services_of
from redrive.admin.validation import unknown_parameter
from redrive.records import Role

CALLER = "redrive.caller"
"""The key of the caller in a request's scope, where authentication puts it."""
REDACTIONS = "redrive.redactions"
"""The key of the redactions, which authentication reads with the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requires:
    """A dependency that returns the caller. It refuses with 403 a caller without the role, the grant or every queue;
    and with 422 a query parameter that is not known."""

    role: Role
    payloads: bool = False
    every_queue: bool = False

    async def __call__(self, request: Request) -> Caller:
        """The caller. Raises `HttpProblem` 401, 403 or 422."""
        caller = caller_of(request)
        reason = self.lacks(caller)
        if reason is not None:
            raise await audit_forbidden(request, caller, reason)
        check_parameters(request)
        return caller

    def lacks(self, caller: Caller) -> str | None:
        """Why the caller may not, in a sentence; None if it may."""
        if not caller.may(self.role):
            return f"this needs the role {self.role}, and the token has the role {caller.role}"
        if self.payloads and not caller.sees_payloads:
            return "this shows payloads, which the token is not granted; ask for one made with --payloads"
        if self.every_queue and caller.queues:
            return "this is about every queue, and the token is limited to some"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiresBeyondLoopback(Requires):
    """The same, but if only this machine can reach the API no token is needed; then there is no caller."""

    async def __call__(self, request: Request) -> Caller | None:  # type: ignore[override]
        """The caller, or None. Raises `HttpProblem` 401, 403 or 422."""
        if CALLER not in request.scope and services_of(request).settings.is_private:
            check_parameters(request)
            return None
        return await Requires.__call__(self, request)


ViewerCaller = Annotated[Caller, Depends(Requires(role=Role.VIEWER))]
PayloadCaller = Annotated[Caller, Depends(Requires(role=Role.VIEWER, payloads=True))]
OperatorCaller = Annotated[Caller, Depends(Requires(role=Role.OPERATOR))]
AdminCaller = Annotated[Caller, Depends(Requires(role=Role.ADMIN))]
UnscopedAdminCaller = Annotated[Caller, Depends(Requires(role=Role.ADMIN, every_queue=True))]
"""An admin whose token is not limited to some queues: with a new token a limited one could lift its own limit."""


def caller_of(request: Request) -> Caller:
    """The caller of a request. Raises `HttpProblem` 401 if authentication let it pass without a token."""
    caller = request.scope.get(CALLER)
    if not isinstance(caller, Caller):
        raise unauthenticated("send a token: Authorization: Bearer rd_…")
    return caller


async def audit_forbidden(request: Request, caller: Caller, reason: str) -> HttpProblem:
    """Records in the audit that this request is forbidden, and returns the 403."""
    what = f"{request.method} {route_path(request)}"
    await services_of(request).refusal_audit.record_forbidden(caller, what, reason)
    return forbidden(reason)


def check_parameters(request: Request) -> None:
    """Raises `HttpProblem` 422 for a parameter in the query that the route does not take."""
    found = unknown_parameter(request)
    if found is not None:
        raise invalid_parts([found])


def route_path(request: Request) -> str:
    """The path as it is documented, with its parameters' names: the audit must not get a subject per id."""
    route = request.scope.get("route")
    path = getattr(route, "path_format", None)
    return path if isinstance(path, str) else request.url.path
