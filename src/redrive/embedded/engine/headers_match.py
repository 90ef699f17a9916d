"""How a headers exchange decides: a binding's arguments against a message's headers."""

from collections.abc import Mapping
from typing import Any

from redrive.embedded.engine.amqp_errors import precondition
from redrive.embedded.engine.amqp_values import erlang, is_integer, type_class, type_name

KINDS = ("all", "any", "all-with-x", "any-with-x")


def check_match(arguments: Mapping[str, Any]) -> None:
    """Refuses an x-match that RabbitMQ refuses."""
    if "x-match" not in arguments:
        return
    kind = arguments["x-match"]
    if not isinstance(kind, str):
        raise precondition(f"Invalid x-match field type {type_name(kind)} (value {erlang(kind)}); expected longstr")
    if kind not in KINDS:
        raise precondition(f'Invalid x-match field value <<"{kind}">>; expected all, any, all-with-x, or any-with-x')


def headers_match(arguments: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """Whether a binding takes a message. Without the `-with-x` kinds, arguments that begin with `x-` don't count.

    A void value asks only that the header is there. Nothing to compare: `all` matches everything, `any` nothing.
    """
    kind = arguments.get("x-match", "all")
    with_x = kind.endswith("-with-x")
    wanted = [
        (name, value)
        for name, value in arguments.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    ]
    hits = (name in headers and (value is None or _equal(value, headers[name])) for name, value in wanted)
    return any(hits) if kind.startswith("any") else all(hits)


def _equal(wanted: Any, given: Any) -> bool:
    if is_integer(wanted) and is_integer(given):
        return bool(wanted == given)
    return type_class(wanted) == type_class(given) and bool(wanted == given)
