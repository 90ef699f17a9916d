"""A pytest plugin: measures which lines each test runs, and writes down which tests passed.

Every process of the run (xdist's workers too) leaves a data file of its own in the folder named by the environment.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

FOLDER = "REDRIVE_MUTANT_CONTEXTS"

_measuring: coverage.Coverage | None = None
_passed: dict[str, float] = {}
_failed: set[str] = set()


def pytest_sessionstart(session: pytest.Session) -> None:
    global _measuring
    if getattr(session.config.option, "numprocesses", None):
        return  # the controller runs no test
    folder = Path(os.environ[FOLDER])
    _measuring = coverage.Coverage(
        data_file=str(folder / f"lines.{os.getpid()}"), source=["redrive"], config_file=False, messages=False
    )
    _measuring.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if _measuring is not None:
        _measuring.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        if _measuring is not None:
            _measuring.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _passed[report.nodeid] = report.duration
    elif report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    if _measuring is None:
        return
    _measuring.stop()
    _measuring.save()
    passed = {name: seconds for name, seconds in _passed.items() if name not in _failed}
    (Path(os.environ[FOLDER]) / f"passed.{os.getpid()}.json").write_text(json.dumps(passed), encoding="utf-8")
