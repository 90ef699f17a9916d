"""Live tests on several workers of pytest-xdist (`-n 4 --dist loadgroup`): which of them stay together.

The tests on a version's shared broker are one group: they run one after the other on one worker, which starts that
broker and no other. Tests that make nodes of their own are in no group and go wherever there is room. Whether tests
stay together decides how long they take, never whether they are right.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import pytest

SHARED = frozenset(("rabbit", "rabbit_node"))


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for a controller, which sees their reports alone."""
    return hasattr(config, "workerinput")


def is_grouping_controller(config: pytest.Config) -> bool:
    """Whether this process hands tests to workers in groups, as live tests are; a worker knows nothing of `dist`."""
    return bool(config.getoption("dist", default="no") == "loadgroup")


def group_marks(config: pytest.Config, fixtures: Collection[str], *, label: str) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a test on `label` that takes these fixtures."""
    if is_worker(config) and not SHARED.isdisjoint(fixtures):
        return (pytest.mark.xdist_group(label),)
    return ()


def write_groups(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Put each test's group after its id, from where the controller reads it.

    pytest-xdist 3.8 does so itself, but where pytest 9.2 does not look any more (pytest-xdist issue 1386): nothing
    would be grouped, and every worker would start every version.
    """
    if not config.getoption("loadgroup", default=False):
        return
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and not item.nodeid.endswith(f"@{mark.args[0]}"):
            item._id = type(item._id).parse(f"{item.nodeid}@{mark.args[0]}")


def forget_group(report: pytest.TestReport) -> None:
    """Give a report that came from a worker its test's own id back, by which a person can run it again."""
    if hasattr(report, "node"):
        report.nodeid = re.sub(r"(?<=\])@[\w.]+$", "", report.nodeid)
