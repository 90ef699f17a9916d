"""Typed access to the fields of JSON objects, which collects every fault with its path.

A getter always returns a value of its type, so that reading goes on to the next fault. A caller that builds an object
compares `count` before and after.
"""

from dataclasses import replace
from typing import Any

from redrive.core import Finding, InvalidDefinitions, Severity
from redrive.topology.argument_table import NO_ARGUMENTS, Arguments
from redrive.topology.definitions.json_source import Document, Path, written

NESTING_MAX = 64
"""Levels of lists and objects in one value; deeper than any argument, and safe for everything that recurses."""

ABSENT: Any = object()
"""The value of a key that is not there; null is a value."""


class JsonFields:
    """Getters for the objects of one document, and the faults they found."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._faults: list[tuple[Path, Finding]] = []

    @property
    def count(self) -> int:
        """How many faults there are so far."""
        return len(self._faults)

    def name(self, item: dict[str, Any], path: Path, kind: str) -> str | None:
        """The object's name, None if it has none."""
        value = item.get("name", ABSENT)
        if isinstance(value, str):
            if value:
                return value
            self.fault((*path, "name"), "empty-name", f"is empty, and a {kind} needs a name")
        else:
            self.wrong((*path, "name"), value, "a text")
        return None

    def text(self, item: dict[str, Any], key: str, path: Path, *, default: str | None = None) -> str:
        """A text; absent is a fault unless there is a default."""
        value = item.get(key, ABSENT)
        if isinstance(value, str):
            return value
        if value is ABSENT and default is not None:
            return default
        self.wrong((*path, key), value, "a text")
        return ""

    def flag(self, item: dict[str, Any], key: str, path: Path, *, default: bool) -> bool:
        """true or false; absent is the default."""
        value = item.get(key, default)
        if value is True or value is False:
            return value is True
        self.wrong((*path, key), value, "true or false")
        return default

    def number(self, item: dict[str, Any], key: str, path: Path, *, default: int) -> float:
        """A number; absent is the default."""
        value = item.get(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        self.wrong((*path, key), value, "a number")
        return default

    def table(self, item: dict[str, Any], key: str, path: Path, *, needed: bool = False) -> Arguments:
        """An argument table; absent is an empty one unless it is needed, null never is."""
        value = item.get(key, ABSENT if needed else {})
        if not value and isinstance(value, dict | list):
            return NO_ARGUMENTS  # a PHP program, and 3.x itself in places, writes an empty map as []
        if isinstance(value, dict):
            return Arguments(self.plain(value, (*path, key)))
        self.wrong((*path, key), value, "an object")
        return NO_ARGUMENTS

    def extra(self, item: dict[str, Any], known: frozenset[str], path: Path) -> Arguments:
        """The keys that the model does not know."""
        if item.keys() <= known:
            return NO_ARGUMENTS
        return Arguments({key: self.plain(one, (*path, key)) for key, one in item.items() if key not in known})

    def plain(self, value: Any, path: Path) -> Any:
        """The value, if it is not nested beyond reason."""
        if isinstance(value, dict | list) and not _is_shallow(value, NESTING_MAX):
            self.fault(path, "too-deep", f"is nested more than {NESTING_MAX} levels deep", "no definitions are")
            return None if isinstance(value, list) else {}
        return value

    def wrong(self, path: Path, value: Any, wanted: str, hint: str = "") -> None:
        """Adds the fault that a value has the wrong type or is missing."""
        if value is ABSENT:
            self.fault(path, "missing-key", f"is missing; it must be {wanted}", hint)
        else:
            self.fault(path, "wrong-type", f"must be {wanted}, not {kind_of(value)}", hint)

    def fault(self, path: Path, code: str, summary: str, hint: str = "", severity: Severity = Severity.ERROR) -> None:
        """Adds a fault; with another severity, a warning."""
        address = written(path) or "definitions"
        finding = Finding(code=code, severity=severity, address=address, summary=summary, hint=hint)
        self._faults.append((path, finding))

    def finish(self) -> list[Finding]:
        """The warnings with their positions. Raises `InvalidDefinitions` if there are errors."""
        if not self._faults:
            return []
        places = self._document.positions(path for path, _ in self._faults)
        findings = [replace(one, position=places.get(path)) for path, one in self._faults]
        errors = [one for one in findings if one.severity is Severity.ERROR]
        if errors:
            raise InvalidDefinitions(errors)
        return findings


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in value if isinstance(one, dict | list))


def kind_of(value: Any) -> str:
    """What a JSON value is, in words that fit after "is" and "not"."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'the text "{value}"' if len(value) <= 40 else "a long text"
        case int() | float():
            return "a number" if isinstance(value, int) and value.bit_length() > 128 else f"the number {value}"
        case list():
            return "a list"
    return "an object"
