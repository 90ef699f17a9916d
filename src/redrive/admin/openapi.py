"""The OpenAPI document: what FastAPI reads from the routes, and what is the same for all of them.

Added here: the bearer token; the role each operation requires (`x-redrive-role`, `x-redrive-payloads`,
`x-redrive-every-queue`, `x-redrive-open-on-loopback`); the Idempotency-Key of every POST; and the problems an operation
may answer with. A route declares only what is special about it.
"""

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from redrive.admin.access.authorization import Requires, RequiresBeyondLoopback
from redrive.admin.middleware.idempotency import HEADER, KEY_CHARACTERS_MAX
from redrive.admin.problems import MEDIA_TYPE

ROLE = "x-redrive-role"
PAYLOADS = "x-redrive-payloads"
EVERY_QUEUE = "x-redrive-every-queue"
OPEN_ON_LOOPBACK = "x-redrive-open-on-loopback"

_DESCRIPTION = """Retries and dead letters for RabbitMQ: find, understand and send back dead letters.

Send a token with every request: `Authorization: Bearer rd_…`; `redrive token create` makes one. Errors are
application/problem+json with a stable `type`. A POST may carry an Idempotency-Key: sent twice, it is done once.
"""
_PROBLEM = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457. `type` stays; `detail` is for people.",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string", "pattern": "^urn:redrive:problem:[a-z0-9-]+$"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
    },
}
_TEXTS = {
    401: ("unauthenticated", "No token, or one that is unknown, expired or revoked."),
    403: ("forbidden", "The token's role, grant or queues are not enough."),
    404: ("not-found", "There is no such thing, or it is not of the token's queues."),
    405: ("method-not-allowed", "The resource does not take this method."),
    408: ("body-too-slow", "The body came too slowly."),
    409: ("refused", "Not as things stand, or a request with the same Idempotency-Key is being worked on."),
    412: ("version-conflict", "It has changed since it was read."),
    413: ("body-too-large", "The body is too large."),
    422: ("invalid-request", "The request is not valid, or its Idempotency-Key belongs to another."),
    428: ("if-match-required", "The change needs If-Match."),
    429: ("too-many-failures", "Too many wrong tokens came from this address; Retry-After says how long to wait."),
    503: ("store-unavailable", "The database or the broker can't be used now; Retry-After says when to ask again."),
}
_KEY = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Any text that is new for every new request. The same key and request again: the same answer.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": KEY_CHARACTERS_MAX,
        "pattern": "^[!-~]([ -~]*[!-~])?$",
    },
    "example": "0c7c35b6-6f29-4d0b-b5a4-3c3f3f7f3a55",
}


def install_openapi(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Sets the app's `openapi`; the document is made when it is first requested."""
    routers = tuple(routers)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _schema(app, routers)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def api_routes(routers: Iterable[APIRouter]) -> Iterator[APIRoute]:
    """Every route of the routers."""
    for router in routers:
        yield from (route for route in router.routes if isinstance(route, APIRoute))


def required_by_route(routers: Iterable[APIRouter]) -> list[tuple[APIRoute, Requires]]:
    """The routes that require a token, and what each requires of its caller."""
    found = [(route, required_by(route)) for route in api_routes(routers)]
    return [(route, required) for route, required in found if required is not None]


def required_by(route: APIRoute) -> Requires | None:
    """What a route requires of its caller; None: nothing, not even a token."""
    return _find_requires(route.dependant)


def _find_requires(dependant: Dependant) -> Requires | None:
    for one in dependant.dependencies:
        if isinstance(one.call, Requires):
            return one.call
        below = _find_requires(one)
        if below is not None:
            return below
    return None


def _schema(app: FastAPI, routers: tuple[APIRouter, ...]) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title,
        version=version("redrive"),
        openapi_version="3.1.0",
        summary="The admin API of Redrive",
        description=_DESCRIPTION,
        routes=app.routes,
    )
    components = schema.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = _PROBLEM
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "Made by `redrive token create`: rd_…"}
    }
    for route in api_routes(routers):
        if not route.include_in_schema:
            continue
        for method in route.methods or ():
            _complete(schema["paths"][route.path_format][method.lower()], method, required_by(route))
    return schema


def _complete(operation: dict[str, Any], method: str, requires: Requires | None) -> None:
    """Adds to an operation what all operations of its kind have."""
    operation[ROLE] = "none" if requires is None else str(requires.role)
    operation["security"] = [] if requires is None else [{"token": []}]
    if requires is not None:
        operation[PAYLOADS] = requires.payloads
        operation[EVERY_QUEUE] = requires.every_queue
    if isinstance(requires, RequiresBeyondLoopback):
        operation[OPEN_ON_LOOPBACK] = True
    if method == "POST" and requires is not None:
        operation.setdefault("parameters", []).append(_KEY)
    responses = operation.setdefault("responses", {})
    for status in sorted(_statuses(operation, method, requires)):
        name, text = _TEXTS[status]
        own = responses.get(str(status), {})
        if status != 422 and own.get("content"):
            continue
        responses[str(status)] = _problem_response(status, name, own.get("description") or text)
    operation["responses"] = dict(sorted(responses.items()))


def _statuses(operation: dict[str, Any], method: str, requires: Requires | None) -> set[int]:
    parameters = operation.get("parameters", [])
    found = {int(status) for status in operation.get("responses", {}) if status in map(str, _TEXTS)}
    found |= {503}
    if requires is not None:
        found |= {401, 403, 422, 429}
    if any(one["in"] == "path" for one in parameters):
        found |= {404}
    if parameters or "requestBody" in operation:
        found |= {422}
    if method != "GET":
        found |= {408, 409, 413, 422}
    if any(one["in"] == "header" and one["name"].lower() == "if-match" for one in parameters):
        found |= {412} | ({428} if method == "PATCH" else set())
    return found


def _problem_response(status: int, name: str, text: str) -> dict[str, Any]:
    example = {
        "type": f"urn:redrive:problem:{name}",
        "title": text.split(",", 1)[0].rstrip("."),
        "status": status,
        "detail": text,
        "instance": "/api/v1/messages",
    }
    response: dict[str, Any] = {
        "description": text,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return response
