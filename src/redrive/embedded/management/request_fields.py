"""Reads the fields of a request's body, with RabbitMQ's errors for wrong ones."""

from redrive.embedded.management.json_values import from_json
from redrive.embedded.management.replies import JSON, bad_request, key_missing

NAME_BYTES_MAX = 255
_FLAGS = {"true": True, "false": False}


def flag(fields: dict[str, JSON], name: str, *, default: bool = False) -> bool:
    """A boolean, or its name as text. Raises ApiError."""
    value = fields.get(name, default)
    if isinstance(value, str) and value in _FLAGS:
        return _FLAGS[value]
    if not isinstance(value, bool):
        raise bad_request(["not_boolean", value])
    return value


def text(fields: dict[str, JSON], name: str, default: str | None = None) -> str:
    """A text; without a default it is required. Raises ApiError."""
    if name not in fields and default is None:
        raise key_missing(name)
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise bad_request(f"{name} should be a text")
    return value


def short(name: str, kind: str) -> str:
    """A name or a key that AMQP can carry. Raises ApiError; RabbitMQ itself is this strict with queues only."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise bad_request(f"{kind} is no text") from None
    if size > NAME_BYTES_MAX:
        raise bad_request(f"{kind} should be less than {NAME_BYTES_MAX} bytes, actually was {size}\n")
    return name


def whole(fields: dict[str, JSON], name: str, default: int | None = None) -> int:
    """An integer, or its digits as text. Raises ApiError."""
    if name not in fields and default is None:
        raise key_missing(name)
    value = fields.get(name, default)
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(["not_integer", value])
    return value


def table(fields: dict[str, JSON], name: str) -> dict[str, JSON]:
    """An AMQP table; a missing one and [] are empty. Raises ApiError."""
    value = fields.get(name, {})
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} should be an object")
    converted = from_json(value)
    assert isinstance(converted, dict)
    return converted
