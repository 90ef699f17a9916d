"""Draws mutants by a seed and tries them.

python -m tests.mutations.random_mutants --count 300 --seed 16     quick tests, then slow ones, then those on brokers
python -m tests.mutations.random_mutants --stages quick            quick tests only
python -m tests.mutations.random_mutants --only ID…                these mutants again
python -m tests.mutations.random_mutants --rooms core,records      of these rooms only

Exit code: 0 at least 95 % of the mutants that change behaviour are noticed, 1 fewer, 2 could not.
"""

import argparse
import os
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutations.mutation import ROOT
from tests.mutations.random_mutants import report
from tests.mutations.random_mutants.judgements import read_judgements
from tests.mutations.random_mutants.killers import Killer, read_killers, write_killers
from tests.mutations.random_mutants.line_coverage import LineCoverage, MeasuringFailed, measure
from tests.mutations.random_mutants.mutant_trial import Copy, Stage, TrialFailed, Verdict, make_copies, snapshot
from tests.mutations.random_mutants.operators import Mutant
from tests.mutations.random_mutants.sample import all_mutants, draw

Run = tuple[dict[str, str], list[str]]
"""The environment and the arguments of a run of pytest."""

SHARE_MIN = 0.95
NICENESS = 5
STAGES: dict[str, Run] = {
    "quick": ({"REDRIVE_QUICK": "1"}, ["-n", "3", "-m", "not live and not slow", "tests/unit", "tests/simulation"]),
    "slow": ({}, ["-n", "3", "-m", "not live and slow", "tests/unit", "tests/simulation"]),
    "live": ({}, ["-n", "4", "--dist", "loadgroup", "-m", "live", "tests/live"]),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations.random_mutants", description="Mutants drawn by a seed."
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--rooms", default="", help="only of these rooms, separated by commas")
    parser.add_argument("--only", nargs="*", default=[], metavar="ID", help="only mutants with these identities")
    parser.add_argument("--stages", default="quick,slow,live", help="which tests, one kind after the other")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--afresh", action="store_true", help="forget which tests noticed them the last time")
    parser.add_argument("--list", action="store_true", help="say what was drawn, and try nothing")
    parser.add_argument("--keep", type=Path, help="a folder for what was measured and found; used again if it is there")
    parser.add_argument("--write", action="store_true", help="write docs/random-mutants.md")
    chosen = parser.parse_args(arguments)
    candidates = all_mutants(ROOT)
    if chosen.rooms:
        candidates = [mutant for mutant in candidates if mutant.room in chosen.rooms.split(",")]
    if chosen.only:
        drawn = [mutant for mutant in candidates if mutant.identity in chosen.only]
    else:
        drawn = draw(candidates, ROOT, seed=chosen.seed, count=chosen.count)
    if chosen.list:
        for mutant in drawn:
            print(f"{mutant.identity} {mutant.path}:{mutant.line} {mutant.operator}: {mutant.old!r} -> {mutant.new!r}")
        return 0
    os.nice(NICENESS)
    started_s = time.monotonic()
    try:
        with snapshot(ROOT) as base, tempfile.TemporaryDirectory(prefix="redrive-drawn-") as scratch:
            folder = chosen.keep or Path(scratch) / "measured"
            copies = make_copies(base, Path(scratch), chosen.workers)
            known = {} if chosen.afresh else read_killers()
            asked = [mutant for mutant in drawn if mutant.identity in known]
            found = dict(zip(asked, _try(asked, copies, lambda copy, mutant: _ask(copy, mutant, known)), strict=True))
            left = [mutant for mutant in drawn if found.get(mutant) is None]
            stages = _measure(base, folder, chosen.stages.split(",")) if left else []
            found.update(
                zip(left, _try(left, copies, lambda copy, mutant: copy.try_mutant(mutant, stages)), strict=True)
            )
            verdicts = [verdict for mutant in drawn if (verdict := found[mutant]) is not None]
            if chosen.keep:
                (folder / "verdicts.json").write_text(report.as_json(verdicts, seed=chosen.seed), encoding="utf-8")
    except (MeasuringFailed, TrialFailed) as error:
        _say(str(error))
        return 2
    judgements = read_judgements()
    killed, changing = report.share(verdicts, judgements)
    for verdict in verdicts:
        if verdict.killer is None:
            judged = judgements.get(verdict.mutant.identity)
            print(report.line(verdict))
            print(f"    {judged.kind}: {judged.reason}" if judged else "    not judged yet")
    print(
        f"{killed} of {changing} mutants that change behaviour were noticed ({100 * killed / max(1, changing):.1f} %); "
        f"{len(verdicts)} drawn with seed {chosen.seed}, {(time.monotonic() - started_s) / 60:.0f} minutes"
    )
    if chosen.write:
        write_killers(verdicts)
        report.PAGE.write_text(report.page(verdicts, judgements, seed=chosen.seed), encoding="utf-8")
    return int(killed < SHARE_MIN * changing)


def _measure(base: Path, folder: Path, names: Sequence[str]) -> list[Stage]:
    stages = []
    for name in names:
        environment, arguments = STAGES[name]
        coverage: LineCoverage = measure(base, folder / name, arguments, environment)
        _say(f"{name}: {len(coverage.seconds)} tests passed and were measured")
        stages.append(Stage(name=name, coverage=coverage, environment=environment))
    return stages


def _ask(copy: Copy, mutant: Mutant, known: Mapping[str, Killer]) -> Verdict | None:
    killer = known[mutant.identity]
    return copy.ask_one(mutant, killer.test, killer.stage, STAGES[killer.stage][0])


def _try(
    drawn: Sequence[Mutant], copies: Sequence[Copy], trial: Callable[[Copy, Mutant], Verdict | None]
) -> list[Verdict | None]:
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def attempt(mutant: Mutant) -> Verdict | None:
        copy = free.get()
        try:
            verdict = trial(copy, mutant)
        finally:
            free.put(copy)
        _say(f"{mutant.identity} not noticed as before" if verdict is None else report.line(verdict))
        return verdict

    with ThreadPoolExecutor(len(copies)) as threads:
        return list(threads.map(attempt, drawn))


def _say(text: str) -> None:
    print(f"mutants: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
