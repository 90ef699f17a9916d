"""A table's value as RabbitMQ's error texts show it: its type's Erlang name, and the value in Erlang's writing."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from redrive import wire

_TYPE_NAMES: dict[type, str] = {
    bool: "bool",
    str: "longstr",
    wire.LongString: "longstr",
    type(None): "void",
    float: "double",
    wire.Float32: "float",
    list: "array",
    dict: "table",
    bytes: "binary",
    datetime: "timestamp",
    wire.Timestamp: "timestamp",
    wire.Int8: "byte",
    wire.UInt8: "unsignedbyte",
    wire.Int16: "short",
    wire.UInt16: "unsignedshort",
    wire.UInt32: "unsignedint",
    wire.Int64: "long",
    wire.LongLong: "long",
    Decimal: "decimal",
}


def type_name(value: Any) -> str:
    """`signedint`, `longstr` and so on."""
    if type(value) is int:
        return "signedint" if -0x80000000 <= value <= 0x7FFFFFFF else "long"
    return _TYPE_NAMES.get(type(value), "binary")


def is_integer(value: Any) -> bool:
    """Whether RabbitMQ takes it for a whole number; booleans and timestamps are none."""
    return isinstance(value, int) and not isinstance(value, bool | wire.Timestamp)


def type_class(value: Any) -> str:
    """Types that RabbitMQ compares with one another: all integers are one, all fractions another."""
    if is_integer(value):
        return "int"
    if isinstance(value, float | Decimal):
        return "float"
    return type_name(value)


def erlang(value: Any) -> str:
    """The value itself in a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "undefined"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
