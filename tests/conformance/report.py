"""Prints the table, keeps the results in bench/results/conformance.json, writes docs/conformance.md from them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.results import Result, fail_on_both, only_ours, only_theirs
from tests.conformance.suites import SUITES, Suite

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "conformance.json"
PAGE = ROOT / "docs" / "conformance.md"

Kept = dict[str, dict[str, Any]]
"""suite → {"version", "profile", "embedded": Result, "real": Result}; either may be missing."""


def load(file: Path = RESULTS) -> Kept:
    """What earlier runs found."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def keep(kept: Kept, suite: Suite, profile: str, results: Mapping[str, Result]) -> None:
    """Add a run's results; those of another version or profile than these go."""
    entry = kept.get(suite.name, {})
    if (entry.get("version"), entry.get("profile")) != (suite.version, profile):
        entry = {"version": suite.version, "profile": profile}
    kept[suite.name] = entry | {side: result.to_json() for side, result in results.items()}


def save(kept: Kept) -> None:
    """Write the results and the page."""
    ordered = {suite.name: kept[suite.name] for suite in SUITES if suite.name in kept}
    RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(ordered), encoding="utf-8")


def side(kept: Kept, suite: Suite, name: str) -> Result | None:
    """One side's last result."""
    found = kept.get(suite.name, {}).get(name)
    return None if found is None else Result.from_json(found)


def table(kept: Kept) -> str:
    """The table for a terminal."""
    rows = [("suite", "version", "embedded", "real", "only ours fails")]
    lost: list[str] = []
    for suite in SUITES:
        if suite.name not in kept:
            continue
        embedded, real = side(kept, suite, "embedded"), side(kept, suite, "real")
        worse = _worse(suite, embedded, real)
        rows.append((suite.name, suite.version, _counts(embedded), _counts(real), str(len(worse))))
        lost += [f"  {suite.name}: {name}" for name in worse]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if lost:
        lines += ["", "Pass on the real broker and fail on ours:", *lost]
    return "\n".join(lines)


def page(kept: Kept) -> str:
    """docs/conformance.md."""
    return "\n".join([_HEAD, _page_table(kept), "", _HOW, *_page_failures(kept)]) + "\n"


def _page_table(kept: Kept) -> str:
    lines = [
        "| suite | version | profile | embedded: passed of all (skipped) | RabbitMQ: passed of all (skipped) "
        "| only ours fails | left out | run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for suite in SUITES:
        if suite.name not in kept:
            continue
        embedded, real = side(kept, suite, "embedded"), side(kept, suite, "real")
        worse = "?" if embedded is None or real is None else str(len(_worse(suite, embedded, real)))
        cells = (suite.name, kept[suite.name]["version"], kept[suite.name]["profile"], _of(embedded), _of(real), worse)
        run = "–" if embedded is None else embedded.date
        lines.append(f"| {' | '.join(cells)} | {suite.left_out} | {run} |")
    return "\n".join(lines)


def _page_failures(kept: Kept) -> list[str]:
    """Every failure, sorted by what it says about us."""
    ours, both, theirs = [], [], []
    for suite in SUITES:
        embedded, real = side(kept, suite, "embedded"), side(kept, suite, "real")
        if embedded is None or real is None:
            continue
        ours += [_line(suite, embedded, test) for test in _worse(suite, embedded, real)]
        theirs += [_line(suite, real, test) for test in only_theirs(embedded, real) if not suite.is_unsteady(test)]
        both += [_line(suite, embedded, test) for test in fail_on_both(embedded, real) if not suite.is_unsteady(test)]
    unsteady = [f"- {suite.name} `{test}…`: {why}" for suite in SUITES for test, why in suite.unsteady.items()]
    parts = {
        "Fail on the embedded broker only": ours,
        "Fail on both": both,
        "Fail on RabbitMQ only": theirs,
        "Fail by chance on both": unsteady,
    }
    return [line for title, lines in parts.items() for line in ("", f"## {title}", "", *(lines or ["None."]))]


def _worse(suite: Suite, embedded: Result | None, real: Result | None) -> list[str]:
    if embedded is None or real is None:
        return []
    return [test for test in only_ours(embedded, real) if not suite.is_unsteady(test)]


def _line(suite: Suite, result: Result, test: str) -> str:
    reason = result.others[test][1]
    return f"- {suite.name} `{test}`" + (f": {reason}" if reason else "")


def _counts(result: Result | None) -> str:
    if result is None:
        return "not run"
    return f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped ({result.broker})"


def _of(result: Result | None) -> str:
    if result is None:
        return "not run"
    skipped = f" ({result.skipped})" if result.skipped else ""
    return f"{result.passed} of {result.total}{skipped}, on {result.broker}"


_HEAD = """\
# Conformance: other people's suites

The integration tests of four AMQP clients, as their authors publish them, run against `redrive broker` and, for
comparison, against RabbitMQ of the version it plays. They are fetched from their source distributions, pinned by hash,
and run unmodified; none of their files is in this repository.
"""

_HOW = """\
`make conformance` runs them on the embedded broker and compares with the kept results of the real one;
`python -m tests.conformance --real` renews those too, and `python -m tests.conformance kombu --profile 4.3` runs one
suite on another profile. Raw results are in `bench/results/conformance.json`. Tests are run once: where a suite marks
tests as flaky and would repeat them, they are not repeated here.

Two suites expect a container. aio-pika asks Docker's HTTP API for one, and gets the address of the running broker from
a stand-in (`tests/conformance/docker_engine.py`). aiormq's source distribution leaves out the `conftest.py` with its
two broker fixtures; a plugin (`tests/conformance/plugins/aiormq_fixtures.py`) supplies these."""
