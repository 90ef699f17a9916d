"""The results of live tests by version, for the end of a test run, and whether a missing version fails it.

Pure: pytest's reports come in as words, lines to print go out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["passed", "failed", "skipped"]
SEVERITY: Mapping[Outcome, int] = {"passed": 0, "skipped": 1, "failed": 2}


@dataclass(kw_only=True)
class VersionSummary:
    """Outcomes of live tests. `expect` each selected test first, then `record` every phase of it; the worst counts."""

    _labels: dict[str, str] = field(default_factory=dict)
    _outcomes: dict[str, Outcome] = field(default_factory=dict)

    def expect(self, test: str, *, label: str) -> None:
        """`label`: the real label of the broker it runs on, or of the missing version it would have run on."""
        self._labels[test] = label

    def record(self, test: str, outcome: Outcome) -> None:
        if test in self._labels:
            before = self._outcomes.get(test, "passed")
            self._outcomes[test] = max(before, outcome, key=SEVERITY.__getitem__)

    @property
    def is_empty(self) -> bool:
        return not self._labels

    def count(self, label: str) -> Counter[str]:
        tests = [test for test, its_label in self._labels.items() if its_label == label]
        return Counter(self._outcomes.get(test, "not run") for test in tests)

    def table(self, versions: Mapping[str, str]) -> list[str]:
        """One line for each label of `versions`, in order: label → real version → what was run on it."""
        rows = [("label", "version", "ran", "passed", "failed", "skipped")]
        for label, version in versions.items():
            count = self.count(label)
            cells = [count["passed"] + count["failed"], count["passed"], count["failed"], count["skipped"]]
            rows.append((label, version, *map(str, cells)))  # type: ignore[arg-type]
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        return ["  ".join(_pad(row, widths)).rstrip() for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the closing summary says about missing versions, and whether they fail the run."""

    warnings: tuple[str, ...]
    fails: bool


def decide_verdict(missing: Mapping[str, str], *, ci: str) -> Verdict:
    """A missing version is a loud warning, and fails the run when CI is `true`: nobody reads warnings there."""
    warnings = [f"RabbitMQ {label} WAS NOT TESTED: {reason}" for label, reason in missing.items()]
    fails = bool(missing) and ci.strip().lower() in ("true", "1")
    if fails:
        warnings.append("CI=true: a missing version fails the run.")
    return Verdict(warnings=tuple(warnings), fails=fails)


def _pad(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [
        cell.ljust(width) if column < 2 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
