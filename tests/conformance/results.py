"""What a run of a suite found: read from pytest's JUnit report, counted, and compared with another run."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_REASON_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run. `others` are the tests that did not pass: name → (failed or skipped, the reason's first line)."""

    broker: str
    date: str
    duration_s: float
    passed: int
    others: Mapping[str, tuple[str, str]]

    @property
    def failed(self) -> int:
        return sum(outcome == FAILED for outcome, _ in self.others.values())

    @property
    def skipped(self) -> int:
        return sum(outcome == SKIPPED for outcome, _ in self.others.values())

    @property
    def total(self) -> int:
        return self.passed + len(self.others)

    def to_json(self) -> dict[str, Any]:
        return {
            "broker": self.broker,
            "date": self.date,
            "duration_s": round(self.duration_s, 1),
            "passed": self.passed,
            "failed": self.failed,
            "skipped": self.skipped,
            "did_not_pass": {name: list(what) for name, what in sorted(self.others.items())},
        }

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> "Result":
        return Result(
            broker=kept["broker"],
            date=kept["date"],
            duration_s=kept["duration_s"],
            passed=kept["passed"],
            others={name: (outcome, reason) for name, (outcome, reason) in kept["did_not_pass"].items()},
        )


def read_junit(file: Path, *, broker: str, date: str) -> Result:
    """A run's result. A test that also errs while it is torn down is one test, and has failed."""
    suite = ElementTree.parse(file).getroot().find("testsuite")
    if suite is None:
        raise ValueError(f"{file.name} is no JUnit report")
    outcomes: dict[str, tuple[str, str]] = {}
    for name, (outcome, reason) in _number_repeats(map(_case, suite.iter("testcase"))):
        if outcomes.get(name, (PASSED, ""))[0] != FAILED:
            outcomes[name] = (outcome, reason)
    others = {name: what for name, what in outcomes.items() if what[0] != PASSED}
    return Result(
        broker=broker,
        date=date,
        duration_s=float(suite.get("time", "0")),
        passed=len(outcomes) - len(others),
        others=others,
    )


def only_ours(embedded: Result, real: Result) -> list[str]:
    """The tests that pass on the real broker and fail on ours."""
    return sorted(
        name for name, (outcome, _) in embedded.others.items() if outcome == FAILED and name not in real.others
    )


def only_theirs(embedded: Result, real: Result) -> list[str]:
    """The tests that fail on the real broker and pass on ours."""
    return sorted(
        name for name, (outcome, _) in real.others.items() if outcome == FAILED and name not in embedded.others
    )


def fail_on_both(embedded: Result, real: Result) -> list[str]:
    """The tests that fail on the one and on the other."""
    failed = [{name for name, (outcome, _) in each.others.items() if outcome == FAILED} for each in (embedded, real)]
    return sorted(failed[0] & failed[1])


_Case = tuple[str, tuple[str, str]]


def _case(element: ElementTree.Element) -> _Case:
    name = f"{element.get('classname', '')}::{element.get('name', '')}"
    for tag, outcome in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
        found = element.find(tag)
        if found is not None:
            lines = (found.get("message") or "").strip().splitlines() or [""]
            return name, (outcome, _without_chance(lines[0])[:_REASON_MAX])
    return name, (PASSED, "")


def _without_chance(reason: str) -> str:
    """A reason as any machine would give it: without addresses in memory, ports, and the way to a file."""
    return re.sub(r"(?<![\w./])/(?:[^/\s'\"]+/)+", "…/", re.sub(r"0x[0-9a-f]+|(?<='127\.0\.0\.1', )\d+", "…", reason))


def _number_repeats(cases: Iterable[_Case]) -> Iterable[_Case]:
    """A name may be used by several tests (parameters with one text); an error while tearing down repeats it, too."""
    seen: Counter[str] = Counter()
    previous = ""
    for name, what in cases:
        is_teardown = name == previous and what[1].startswith("failed on teardown")
        previous = name
        if not is_teardown:
            seen[name] += 1
        count = seen[name]
        yield (name if count == 1 else f"{name} ({count})"), what
