"""Typed access to plain data that collects every problem instead of stopping at the first."""

from collections.abc import Mapping
from typing import Any

from redrive.core import Finding
from redrive.topology.declaration.model import Locate, finding_at
from redrive.topology.names import name_problem
from redrive.topology.option_types import Count, Flag, Invalid, OptionType, Path, Text, describe, nearest, quote_hint

TEXT = Text()
FLAG = Flag()
PAUSE_AFTER = Count(0, 1_000_000, "0 never pauses, which is the default", optional=True)


class DataReader:
    """Reads the values of one declaration. A wrong value becomes a finding in `findings`, and is read as a harmless
    default."""

    def __init__(self, locate: Locate) -> None:
        self.locate = locate
        self.findings: dict[tuple[Path, str], Finding] = {}

    def mapping(self, data: Any, path: Path, known: tuple[str, ...] | None = None) -> dict[str, Any]:
        """A mapping with known text keys; {} for None, and for anything else with a finding."""
        if data is None:
            return {}
        if not isinstance(data, Mapping):
            hint = f"known here: {', '.join(known)}" if known else "write name: value"
            self.report(path, "wrong-type", f"must be a mapping, not {describe(data)}", hint)
            return {}
        entries: dict[str, Any] = {}
        for key, value in data.items():
            if not isinstance(key, str):
                self.report(path, "wrong-type", f"has the key {describe(key)}, which is no text", quote_hint(key))
            elif known is not None and key not in known:
                self.report((*path, key), "unknown-key", f"{describe(key)} is not known here", nearest(key, known))
            else:
                entries[key] = value
        return entries

    def name(self, value: Any, path: Path, kind: str) -> str | None:
        """A name that RabbitMQ takes."""
        if self.value(value, path, TEXT) is None:
            return None
        problem = name_problem(value, kind)
        if problem is not None:
            self.report(path, "bad-name", problem, "rename it")
        return str(value)

    def flag(self, entry: Mapping[str, Any], key: str, path: Path, default: bool) -> bool:
        """true or false under a key."""
        value = entry.get(key)
        return default if value is None else bool(self.value(value, (*path, key), FLAG))

    def value(self, value: Any, path: Path, option_type: OptionType) -> Any:
        """A value that its type accepts, None otherwise."""
        try:
            return option_type.parse(value)
        except Invalid as problem:
            for one in (problem, *problem.others):
                self.report((*path, *one.path), "invalid-value", one.summary, one.hint)
            return None

    def report(self, path: Path, code: str, summary: str, hint: str = "") -> None:
        """Adds a finding; the same one at the same place once."""
        finding = finding_at(path, locate=self.locate, code=code, summary=summary, hint=hint)
        self.findings.setdefault((path, summary), finding)
