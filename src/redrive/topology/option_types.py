"""The types of value an option can have: how each is parsed, its errors, and its JSON Schema.

A type serves YAML and Python: the YAML reader parses every option to collect the problems, and a shape parses its
options when it is constructed. `parse` is idempotent: it returns the canonical form of what people write (a duration
stays text, `90s` becomes `1m30s`), so that shapes print and compare as they read.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, Protocol

from redrive.core import InvalidDuration, did_you_mean, format_duration_ms
from redrive.core import parse_duration_ms as _parse_duration_ms
from redrive.topology.arguments import MESSAGE_TTL_MAX_MS

DurationText = str | timedelta
"""A duration as an author gives it: `"30s"` or a timedelta."""

Path = tuple[str | int, ...]
"""Where in a declaration: `("queues", "orders", "retry", "delays", 1)`."""

parse_duration_ms = lru_cache(maxsize=4096)(_parse_duration_ms)
"""`core.parse_duration_ms`, cached: ten thousand queues have the same three delays."""

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Invalid(ValueError):
    """A value that its type refuses: what is wrong, what to do, and where below the option (`path`).

    `others` are further problems in the same value, in their order.
    """

    def __init__(self, summary: str, hint: str = "", path: Path = (), others: tuple["Invalid", ...] = ()) -> None:
        self.summary = summary
        self.hint = hint
        self.path = path
        self.others = others
        super().__init__(f"{summary}; {hint}" if hint else summary)


class OptionType(Protocol):
    """What every type of option can do."""

    def parse(self, value: Any) -> Any:
        """The canonical form of a value. Raises `Invalid`."""

    def schema(self) -> dict[str, Any]:
        """The type as JSON Schema, for editors."""


def option(option_type: OptionType, default: Any, doc: str) -> Any:
    """A dataclass field that carries its type and its one-line explanation."""
    return field(default=default, metadata={"type": option_type, "doc": doc})


def describe(value: Any) -> str:
    """A value for an error message, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    if isinstance(value, int):
        return describe_number(value)
    if isinstance(value, float):
        return str(value)
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else type(value).__name__


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but the empty one; None stands for "not given" where it is optional."""

    optional: bool = False

    def parse(self, value: Any) -> str | None:
        """The text itself."""
        if value is None and self.optional:
            return None
        if not isinstance(value, str) or not value:
            raise Invalid(f"must be text, not {describe(value)}", quote_hint(value))
        return value

    def schema(self) -> dict[str, Any]:
        """A non-empty string."""
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def parse(self, value: Any) -> bool:
        """The flag itself. Words and numbers are refused: they are too easily read the wrong way round."""
        if not isinstance(value, bool):
            raise Invalid(f"must be true or false, not {describe(value)}")
        return value

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number in a range; None stands for "not given" where it is optional."""

    minimum: int
    maximum: int
    why: str = ""
    optional: bool = False

    def parse(self, value: Any) -> int | None:
        """The number itself."""
        if value is None and self.optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise Invalid(f"must be a whole number, not {describe(value)}")
        if not self.minimum <= value <= self.maximum:
            raise Invalid(f"must be from {self.minimum} to {self.maximum}, not {describe_number(value)}", self.why)
        return value

    def schema(self) -> dict[str, Any]:
        """An integer with its bounds."""
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def parse(self, value: Any) -> str:
        """The word itself."""
        if value not in self.words:
            raise Invalid(f"must be one of {', '.join(self.words)}, not {describe(value)}", nearest(value, self.words))
        return str(value)

    def schema(self) -> dict[str, Any]:
        """An enumeration."""
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Duration:
    """A delay above 0, at most what the broker can hold."""

    def parse(self, value: Any) -> str:
        """The canonical text."""
        if isinstance(value, timedelta):
            value = f"{round(value / timedelta(milliseconds=1))}ms"
        if isinstance(value, bool) or not isinstance(value, str):
            is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15
            hint = f"write {value}s or {value}ms" if is_number else ""
            raise Invalid(f"must be a duration with its unit, like 30s or 5m, not {describe(value)}", hint)
        try:
            delay_ms = parse_duration_ms(value)
        except InvalidDuration as problem:
            raise Invalid(str(problem)) from None
        if delay_ms == 0:
            raise Invalid("a delay of 0 is no delay", "use shape requeue for immediate retries, or a delay from 1ms up")
        if delay_ms > MESSAGE_TTL_MAX_MS:
            raise Invalid(
                f"{describe(value)} is longer than RabbitMQ can hold a message",
                f"the longest delay is {format_duration_ms(MESSAGE_TTL_MAX_MS)}",
            )
        return format_duration_ms(delay_ms)

    def schema(self) -> dict[str, Any]:
        """A string that looks like a duration."""
        return {
            "type": "string",
            "pattern": r"^(?=.*\d) *(\d+ *d)? *(\d+ *h)? *(\d+ *m)? *(\d+(\.\d{1,3})? *s)? *(\d+ *ms)? *$",
            "examples": ["500ms", "30s", "5m", "1h30m"],
        }


