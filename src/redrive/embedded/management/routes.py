"""Maps paths to handlers. A route is words and `{names}`; the names are the handler's arguments.

Segments are percent-decoded one by one, so that a vhost called "/" is one segment ("%2F"). An empty segment is a name
too: the default exchange's.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote

from redrive.embedded.management.broker_view import BrokerView
from redrive.embedded.management.replies import JSON, ApiError, Reply, bad_request, object_not_found

_TARGET_BYTES_MAX = 8 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a handler: the broker, the user, the query, headers and body."""

    view: BrokerView
    user: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def fields(self) -> dict[str, JSON]:
        """The body as an object; an empty one is {}. Raises ApiError."""
        content = read_json(self.body, "not_json") if self.body.strip() else {}
        if not isinstance(content, dict):
            raise bad_request("not_json")
        return content


Handler: TypeAlias = Callable[..., Reply]
"""Takes the request, and each name of its route."""


class Routes:
    """A table of routes."""

    def __init__(self) -> None:
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Handler]]]] = {}

    def add(self, route: str, **handlers: Handler) -> None:
        """Add the handlers of a route, by method in lower case: `add("vhosts/{vhost}", get=…, put=…)`."""
        parts = tuple(route.split("/"))
        upper = {method.upper(): handler for method, handler in handlers.items()}
        self._by_length.setdefault(len(parts), []).append((parts, upper))

    def find(self, method: str, segments: list[str]) -> tuple[Handler, dict[str, str]]:
        """The handler and its arguments. Raises ApiError (404, or 405 with the allowed methods)."""
        for parts, handlers in self._by_length.get(len(segments), ()):
            if not all(part[:1] == "{" or part == segment for part, segment in zip(parts, segments, strict=True)):
                continue
            names = {part[1:-1]: segment for part, segment in zip(parts, segments, strict=True) if part[:1] == "{"}
            if method in handlers:
                return handlers[method], names
            if method == "HEAD" and "GET" in handlers:
                return handlers["GET"], names
            allowed = {"allow": ", ".join([*(["HEAD"] if "GET" in handlers else []), *handlers, "OPTIONS"])}
            if method == "OPTIONS":
                return _options(allowed), names
            raise ApiError(405, "method_not_allowed", f"{method} is not for this address", allowed)
        raise object_not_found()


def _options(allowed: dict[str, str]) -> Handler:
    return lambda _request, **_names: Reply(headers=allowed)


def split_target(target: str) -> tuple[list[str], dict[str, str]]:
    """The segments after /api, decoded, and the query. Raises ApiError (404, 414)."""
    if len(target) > _TARGET_BYTES_MAX:
        raise ApiError(414, "bad_request", "the address is too long")
    path, _, query = target.partition("?")
    try:
        segments = [unquote(part, errors="strict") for part in path.split("/")]
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=100)
    except ValueError:  # not UTF-8, or a hundred fields
        raise object_not_found() from None
    if segments[:2] != ["", "api"]:
        raise object_not_found()
    names = segments[2:]
    return names[:-1] if len(names) > 1 and names[-1] == "" else names, dict(pairs)


def read_json(text: bytes, otherwise: str) -> JSON:
    """JSON, or a bad request with that reason."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise bad_request(otherwise) from None
