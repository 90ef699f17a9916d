"""Immutable argument tables.

RabbitMQ's arguments are open maps: known keys, plugins' keys, anything. `Arguments` holds one as a value: frozen all
the way down, hashable, compared by meaning (order does not matter, `5000` equals `5000.0`, but `true` is not `1`).
"""

import math
from collections.abc import ItemsView, Iterator, Mapping
from typing import Any, TypeAlias

Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | Arguments | None"
"""What an argument may be: JSON, with tuples for lists and `Arguments` for objects."""


class Arguments(Mapping[str, "Value"]):
    """A frozen map of argument names to values, in the order they were given."""

    __slots__ = ("_items",)
    _items: dict[str, Value]

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        """Freezes a plain map, nested lists and maps included."""
        if not items:
            self._items = {}
        elif isinstance(items, Arguments):
            self._items = items._items
        else:
            self._items = {str(key): _freeze(value) for key, value in items.items()}

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def items(self) -> ItemsView[str, Value]:
        """The dict's own view: the inherited one looks every key up again."""
        return self._items.items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Arguments):
            return NotImplemented
        # True == 1 in Python but not for the broker, so equal maps are compared by type once more.
        return self._items == other._items and all(
            _same_kind(value, other._items[key]) for key, value in self._items.items()
        )

    def __hash__(self) -> int:
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        return f"Arguments({self.thaw()!r})"

    def thaw(self) -> dict[str, Any]:
        """The same as plain dicts and lists, ready for JSON."""
        return {key: _thaw(value) for key, value in self._items.items()}

    def without(self, *keys: str) -> "Arguments":
        """The same without some keys."""
        return Arguments({key: value for key, value in self._items.items() if key not in keys})


NO_ARGUMENTS = Arguments()
"""The empty map, shared."""


def argument_problem(value: Any) -> str | None:
    """Why AMQP or JSON can't carry a value, as one phrase; None if both can."""
    if value is None:
        return "is empty; leave it out"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which JSON has no word for"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "is a number of more than 64 bits, which AMQP can't carry"
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return next((problem for one in inner if (problem := argument_problem(one)) is not None), None)


def _freeze(value: Any) -> Value:
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return Arguments(value)
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    return str(value)  # a date or the like from YAML: the broker only has text for it


def _thaw(value: Value) -> Any:
    if isinstance(value, Arguments):
        return value.thaw()
    if isinstance(value, tuple):
        return [_thaw(item) for item in value]
    return value


def _same_kind(left: Value, right: Value) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return all(map(_same_kind, left, right))
    return isinstance(left, bool) == isinstance(right, bool)
