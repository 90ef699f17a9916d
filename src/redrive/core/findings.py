"""Findings: what is wrong or doubtful somewhere, as values.

Many findings are reported at once, so they are not exceptions. A finding has the address of what it is about and, if it
comes from a file, its position there. How it is shown is decided elsewhere.
"""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad: an error stops the work, a warning is printed and the work goes on."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a file, counted from 1 as editors do."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong (`summary`), where (`address`, `position`), and the way out (`hint`).

    `code` is stable and made for machines: `unknown-key`, `duplicate-queue`, …
    """

    code: str
    severity: Severity = Severity.ERROR
    address: str
    summary: str
    hint: str = ""
    position: Position | None = None

    @property
    def text(self) -> str:
        """The finding as one sentence, its place first."""
        place = self.address if self.position is None else f"{self.position}: {self.address}"
        sentence = f"{place}: {self.summary}" if place else self.summary
        return f"{sentence}; {self.hint}" if self.hint else sentence
