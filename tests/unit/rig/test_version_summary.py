"""The closing summary: what was tested on which version, and when a missing one fails the run."""

from __future__ import annotations

import pytest
from rig.version_summary import VersionSummary, decide_verdict


def test_a_test_counts_once_with_its_worst_phase() -> None:
    summary = VersionSummary()
    for test in ("good", "broken", "torn down badly", "skipped", "never run"):
        summary.expect(test, label="4.0")
    for test in ("good", "broken", "torn down badly"):
        summary.record(test, "passed")
    summary.record("broken", "failed")
    summary.record("good", "passed")
    summary.record("torn down badly", "passed")
    summary.record("torn down badly", "failed")
    summary.record("skipped", "skipped")
    summary.record("skipped", "passed")
    summary.record("of no version", "failed")

    assert summary.count("4.0") == {"passed": 1, "failed": 2, "skipped": 1, "not run": 1}
    assert summary.count("4.3") == {}


def test_the_table_gives_each_version_a_line() -> None:
    summary = VersionSummary()
    assert summary.is_empty
    for number in range(12):
        summary.expect(f"test {number}", label="3.10")
        summary.record(f"test {number}", "failed" if number == 3 else "passed")
    summary.expect("other", label="4.3")
    summary.record("other", "skipped")

    assert not summary.is_empty
    assert summary.table({"3.10": "3.10.8", "4.3": "-"}) == [
        "label  version  ran  passed  failed  skipped",
        "3.10   3.10.8    12      11       1        0",
        "4.3    -          0       0       0        1",
    ]


def test_a_missing_version_is_said_loudly() -> None:
    verdict = decide_verdict({"4.3": "no mirror"}, ci="")
    assert verdict.warnings == ("RabbitMQ 4.3 WAS NOT TESTED: no mirror",)
    assert not verdict.fails


@pytest.mark.parametrize("ci", ["true", "True", "1"])
def test_a_missing_version_fails_the_run_in_ci(ci: str) -> None:
    verdict = decide_verdict({"4.3": "no mirror"}, ci=ci)
    assert verdict.fails
    assert verdict.warnings[-1] == "CI=true: a missing version fails the run."


@pytest.mark.parametrize("ci", ["true", "false", ""])
def test_nothing_missing_is_nothing_said(ci: str) -> None:
    verdict = decide_verdict({}, ci=ci)
    assert verdict.warnings == ()
    assert not verdict.fails
