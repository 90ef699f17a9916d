"""Trials of random mutants: the tests that run the changed line, on a copy of the tree with the change in it.

A failure counts only if the same test fails again, alone, with the mutant still in place: a test that fails by chance
proves nothing. The control run, which measured the lines, passed all tests that are asked here.
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

from tests.mutations.random_mutants.line_coverage import LineCoverage
from tests.mutations.random_mutants.operators import Mutant

FIRST_TESTS = 60
"""The quickest tests of a line come first, on their own: most mutants end there."""
RUN_S_MIN = 60.0
RUN_TIMES_MAX = 4.0
"""A run may take four times as long as the same tests took in the control, and a minute."""
ALONE_S = 30.0
"""What a test is thought to take where that was not measured, with the broker it may have to start."""
UNSTEADY_MAX = 3
ENDLESS = "no test, but they did not end"
_PASSED, _FAILED, _INTERRUPTED, _INTERNAL, _USAGE = 0, 1, 2, 3, 4


class TrialFailed(Exception):
    """Nothing is known of a mutant; the message has the end of pytest's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a mutant: who noticed it (None: nobody), out of how many tests of its line, after how long."""

    mutant: Mutant
    killer: str | None
    tests: int
    seconds: float
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Tests of one kind (quick, slow, live) and what they are run with."""

    name: str
    coverage: LineCoverage
    environment: dict[str, str]


class Copy:
    """A copy of the tree in which one mutant after the other is tried."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def try_mutant(self, mutant: Mutant, stages: Sequence[Stage]) -> Verdict:
        """The first stage whose tests notice it decides. Raises TrialFailed."""
        file = self.root / mutant.path
        source = file.read_bytes()
        started_s = time.monotonic()
        asked = 0
        try:
            self._write(file, mutant.mutated(source))
            for stage in stages:
                tests = stage.coverage.tests_for(mutant)
                asked += len(tests)
                killer = self._killer(tests, stage)
                if killer is not None:
                    return Verdict(
                        mutant=mutant,
                        killer=killer,
                        tests=asked,
                        seconds=time.monotonic() - started_s,
                        stage=stage.name,
                    )
            return Verdict(mutant=mutant, killer=None, tests=asked, seconds=time.monotonic() - started_s, stage="none")
        finally:
            self._write(file, source)

    def ask_one(self, mutant: Mutant, test: str, stage: str, environment: dict[str, str]) -> Verdict | None:
        """The verdict, if this test notices the mutant and passes without it; else None."""
        unmeasured = LineCoverage(lines={}, seconds={test: ALONE_S})
        alone = Stage(name=stage, coverage=unmeasured, environment=environment)
        file = self.root / mutant.path
        source = file.read_bytes()
        started_s = time.monotonic()
        try:
            self._write(file, mutant.mutated(source))
            noticed = self._run([test], alone) == test
        finally:
            self._write(file, source)
        if not noticed or self._run([test], alone) is not None:
            return None
        return Verdict(mutant=mutant, killer=test, tests=1, seconds=time.monotonic() - started_s, stage=stage)

    def _killer(self, tests: list[str], stage: Stage) -> str | None:
        unsteady: set[str] = set()
        for part in (tests[:FIRST_TESTS], tests[FIRST_TESTS:]):
            left = [test for test in part if test not in unsteady]
            while left:
                killer = self._run(left, stage)
                if killer is None or killer == ENDLESS or self._run([killer], stage) is not None:
                    if killer is not None:
                        return killer
                    break
                unsteady.add(killer)
                if len(unsteady) > UNSTEADY_MAX:
                    raise TrialFailed(f"{', '.join(sorted(unsteady))} failed, and passed when run alone: no verdict")
                left = [test for test in left if test not in unsteady]
        return None

    def _write(self, file: Path, content: bytes) -> None:
        file.write_bytes(content)
        # Byte code is found by size and second: within one second a change can look like none.
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
            compiled.unlink()

    def _run(self, tests: list[str], stage: Stage) -> str | None:
        junit, names = self.root / "junit.xml", self.root / "tests.txt"
        junit.unlink(missing_ok=True)
        names.write_text("\n".join(tests), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        command += ["--hypothesis-seed=0", f"--junit-xml={junit}", "-o", "junit_family=xunit1", f"@{names}"]
        environment = {**os.environ, **stage.environment, "PYTHONPATH": f"{self.root / 'src'}:{self.root}"}
        allowed_s = RUN_S_MIN + RUN_TIMES_MAX * sum(stage.coverage.seconds.get(test, 0.0) for test in tests)
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=allowed_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return ENDLESS
        if process.returncode == _PASSED:
            return None
        if process.returncode in (_INTERRUPTED, _USAGE, _INTERNAL) or not junit.exists():
            # The change breaks the import of the test's module or of the plugins: every test notices that.
            return f"collecting ({output.strip().splitlines()[-1][:100] if output.strip() else process.returncode})"
        return _first_failure(junit, tests)


def _first_failure(junit: Path, tests: list[str]) -> str:
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            name, file = case.attrib["name"], case.attrib.get("file", "")
            exact = [test for test in tests if test.endswith(f"::{name}") and test.startswith(file)]
            # A name that XML could not hold is asked for without its parameters.
            return exact[0] if exact else f"{file}::{name.partition('[')[0]}"
    return "a test that pytest did not name"


@contextmanager
def snapshot(root: Path) -> Iterator[Path]:
    """A copy of all that git knows or would take, as it is now: tests read the docs, the examples, the README too."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    with tempfile.TemporaryDirectory(prefix="redrive-drawn-") as folder:
        base = Path(folder) / "base"
        for name in listed.stdout.decode().split("\0"):
            if name and (root / name).is_file():
                (base / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, base / name)
        yield base


def make_copies(base: Path, folder: Path, count: int) -> list[Copy]:
    """Copies to work in, one for each thread."""
    copies = []
    for number in range(count):
        root = folder / f"copy-{number}"
        shutil.copytree(base, root)
        copies.append(Copy(root))
    return copies
