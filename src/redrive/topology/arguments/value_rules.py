"""What a value may be: whole numbers in a range, one word of several, a text, yes or no, an age.

Each rule answers one question, `problem(value)`: what is wrong with it, as a phrase that follows the argument's name,
or None. The rules are strict about types because RabbitMQ is: `"5000"`, `5000.0` and `true` are no numbers to it.
"""

from dataclasses import dataclass
from typing import Protocol

from redrive.topology.argument_table import Arguments, Value

_SHOWN_MAX = 60


class ValueRule(Protocol):
    """What values an argument takes."""

    def problem(self, value: Value) -> str | None:
        """What is wrong with a value, or None."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number, from `least` to `most`, both included; None is no bound."""

    least: int | None = None
    most: int | None = None

    def problem(self, value: Value) -> str | None:
        """What is wrong with a value, or None."""
        if (
            type(value) is int
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
        ):
            return None
        return f"must be {self._range()}, not {shown(value)}"

    def _range(self) -> str:
        match self.least, self.most:
            case None, None:
                return "a whole number"
            case least, None:
                return f"a whole number from {least}"
            case None, most:
                return f"a whole number up to {most}"
            case least, most:
                return f"a whole number from {least} to {most}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words or numbers."""

    allowed: tuple[str | int, ...]

    def problem(self, value: Value) -> str | None:
        """What is wrong with a value, or None."""
        if type(value) in (str, int) and value in self.allowed:
            return None
        return f"must be one of {', '.join(map(str, self.allowed))}, not {shown(value)}"


@dataclass(frozen=True, slots=True)
class AnyText:
    """A text, the empty one included."""

    def problem(self, value: Value) -> str | None:
        """What is wrong with a value, or None."""
        return None if isinstance(value, str) else f"must be a text, not {shown(value)}"


@dataclass(frozen=True, slots=True)
class Boolean:
    """true or false."""

    def problem(self, value: Value) -> str | None:
        """What is wrong with a value, or None."""
        return None if isinstance(value, bool) else f"must be true or false, not {shown(value)}"


@dataclass(frozen=True, slots=True)
class Age:
    """A number above 0 and a unit: `7D`, `12h`. Below 4.3 a value without digits crashes the connection (541)."""

    def problem(self, value: Value) -> str | None:
        """What is wrong with a value, or None."""
        if isinstance(value, str) and value[-1:] in ("Y", "M", "D", "h", "m", "s"):
            digits = value[:-1]
            if digits.isascii() and digits.isdecimal() and digits.strip("0"):
                return None
        return f"must be a number above 0 and one of Y, M, D, h, m, s, like 7D or 12h, not {shown(value)}"


@dataclass(frozen=True, slots=True)
class Anything:
    """A value that only a plugin can judge."""

    def problem(self, value: Value) -> str | None:
        """Never anything."""
        return None


def shown(value: Value) -> str:
    """A value as people know it from their files, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= _SHOWN_MAX else f'"{value[:_SHOWN_MAX]}…"'
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, Arguments):
        return "an object"
    if isinstance(value, int) and value.bit_length() > 200:  # Python refuses to print a number of 5,000 digits
        return "a number of more than 60 digits"
    return str(value)
