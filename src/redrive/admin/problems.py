"""Refusals as application/problem+json (RFC 9457), with types that stay: `urn:redrive:problem:<name>`.

`problem_of` says what each error of ours is to a client; anything it does not know is our own fault, and a client is
told nothing but that. `install` makes an app answer so.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from redrive.admin.wrong_requests import sentences, short, validation_problems
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


class Problem(Exception):
    """A refusal as a client sees it. `name` is the end of its type; `detail` says what, where, what to do."""

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

    def for_others(self) -> "Problem":
        """As those hear it who are no admins: where the broker is and what it says is no business of theirs."""
        if self.name not in _ABOUT_BROKER:
            return self
        detail = "the broker can't be asked now, and an admin sees why; what is stored can still be read"
        return Problem(status=self.status, name=self.name, title=self.title, detail=detail, headers=self.headers)

    def response(self, path: str) -> Response:
        """The answer to a request for this path."""
        content = {
            **self.extra,
            "type": f"urn:redrive:problem:{self.name}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": path,
        }
        # ASCII: half a surrogate pair, from somebody's queue name, is no UTF-8.
        return Response(json.dumps(content), status_code=self.status, headers=self.headers, media_type=MEDIA_TYPE)


def not_found(what: str, id: str) -> Problem:
    """404: `what` is its kind, as in "dead letter"."""
    return Problem(
        status=404, name="not-found", title=f"There is no such {what}", detail=f"there is no {what} {short(id)}"
    )


def forbidden(detail: str) -> Problem:
    """403: whoever asks is known and may not."""
    return Problem(status=403, name="forbidden", title="Not allowed", detail=detail)


def conflict(name: str, detail: str) -> Problem:
    """409: not as things stand."""
    return Problem(status=409, name=name, title="Not as things stand", detail=detail)


def invalid(detail: str, **extra: Any) -> Problem:
    """422: the request can't be understood."""
    return Problem(status=422, name="invalid-request", title="The request is not valid", detail=detail, extra=extra)


def wrong(found: Iterable[Mapping[str, str]]) -> Problem:
    """422: what `wrong_requests` found."""
    found = list(found)
    return invalid(sentences(found), errors=[{"at": one["at"], "problem": one["problem"]} for one in found])


def unauthenticated(detail: str) -> Problem:
    """401: no token, or none that counts."""
    headers = {"WWW-Authenticate": "Bearer"}
    title = "A valid token is needed"
    return Problem(status=401, name="unauthenticated", title=title, detail=detail, headers=headers)


def unavailable(name: str, title: str, detail: str, *, retry_after_s: int = RETRY_AFTER_S) -> Problem:
    """503: not now; asking again later may do."""
    return Problem(status=503, name=name, title=title, detail=detail, headers={"Retry-After": str(retry_after_s)})


def management_unavailable(reason: str) -> Problem:
    """503: the broker may well be there, but not the API that knows its queues."""
    title = "The broker's management API can't be asked"
    return unavailable("management-unavailable", title, f"{reason}; what is stored can still be read")


def internal() -> Problem:
    """500: our own fault. What it was is in the log, by its type."""
    detail = "something of our own failed; the server's log says where"
    return Problem(status=500, name="internal", title="Internal error", detail=detail)


def problem_of(error: BaseException) -> Problem | None:
    """What an error is to a client; None where it is our own fault."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return _of_http(error)
    if isinstance(error, RequestValidationError):
        return _of_validation(error)
    for kinds, make in _MEANINGS:
        if isinstance(error, kinds):
            return make(error)
    return None


def install(app: FastAPI) -> None:
    """Makes an app answer errors so. What is nobody's meaning goes on to `limits.Boundary`."""

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem is None:
            raise error
        may_know = getattr(request.scope.get("redrive.caller"), "role", None) is Role.ADMIN
        return (problem if may_know else problem.for_others()).response(request.url.path)

    for kind in (Problem, HTTPException, RequestValidationError, RedriveError, TimeoutError):
        app.add_exception_handler(kind, answer)


def _conflicting(name: str) -> Callable[[BaseException], Problem]:
    return lambda error: conflict(name, str(error))


def _missing(error: BaseException) -> Problem:
    return Problem(status=404, name="not-found", title="It is not there", detail=str(error))


def _invalid(error: BaseException) -> Problem:
    return invalid(str(error))


def _of_filter(error: BaseException) -> Problem:
    assert isinstance(error, InvalidFilter)
    problems = [
        {"code": one.code, "summary": one.summary, "hint": one.hint, "start": one.start, "end": one.end}
        for one in error.problems[:_FINDINGS_SHOWN]
    ]
    title = "The filter is not valid"
    detail = error.findings[0].text if error.findings else title
    return Problem(status=422, name="invalid-filter", title=title, detail=detail, extra={"problems": problems})


def _of_version(error: BaseException) -> Problem:
    title = "It has changed since it was read"
    return Problem(status=412, name="version-conflict", title=title, detail=str(error))


def _of_key(error: BaseException) -> Problem:
    title = "The Idempotency-Key belongs to another request"
    return Problem(status=422, name="idempotency-key-reused", title=title, detail=str(error))


def _of_cost(error: BaseException) -> Problem:
    return Problem(status=422, name="filter-too-dear", title="The filter is too dear", detail=str(error))


def _of_store(error: BaseException) -> Problem:
    # Its text has the address of the database, which is no business of a client's.
    reason = error.reason if isinstance(error, StoreUnavailable) else "another instance took over"
    detail = f"the database can't be used now ({reason}); nothing was half done, ask again"
    return unavailable("store-unavailable", "The database can't be used now", detail)


def _of_broker(error: BaseException) -> Problem:
    reason = str(error) or "it did not answer in time"
    if isinstance(error, ManagementError):
        return management_unavailable(reason)
    title = "The broker can't be reached"
    return unavailable("broker-unavailable", title, f"{reason}; what is stored can still be read")


def _of_http(error: HTTPException) -> Problem:
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return Problem(
            status=404, name="not-found", title="No such resource", detail="there is nothing at this path; see /docs"
        )
    if error.status_code == 405:
        title = "Method not allowed"
        detail = "this resource does not take this method; see /docs"
        return Problem(status=405, name="method-not-allowed", title=title, detail=detail, headers=headers)
    if error.status_code == 400:
        return invalid("the request's body can't be read as what its content type says; send JSON in UTF-8")
    return Problem(status=error.status_code, name="refused", title="Refused", detail=str(error.detail), headers=headers)


def _of_validation(error: RequestValidationError) -> Problem:
    return wrong(validation_problems(error))


_MEANINGS: tuple[tuple[tuple[type[BaseException], ...], Callable[[BaseException], Problem]], ...] = (
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
"""The first that fits."""
