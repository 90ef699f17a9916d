"""Tries the seeded bugs.

python -m tests.mutations                 every one, and the control
python -m tests.mutations NAME…           only those
python -m tests.mutations --write         every one, and docs/mutations.md from the results
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutations import report
from tests.mutations.bugs import MUTATIONS
from tests.mutations.mutation import Mutation, Stale
from tests.mutations.trial import Outcome, TrialFailed, snapshot, try_mutation, try_unchanged

AT_ONCE = 2
NICENESS = 5
"""Trials at a time, and how much they stand back: the machine may have others on it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 every bug is caught, 1 some survive, 2 could not (a stale bug, tests that fail without one)."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="Seeded bugs and who catches them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these bugs")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    parser.add_argument("--write", action="store_true", help="write docs/mutations.md")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        parser.error(f"no such bug: {', '.join(sorted(unknown))} (--list says which there are)")
    if chosen.write and chosen.names:
        parser.error("--write is about all of them: name none")
    mutations = [mutation for mutation in MUTATIONS if not chosen.names or mutation.name in chosen.names]
    if chosen.list:
        print("\n".join(f"{mutation.name}: {mutation.sees}" for mutation in mutations))
        return 0
    os.nice(NICENESS)
    try:
        with snapshot() as base:
            control, outcomes = _try(mutations, base)
    except (Stale, TrialFailed) as error:
        print(f"mutations: {error}", file=sys.stderr)
        return 2
    survivors = [name for name, outcome in outcomes.items() if outcome.killer is None]
    print("\n".join(report.lines(mutations, outcomes)))
    print(f"{len(mutations) - len(survivors)} of {len(mutations)} caught", *(f"; survived: {one}" for one in survivors))
    if chosen.write:
        report.PAGE.write_text(report.page(mutations, outcomes, control), encoding="utf-8")
    return int(bool(survivors))


def _try(mutations: Sequence[Mutation], base: Path) -> tuple[Outcome, dict[str, Outcome]]:
    """The control, then every mutation. Raises Stale before anything is run, and TrialFailed."""
    for mutation in mutations:
        mutation.mutated((base / mutation.path).read_text(encoding="utf-8"))
    control = try_unchanged(base)
    if control.killer is not None:
        raise TrialFailed(f"without any bug {control.killer} fails: mend that first")
    _say(f"control: {control.passed} tests passed in {control.seconds:.1f} s")

    def attempt(mutation: Mutation) -> Outcome:
        outcome = try_mutation(mutation, base)
        _say(report.line(mutation, outcome))
        return outcome

    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = list(threads.map(attempt, mutations))
    return control, {mutation.name: outcome for mutation, outcome in zip(mutations, found, strict=True)}


def _say(text: str) -> None:
    print(f"mutations: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
