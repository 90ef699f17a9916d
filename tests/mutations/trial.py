"""Trials: the embedded broker's quick tests, run in a copy of the tree, with a bug in it or (the control) without.

Where a test with sockets or chance in it fails, the bug counts as caught only if that test fails again when run alone:
failing by chance, or for the lack of a quick machine, proves nothing.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.copy_guard import COPY
from tests.mutations.mutation import ROOT, Mutation

TESTS = "tests/unit/embedded"
PURE = ("engine/test_*.py", "test_confirms.py")
"""The tests without clock, sockets and chance, which are run first: they fail for one reason only, and without
Hypothesis they start quickly."""
NEEDED = ("src", "rig", "tests", "pyproject.toml")
RUN_S_MAX = 180.0
ENDLESS = "no test, but they did not end"
"""What stands for the killer of a bug that makes a test wait for ever."""
UNSTEADY_MAX = 3
_PASSED, _FAILED = 0, 1
_NOT_WANTED = shutil.ignore_patterns("__pycache__", ".*", "node_modules")


class TrialFailed(Exception):
    """The tests could not be run, so nothing is known; the message has the end of pytest's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a trial: the test that failed (None: all passed), and after how many seconds."""

    killer: str | None
    seconds: float
    passed: int


@contextmanager
def snapshot() -> Iterator[Path]:
    """A copy of what the tests need, as it is now: all trials are of the same source, whoever edits it meanwhile."""
    with tempfile.TemporaryDirectory(prefix="redrive-mutants-") as folder:
        base = Path(folder) / "base"
        base.mkdir()
        for name in NEEDED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, base / name, ignore=_NOT_WANTED)
            else:
                shutil.copy2(ROOT / name, base / name)
        yield base


def try_unchanged(base: Path) -> Outcome:
    """The control: the copy's tests as they are. Raises TrialFailed."""
    return _judge(base)


def try_mutation(mutation: Mutation, base: Path) -> Outcome:
    """The tests on a copy of `base` with the bug in it. Raises Stale or TrialFailed."""
    with tempfile.TemporaryDirectory(prefix=f"{mutation.name}-", dir=base.parent) as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(base, copy)  # with the byte code that the control left, but for the file that changes
        mutation.apply(copy)
        source = copy / mutation.path
        for compiled in source.parent.glob(f"__pycache__/{source.stem}.*"):
            compiled.unlink()
        return _judge(copy)


def _judge(copy: Path) -> Outcome:
    """The pure tests, then the others, up to the first failure."""
    pure = [str(file.relative_to(copy)) for name in PURE for file in sorted((copy / TESTS).glob(name))]
    first = _run(copy, ["-p", "no:hypothesispytest", *pure])
    if first.killer is not None:
        return first
    unsteady: list[str] = []
    options = ["--hypothesis-seed=0"]
    while len(unsteady) < UNSTEADY_MAX:
        left_out = [*(f"--ignore={file}" for file in pure), *(f"--deselect={test}" for test in unsteady)]
        then = _run(copy, [*options, TESTS, *left_out])
        if then.killer is None or then.killer == ENDLESS or _run(copy, [*options, then.killer]).killer is not None:
            return Outcome(killer=then.killer, seconds=first.seconds + then.seconds, passed=first.passed + then.passed)
        unsteady.append(then.killer)
    raise TrialFailed(f"{', '.join(unsteady)} failed, and passed when run alone: no verdict")


def _run(copy: Path, arguments: Sequence[str]) -> Outcome:
    junit = copy / "junit.xml"
    junit.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.mutations.copy_guard"]
    command += ["-m", "not live and not slow", f"--junit-xml={junit}", *arguments]
    path = os.pathsep.join((str(copy / "src"), str(copy)))
    environment = {**os.environ, "PYTHONPATH": path, COPY: str(copy)}
    started_s = time.monotonic()
    try:
        run = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(killer=ENDLESS, seconds=RUN_S_MAX, passed=0)
    seconds = time.monotonic() - started_s
    if run.returncode not in (_PASSED, _FAILED) or not junit.exists():
        raise TrialFailed(f"pytest ended with {run.returncode}:\n{(run.stdout + run.stderr)[-2000:]}")
    failed, passed = _read(junit)
    if (run.returncode == _FAILED) != bool(failed):
        raise TrialFailed(f"pytest ended with {run.returncode} and reported {failed or 'no failure'}")
    return Outcome(killer=failed[0] if failed else None, seconds=seconds, passed=passed)


def _read(junit: Path) -> tuple[list[str], int]:
    """The failed tests by node id, and how many passed. An error in collecting or in a fixture is no verdict."""
    failed, passed = [], 0
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}"
        error = case.find("error")
        if error is not None:
            raise TrialFailed(f"{name} could not be run: {error.attrib.get('message', '')}")
        if case.find("failure") is not None:
            failed.append(name)
        elif case.find("skipped") is None:
            passed += 1
    return failed, passed
