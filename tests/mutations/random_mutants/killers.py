"""Which test noticed a mutant the last time: `killers.json`, by the mutant's identity.

That test is asked first and alone; only a mutant that it lets pass meets all the tests of its line again.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.random_mutants.mutant_trial import ENDLESS, Verdict

FILE = Path(__file__).parent / "killers.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Killer:
    """A test, and the stage it belongs to."""

    stage: str
    test: str


def read_killers(file: Path = FILE) -> dict[str, Killer]:
    """All that are known; none without a file."""
    if not file.exists():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    return {identity: Killer(stage=stage, test=test) for identity, (stage, test) in found.items()}


def write_killers(verdicts: Iterable[Verdict], file: Path = FILE) -> None:
    """Those of `verdicts`, and no others: what is drawn no more is forgotten."""
    rows = {
        each.mutant.identity: [each.stage, each.killer]
        for each in verdicts
        if each.killer is not None and each.killer != ENDLESS and "::" in each.killer
    }
    file.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n", encoding="utf-8")