_DURATION = Duration()
_DELAYS_MAX = 100


@dataclass(frozen=True, slots=True)
class Delays:
    """A list of delays, in the order they are used; one alone may stand without brackets."""

    at_most: int = _DELAYS_MAX
    why: str = "each delay is a queue of its own"

    def parse(self, value: Any) -> tuple[str, ...]:
        """The canonical texts."""
        if isinstance(value, str | timedelta):
            value = [value]
        if not isinstance(value, list | tuple):
            raise Invalid(f"must be a list of durations like [30s, 5m], not {describe(value)}")
        if not value:
            raise Invalid("is empty", "name at least one delay, or say retry: false")
        if len(value) > self.at_most:
            raise Invalid(f"has {len(value)} delays where {self.at_most} can be", self.why)
        parsed: list[str] = []
        problems: list[Invalid] = []
        for index, one in enumerate(value):
            try:
                parsed.append(_DURATION.parse(one))
            except Invalid as problem:
                problems.append(Invalid(problem.summary, problem.hint, (index, *problem.path)))
        if problems:
            first, *others = problems
            raise Invalid(first.summary, first.hint, first.path, tuple(others))
        return tuple(parsed)

    def schema(self) -> dict[str, Any]:
        """A list of durations, or one."""
        one = _DURATION.schema()
        return {"oneOf": [one, {"type": "array", "items": one, "minItems": 1, "maxItems": self.at_most}]}


@dataclass(frozen=True, slots=True)
class Template:
    """A name with placeholders, like `{queue}.wait.{delay}`."""

    placeholders: tuple[str, ...]
    required: tuple[str, ...] = ()

    def parse(self, value: Any) -> str:
        """The template itself, once its placeholders are known and the required ones are there."""
        if not isinstance(value, str) or not value:
            raise Invalid(f"must be a name like '{{{self.placeholders[0]}}}.x', not {describe(value)}")
        used = _PLACEHOLDER.findall(value)
        for name in used:
            if name not in self.placeholders:
                raise Invalid(f"{{{name}}} is not known here", nearest(name, self.placeholders))
        rest = _PLACEHOLDER.sub("", value)
        if "{" in rest or "}" in rest:
            raise Invalid(f"has a brace without its partner in {describe(value)}")
        for name in self.required:
            if name not in used:
                raise Invalid(f"needs {{{name}}} in it", f"without it two {name}s would share one queue")
        return value

    def schema(self) -> dict[str, Any]:
        """A string, its placeholders named in the description."""
        names = ", ".join(f"{{{name}}}" for name in self.placeholders)
        return {"type": "string", "minLength": 1, "description": f"may use {names}"}


def fill(template: str, **names: str) -> str:
    """A template with its placeholders filled in; names may hold braces of their own."""
    parts = _parts(template)
    if len(parts) == 1:
        return template
    return "".join([names[part] if index % 2 else part for index, part in enumerate(parts)])


@lru_cache(maxsize=1024)
def _parts(template: str) -> list[str]:
    """A template cut at its placeholders: text, name, text, name, …"""
    return _PLACEHOLDER.split(template)


def nearest(value: object, known: Iterable[str]) -> str:
    """`did you mean …?`, if the value is text."""
    return did_you_mean(value, known) if isinstance(value, str) else ""


def quote_hint(value: object) -> str:
    """The hint for a value that YAML turned into a boolean or a number, such as `on` or `5`."""
    return "put it in quotes" if isinstance(value, bool | int | float) else ""


def describe_number(value: int) -> str:
    """A number, or a phrase if it is far too long to print."""
    return str(value) if abs(value) < 10**30 else "a number that long"
