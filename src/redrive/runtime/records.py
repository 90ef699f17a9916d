"""Plain JSON into annotated Python, without any library: what dataclasses are usually made of.

A reader is worked out once for each type and checks as it goes: a missing field, a wrong type or a value outside an
enum raises `ValueError` with the path to it. Unknown keys are ignored, so that a publisher may add fields first.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Read = Callable[[Any], Any]


class UnsupportedType(TypeError):
    """A type that bodies can't be read into."""


def record_reader(wanted: Any) -> Read:
    """A function from parsed JSON to a value of the type, raising ValueError. Raises `UnsupportedType`."""
    return _reader(wanted, {})


def _reader(wanted: Any, known: dict[Any, Read]) -> Read:
    if wanted is Any or wanted is object:
        return lambda value: value
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is typing.Annotated:
        return _reader(arguments[0], known)
    if origin in (Union, types.UnionType):
        return _union(wanted, arguments, known)
    if origin is Literal:
        return _literal(arguments)
    if (origin or wanted) in (list, Sequence, set, frozenset, tuple):
        return _array(wanted, origin or wanted, arguments, known)
    if (origin or wanted) in (dict, Mapping):
        return _object(wanted, arguments, known)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return _converted(wanted, f"one of {', '.join(repr(one.value) for one in wanted)}")
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return _dataclass(wanted, known)
    raise UnsupportedType(
        f"a body can't be read into {getattr(wanted, '__qualname__', wanted)}; use a dataclass, bytes, str, dict, or"
        " install msgspec or pydantic"
    )


def _exactly(kind: type, *, called: str) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"expected {called}, got {_called(value)}")
        return value

    return read


def _float(value: Any) -> float:
    if type(value) is float or type(value) is int:
        return float(value)
    raise ValueError(f"expected a number, got {_called(value)}")


def _converted(convert: Callable[[Any], Any], called: str, *, of: tuple[type, ...] = (str, int)) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, of) or isinstance(value, bool):
            raise ValueError(f"expected {called}, got {_called(value)}")
        try:
            return convert(value)
        except (ValueError, ArithmeticError):
            raise ValueError(f"expected {called}, got {value!r}") from None

    return read


_SCALARS: dict[Any, Read] = {
    str: _exactly(str, called="a text"),
    int: _exactly(int, called="a whole number"),
    bool: _exactly(bool, called="true or false"),
    float: _float,
    None: _exactly(type(None), called="null"),
    type(None): _exactly(type(None), called="null"),
    datetime: _converted(datetime.fromisoformat, "a time like 2026-01-31T12:00:00Z", of=(str,)),
    date: _converted(date.fromisoformat, "a date like 2026-01-31", of=(str,)),
    time: _converted(time.fromisoformat, "a time of day like 12:00:00", of=(str,)),
    UUID: _converted(UUID, "a UUID", of=(str,)),
    Decimal: _converted(Decimal, "a decimal number"),
}


def _called(value: Any) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object"}
    return "null" if value is None else names.get(type(value), "an array")


def _union(wanted: Any, members: tuple[Any, ...], known: dict[Any, Read]) -> Read:
    rest = [one for one in members if one is not type(None)]
    readers = [_reader(one, known) for one in rest]
    if len(rest) < len(members) and len(readers) == 1:
        read_one = readers[0]
        return lambda value: None if value is None else read_one(value)

    def read(value: Any) -> Any:
        if value is None and len(rest) < len(members):
            return None
        for read_member in readers:
            try:
                return read_member(value)
            except ValueError:
                continue
        raise ValueError(f"expected {wanted}, got {_called(value)}")

    return read


def _literal(allowed: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        for one in allowed:
            if type(one) is type(value) and one == value:
                return one
        raise ValueError(f"expected one of {', '.join(map(repr, allowed))}, got {value!r}")

    return read


def _array(wanted: Any, kind: Any, arguments: tuple[Any, ...], known: dict[Any, Read]) -> Read:
    if kind is tuple and arguments and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        raise UnsupportedType(f"a body can't be read into {wanted}; use list[…] or tuple[…, ...]")
    read_item = _reader(arguments[0], known) if arguments else _reader(Any, known)
    make = {Sequence: list}.get(kind, kind)

    def read(value: Any) -> Any:
        if type(value) is not list:
            raise ValueError(f"expected an array, got {_called(value)}")
        items = []
        for place, item in enumerate(value):
            try:
                items.append(read_item(item))
            except ValueError as error:
                raise ValueError(f"[{place}]: {error}") from None
        return items if make is list else make(items)

    return read


def _object(wanted: Any, arguments: tuple[Any, ...], known: dict[Any, Read]) -> Read:
    if arguments and arguments[0] not in (str, Any):
        raise UnsupportedType(f"a body can't be read into {wanted}: the keys of a JSON object are texts")
    read_value = _reader(arguments[1], known) if arguments else _reader(Any, known)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise ValueError(f"expected an object, got {_called(value)}")
        found = {}
        for key, item in value.items():
            try:
                found[key] = read_value(item)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        return found

    return read


def _dataclass(wanted: type, known: dict[Any, Read]) -> Read:
    if wanted in known:
        return known[wanted]
    known[wanted] = lambda value: read(value)  # it may hold itself
    hints = get_type_hints(wanted)
    fields = [one for one in dataclasses.fields(wanted) if one.init]
    readers = tuple((one.name, _reader(hints[one.name], known)) for one in fields)
    optional = {
        one.name
        for one in fields
        if one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING
    }

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise ValueError(f"expected an object, got {_called(value)}")
        arguments = {}
        for name, read_field in readers:
            if name in value:
                try:
                    arguments[name] = read_field(value[name])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
            elif name not in optional:
                raise ValueError(f"{name} is missing")
        return wanted(**arguments)

    return read
