"""Refusals as application/problem+json (RFC 9457), with stable types: `urn:redrive:problem:<name>`.

`problem_of` maps Redrive's errors to problem responses. An error it does not know is a fault of the server, and the
client learns nothing else about it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from redrive.admin.validation import sentences, short, validation_problems
from redrive.client import ClientError
from redrive.core import InvalidInput, RedriveError
from redrive.deadletters import ActionRefused, InvalidEdit, PeekRefused, RecordNotFound, StillCollected, TargetRefused
from redrive.management import ManagementError
from redrive.records import InvalidFilter, InvalidRedaction, InvalidToken, Role
from redrive.stores import (
    FilterTooExpensive,
    IdempotencyConflict,
    InvalidCursor,
    InvalidScope,
    LeaseLost,
    LetterBusy,
    StoreUnavailable,
    TokenNameTaken,
    UnknownGroup,
    UnknownLetter,
    UnknownOperation,
    UnknownRedaction,
    UnknownToken,
    VersionConflict,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
_FINDINGS_SHOWN = 20
_ABOUT_BROKER = frozenset({"broker-unavailable", "management-unavailable"})


class HttpProblem(Exception):
    """A refusal, as the client gets it. `name` is the end of its type; `detail` says what, where, what to do."""

    def __init__(
        self,
        *,
        status: int,
        name: str,
        title: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.status = status
        self.name = name
        self.title = title
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
        super().__init__(detail)

    def without_broker_detail(self) -> "HttpProblem":
        """The same for callers who are no admins: they must not learn the broker's address or what it says."""
        if self.name not in _ABOUT_BROKER:
            return self
        detail = "the broker can't be asked now; an admin sees why; what is stored can still be read"
        return HttpProblem(status=self.status, name=self.name, title=self.title, detail=detail, headers=self.headers)

    def response(self, path: str) -> Response:
        """The response to a request for this path."""
        content = {
            **self.extra,
            "type": f"urn:redrive:problem:{self.name}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": path,
        }
        # ASCII: half a surrogate pair, from a queue name, is no UTF-8.
        return Response(json.dumps(content), status_code=self.status, headers=self.headers, media_type=MEDIA_TYPE)


def not_found(what: str, id: str) -> HttpProblem:
    """404. `what` is its kind, such as "dead letter"."""
    return HttpProblem(
        status=404, name="not-found", title=f"There is no such {what}", detail=f"there is no {what} {short(id)}"
    )


def forbidden(detail: str) -> HttpProblem:
    """403: the caller is known and may not do this."""
    return HttpProblem(status=403, name="forbidden", title="Not allowed", detail=detail)


def conflict(name: str, detail: str) -> HttpProblem:
    """409: not in the current state."""
    return HttpProblem(status=409, name=name, title="Not as things stand", detail=detail)


def invalid(detail: str, **extra: Any) -> HttpProblem:
    """422: the request is not valid."""
    return HttpProblem(status=422, name="invalid-request", title="The request is not valid", detail=detail, extra=extra)


def invalid_parts(found: Iterable[Mapping[str, str]]) -> HttpProblem:
    """422 with every invalid part of a request that `validation` found."""
    found = list(found)
    return invalid(sentences(found), errors=[{"at": one["at"], "problem": one["problem"]} for one in found])


def unauthenticated(detail: str) -> HttpProblem:
    """401: no token, or no valid one."""
    headers = {"WWW-Authenticate": "Bearer"}
    title = "A valid token is needed"
    return HttpProblem(status=401, name="unauthenticated", title=title, detail=detail, headers=headers)


def unavailable(name: str, title: str, detail: str, *, retry_after_s: int = RETRY_AFTER_S) -> HttpProblem:
    """503: not now; a later request may succeed."""
    return HttpProblem(status=503, name=name, title=title, detail=detail, headers={"Retry-After": str(retry_after_s)})


def management_unavailable(reason: str) -> HttpProblem:
    """503: the broker may be there, but not its management API, which knows the queues."""
    title = "The broker's management API can't be asked"
    return unavailable("management-unavailable", title, f"{reason}; what is stored can still be read")


def internal() -> HttpProblem:
    """500: a fault of the server. The log has its type and place."""
    detail = "the server failed; its log says where"
    return HttpProblem(status=500, name="internal", title="Internal error", detail=detail)


