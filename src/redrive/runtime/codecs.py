"""Codecs: from a body to a handler's argument, and from what a handler publishes to a body.

A codec is one object with two methods. `Json` is the default: msgspec reads dataclasses, TypedDicts, its own structs
and plain JSON, pydantic its models. With any codec, a body declared as `bytes` is passed as it came, and one declared
as `str` as its text.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import msgspec.inspect
import msgspec.json

Reader = Callable[[bytes], Any]


class UnsupportedType(TypeError):
    """A type that bodies can't be read into."""


class Codec(Protocol):
    """How bodies are read and written."""

    content_type: str
    """What a published message says its body is."""

    def reader(self, body_type: Any) -> Reader:
        """A function from a body to a value of the type; whatever it raises makes the message undecodable.

        Raises `UnsupportedType` for a type the codec can't read, once, when the app starts.
        """

    def write(self, value: Any) -> bytes:
        """A value as a body. Raises TypeError or ValueError for one that can't be written."""


class Json:
    """JSON, typed by the handler's annotation."""

    content_type = "application/json"

    def reader(self, body_type: Any) -> Reader:
        """Reads JSON into the type."""
        if hasattr(body_type, "__pydantic_validator__"):
            return _pydantic_reader(body_type)
        return _typed_reader(body_type)

    def write(self, value: Any) -> bytes:
        """A value as JSON; dataclasses and models become objects."""
        dump = getattr(value, "model_dump_json", None)
        if callable(dump):
            return str(dump()).encode()
        return msgspec.json.encode(value)


JSON = Json()


def is_codec(value: object) -> bool:
    """Whether it is an object with a codec's methods and its content type; a class is none."""
    return (
        not isinstance(value, type)
        and callable(getattr(value, "reader", None))
        and callable(getattr(value, "write", None))
        and isinstance(getattr(value, "content_type", None), str)
    )


def body_reader(codec: Codec, body_type: Any) -> Reader | None:
    """How a body becomes a handler's first argument; None: as it came. Raises `UnsupportedType`."""
    if body_type is bytes:
        return None
    if body_type is str:
        return lambda body: body.decode()
    return codec.reader(body_type)


def _pydantic_reader(body_type: Any) -> Reader:
    validate = getattr(body_type, "model_validate_json", None)
    if validate is not None:
        read: Reader = validate
        return read
    return _adapted(body_type)  # a pydantic dataclass


def _adapted(body_type: Any) -> Reader:
    from pydantic import TypeAdapter  # an app with a model has pydantic

    read: Reader = TypeAdapter(body_type).validate_json
    return read


def _typed_reader(body_type: Any) -> Reader:
    try:
        odd = _unknown_part(msgspec.inspect.type_info(body_type), set())
        decode: Reader = msgspec.json.Decoder(body_type).decode
    except TypeError as error:
        raise UnsupportedType(str(error)) from None
    if odd is None:
        return decode
    if hasattr(odd, "__pydantic_validator__"):  # list[Model] and the like
        return _adapted(body_type)
    raise UnsupportedType(
        f"a body can't be read into {getattr(odd, '__qualname__', odd)}; use a dataclass, a dict, bytes or str"
    )


def _unknown_part(info: Any, seen: set[Any]) -> Any:
    """A type that msgspec would only notice when the first message comes; None if it knows them all."""
    if type(info).__name__ == "CustomType":
        return info.cls
    parts = []
    if hasattr(info, "fields") and info.cls not in seen:
        seen.add(info.cls)
        parts = [one.type for one in info.fields]
    for name in ("type", "item_type", "key_type", "value_type"):
        parts += [getattr(info, name)] if hasattr(info, name) else []
    for name in ("types", "item_types"):
        parts += getattr(info, name, ())
    return next((odd for odd in (_unknown_part(part, seen) for part in parts) if odd is not None), None)
