"""Which tests run which line: measured once, so that a mutant meets only tests that could notice it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from coverage import CoverageData

from tests.mutations.random_mutants.context_plugin import FOLDER
from tests.mutations.random_mutants.operators import Mutant

PLUGIN = "tests.mutations.random_mutants.context_plugin"
MEASURING_S_MAX = 3600.0
STATEMENT_LINES_MAX = 12


class MeasuringFailed(Exception):
    """The tests could not be run; the message has the end of pytest's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCoverage:
    """The tests that run each line (`lines[path][line]`), and how long each test takes."""

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def tests_for(self, mutant: Mutant) -> list[str]:
        """The passing tests that run the mutant's line, the quickest first.

        What runs when the module is imported (constants, defaults) belongs to no test: then all that run anything in
        the file are named; and where that is nothing (a module of declarations), all that run anything beside or below
        it.
        """
        file = self.lines.get(mutant.path, {})
        # A statement of several lines is often measured at its first line only.
        near = (set(file.get(line, ())) for line in range(mutant.line, mutant.line - STATEMENT_LINES_MAX, -1))
        named = next(filter(None, near), set()) if mutant.in_function else set()
        if not named:
            named = {test for tests in file.values() for test in tests}
        if not named:
            folder = f"{PurePosixPath(mutant.path).parent}/"
            near_by = (lines for path, lines in self.lines.items() if path.startswith(folder))
            named = {test for lines in near_by for tests in lines.values() for test in tests}
        usable = (test for test in named if test in self.seconds and "\n" not in test)
        return sorted(usable, key=lambda test: (self.seconds[test], test))


def measure(copy: Path, folder: Path, arguments: Sequence[str], environment: dict[str, str]) -> LineCoverage:
    """Run pytest with `arguments` in `copy` and read what was measured; with results in `folder` already, only read."""
    if not any(folder.glob("passed.*.json")):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, *arguments]
        surroundings = {**os.environ, **environment, FOLDER: str(folder), "PYTHONPATH": f"{copy / 'src'}:{copy}"}
        run = subprocess.run(
            command, cwd=copy, env=surroundings, capture_output=True, text=True, timeout=MEASURING_S_MAX, check=False
        )
        if run.returncode not in (0, 1) or not any(folder.glob("passed.*.json")):
            raise MeasuringFailed(f"pytest ended with {run.returncode}:\n{(run.stdout + run.stderr)[-3000:]}")
        (folder / "output.txt").write_text(run.stdout + run.stderr, encoding="utf-8")
    return _read(copy, folder)


def _read(copy: Path, folder: Path) -> LineCoverage:
    seconds: dict[str, float] = {}
    for file in sorted(folder.glob("passed.*.json")):
        seconds.update(json.loads(file.read_text(encoding="utf-8")))
    lines: dict[str, dict[int, list[str]]] = {}
    for file in sorted(folder.glob("lines.*")):
        data = CoverageData(basename=str(file))
        data.read()
        for name in data.measured_files():
            _, found, below = name.partition("/src/redrive/")
            if not found:
                continue
            known = lines.setdefault(f"src/redrive/{below}", {})
            for line, contexts in data.contexts_by_lineno(name).items():
                known.setdefault(line, []).extend(context for context in contexts if context)
    return LineCoverage(lines=lines, seconds=seconds)
