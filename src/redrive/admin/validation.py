"""Invalid requests, described in sentences: which part is wrong, why, and what to write instead.

The value itself is never shown, because it may be a payload. A query parameter that a route does not take is refused
like one that can't be read: a misspelt filter must not be answered as if there were none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from redrive.core import did_you_mean

_SHOWN_MAX = 20
_AS_JSON = "send it as JSON, with the header Content-Type: application/json"
_TEXTS = {
    "missing": "is missing; add it",
    "extra_forbidden": "is not known; leave it out, or see /docs for what there is",
    "string_type": "must be a text",
    "string_pattern_mismatch": "does not have the form that /docs describes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}
"""By pydantic's error types."""
_BOUNDS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
}


def validation_problems(error: RequestValidationError) -> list[dict[str, str]]:
    """Every invalid part: where (`at`), what is wrong (`problem`), and both as a sentence (`text`)."""
    found = error.errors()[:_SHOWN_MAX]
    if isinstance(error.body, bytes) and any(tuple(one["loc"]) == ("body",) for one in found):
        return [_described("body", "the body", f"is not sent as JSON; {_AS_JSON}")]
    return [_problem(one) for one in found]


def unknown_parameter(request: Request) -> dict[str, str] | None:
    """The first query parameter that the route does not take, described likewise; None if it takes all."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.query_params:
        return None
    known = set(_query_names(route.dependant))
    for name in request.query_params:
        if name not in known:
            hint = did_you_mean(name, known) or "none is known here"
            return _described(f"query.{short(name)}", f"the parameter `{short(name)}`", f"is not known; {hint}")
    return None


def short(text: str) -> str:
    """A text from a request, short and printable."""
    shown = text if len(text) <= 100 else f"{text[:100]}…"
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (one.alias for one in dependant.query_params)
    for below in dependant.dependencies:
        yield from _query_names(below)


def _problem(one: Mapping[str, Any]) -> dict[str, str]:
    steps, kind = tuple(one["loc"]), one["type"]
    if kind == "json_invalid":
        reason = one.get("ctx", {}).get("error", "it can't be read")
        return _described("body", "the body", f"is no JSON: {reason} at character {steps[-1]}; {_AS_JSON}")
    if kind == "missing" and steps == ("body",):
        return _described("body", "the body", f"is missing; {_AS_JSON}")
    return _described(".".join(short(str(step)) for step in steps), _subject(steps), _predicate(one))


def _subject(steps: tuple[Any, ...]) -> str:
    where, name = str(steps[0]) if steps else "", ".".join(short(str(step)) for step in steps[1:])
    match where:
        case "query":
            return f"the parameter `{name}`"
        case "header":
            return f"the header `{name}`"
        case "path":
            return f"`{name}` in the path"
        case _:
            return f"`{name}` in the body" if name else "the body"


def _predicate(one: Mapping[str, Any]) -> str:
    kind, context = str(one["type"]), one.get("ctx", {})
    if kind in _TEXTS:
        return _TEXTS[kind]
    if kind in _BOUNDS:
        return _BOUNDS[kind].format_map(context)
    if kind.startswith(("datetime_", "timezone_")):
        return "is no date and time; write it like 2026-01-31T12:00:00Z"
    if kind == "value_error":
        return f"can't be used: {context.get('error', 'see /docs')}"
    return f"can't be used: {one['msg']}"


def _described(at: str, subject: str, predicate: str) -> dict[str, str]:
    return {"at": at, "problem": predicate, "text": f"{subject} {predicate}"}


def sentences(problems: Iterable[Mapping[str, str]]) -> str:
    """All of them as one text."""
    return "; ".join(one["text"] for one in problems) or "the request does not have the documented shape; see /docs"