def problem_of(error: BaseException) -> HttpProblem | None:
    """The problem response for an error; None if the error is a fault of the server."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, HTTPException):
        return _of_http(error)
    if isinstance(error, RequestValidationError):
        return _of_validation(error)
    for kinds, make in _PROBLEMS:
        if isinstance(error, kinds):
            return make(error)
    return None


def install_problem_handlers(app: FastAPI) -> None:
    """Makes an app answer known errors as problems. Any other error goes on to `ErrorBoundary`."""

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem is None:
            raise error
        is_admin = getattr(request.scope.get("redrive.caller"), "role", None) is Role.ADMIN
        return (problem if is_admin else problem.without_broker_detail()).response(request.url.path)

    for kind in (HttpProblem, HTTPException, RequestValidationError, RedriveError, TimeoutError):
        app.add_exception_handler(kind, answer)


def _conflicting(name: str) -> Callable[[BaseException], HttpProblem]:
    return lambda error: conflict(name, str(error))


def _missing(error: BaseException) -> HttpProblem:
    return HttpProblem(status=404, name="not-found", title="It is not there", detail=str(error))


def _invalid(error: BaseException) -> HttpProblem:
    return invalid(str(error))


def _of_filter(error: BaseException) -> HttpProblem:
    assert isinstance(error, InvalidFilter)
    problems = [
        {"code": one.code, "summary": one.summary, "hint": one.hint, "start": one.start, "end": one.end}
        for one in error.problems[:_FINDINGS_SHOWN]
    ]
    title = "The filter is not valid"
    detail = error.findings[0].text if error.findings else title
    return HttpProblem(status=422, name="invalid-filter", title=title, detail=detail, extra={"problems": problems})


def _of_version(error: BaseException) -> HttpProblem:
    title = "It has changed since it was read"
    return HttpProblem(status=412, name="version-conflict", title=title, detail=str(error))


def _of_key(error: BaseException) -> HttpProblem:
    title = "The Idempotency-Key belongs to another request"
    return HttpProblem(status=422, name="idempotency-key-reused", title=title, detail=str(error))


def _of_cost(error: BaseException) -> HttpProblem:
    return HttpProblem(status=422, name="filter-too-dear", title="The filter takes too long", detail=str(error))


def _of_store(error: BaseException) -> HttpProblem:
    # Its text has the address of the database, which a client must not learn.
    reason = error.reason if isinstance(error, StoreUnavailable) else "another instance took over"
    detail = f"the database can't be used now ({reason}); nothing was left half done; ask again"
    return unavailable("store-unavailable", "The database can't be used now", detail)


def _of_broker(error: BaseException) -> HttpProblem:
    reason = str(error) or "it did not answer in time"
    if isinstance(error, ManagementError):
        return management_unavailable(reason)
    title = "The broker can't be reached"
    return unavailable("broker-unavailable", title, f"{reason}; what is stored can still be read")


def _of_http(error: HTTPException) -> HttpProblem:
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return HttpProblem(
            status=404, name="not-found", title="No such resource", detail="there is nothing at this path; see /docs"
        )
    if error.status_code == 405:
        title = "Method not allowed"
        detail = "this resource does not take this method; see /docs"
        return HttpProblem(status=405, name="method-not-allowed", title=title, detail=detail, headers=headers)
    if error.status_code == 400:
        return invalid("the request's body can't be read as what its content type says; send JSON in UTF-8")
    return HttpProblem(
        status=error.status_code, name="refused", title="Refused", detail=str(error.detail), headers=headers
    )


def _of_validation(error: RequestValidationError) -> HttpProblem:
    return invalid_parts(validation_problems(error))


_PROBLEMS: tuple[tuple[tuple[type[BaseException], ...], Callable[[BaseException], HttpProblem]], ...] = (
    ((RecordNotFound, UnknownLetter, UnknownGroup, UnknownOperation, UnknownRedaction, UnknownToken), _missing),
    ((TokenNameTaken,), _conflicting("name-taken")),
    ((LetterBusy,), _conflicting("busy")),
    ((ActionRefused,), _conflicting("refused")),
    ((TargetRefused,), _conflicting("target-refused")),
    ((PeekRefused,), _conflicting("peek-would-destroy")),
    ((StillCollected,), _conflicting("still-collected")),
    ((InvalidFilter,), _of_filter),
    ((FilterTooExpensive,), _of_cost),
    ((InvalidEdit, InvalidCursor, InvalidScope, InvalidRedaction, InvalidToken, InvalidInput), _invalid),
    ((VersionConflict,), _of_version),
    ((IdempotencyConflict,), _of_key),
    ((StoreUnavailable, LeaseLost), _of_store),
    ((ClientError, ManagementError, TimeoutError), _of_broker),
)
"""Errors and what makes a problem of them; the first that fits applies."""
