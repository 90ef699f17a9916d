"""What the conformance runner makes of pytest's reports."""

from pathlib import Path

import pytest

from tests.conformance.results import FAILED, SKIPPED, Result, fail_on_both, only_ours, only_theirs, read_junit


def read(folder: Path, *cases: str) -> Result:
    file = folder / "report.xml"
    suite = f'<testsuites><testsuite time="2.5">{"".join(cases)}</testsuite></testsuites>'
    file.write_text(suite, encoding="utf-8")
    return read_junit(file, broker="3.10", date="2026-01-31")


def case(name: str, inside: str = "") -> str:
    return f'<testcase classname="tests.test_a" name="{name}">{inside}</testcase>'


def test_every_test_is_counted_once(tmp_path: Path) -> None:
    result = read(
        tmp_path,
        case("passes"),
        case("fails", '<failure message="assert 1 == 2&#10;more"/>'),
        case("errs", '<error message="failed on setup with &quot;X&quot;"/>'),
        case("is_skipped", '<skipped message="why"/>'),
    )
    assert (result.passed, result.failed, result.skipped, result.total) == (1, 2, 1, 4)
    assert result.others["tests.test_a::fails"] == (FAILED, "assert 1 == 2")
    assert result.others["tests.test_a::is_skipped"] == (SKIPPED, "why")


def test_a_test_that_errs_while_it_is_torn_down_is_one_that_failed(tmp_path: Path) -> None:
    result = read(tmp_path, case("a"), case("a", '<error message="failed on teardown with &quot;X&quot;"/>'))
    assert (result.passed, result.failed, result.total) == (0, 1, 1)


def test_two_tests_of_one_name_are_two(tmp_path: Path) -> None:
    result = read(tmp_path, case("a"), case("b"), case("a", '<failure message="no"/>'))
    assert (result.passed, list(result.others)) == (2, ["tests.test_a::a (2)"])


def test_a_reason_names_no_place_of_this_machine(tmp_path: Path) -> None:
    message = "&lt;Log /home/me/.cache/x/tools.py&gt; at 0x7fa24c at ('127.0.0.1', 50181) //?name=a/b"
    result = read(tmp_path, case("a", f'<failure message="{message}"/>'))
    assert result.others["tests.test_a::a"][1] == "<Log …/tools.py> at … at ('127.0.0.1', …) //?name=a/b"


def test_a_report_without_a_suite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text("<testsuites/>", encoding="utf-8")
    with pytest.raises(ValueError, match="no JUnit report"):
        read_junit(tmp_path / "report.xml", broker="3.10", date="2026-01-31")


def test_results_survive_being_kept(tmp_path: Path) -> None:
    result = read(tmp_path, case("a"), case("b", '<failure message="no"/>'))
    assert Result.from_json(result.to_json()) == result


def test_two_runs_are_compared_test_by_test(tmp_path: Path) -> None:
    fails, skips = '<failure message="no"/>', '<skipped message="why"/>'
    ours = read(tmp_path, case("a", fails), case("b", fails), case("c"), case("d", fails), case("e", skips))
    theirs = read(tmp_path, case("a"), case("b", fails), case("c", fails), case("d", skips), case("e"))
    assert only_ours(ours, theirs) == ["tests.test_a::a"]
    assert fail_on_both(ours, theirs) == ["tests.test_a::b"]
    assert only_theirs(ours, theirs) == ["tests.test_a::c"]
