"""Random sequences on the embedded broker and on the real one: they must see the same, but for the relaxations.

REDRIVE_DIFFERENTIAL_SEED and REDRIVE_DIFFERENTIAL_SEQUENCES choose the sequences; with REDRIVE_DIFFERENTIAL_RECORD=1
the outcome is kept in bench/results/differential.json.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rig.brokers import Vhost

from tests.live.embedded.comparison import Comparison, compare
from tests.live.embedded.operations import SCALE

SEQUENCES = int(os.environ.get("REDRIVE_DIFFERENTIAL_SEQUENCES", "60"))
FIRST_SEED = int(os.environ.get("REDRIVE_DIFFERENTIAL_SEED", "1"))
RECORDS = os.environ.get("REDRIVE_DIFFERENTIAL_RECORD", "") not in ("", "0")
KEPT = Path(__file__).parents[3] / "bench" / "results" / "differential.json"
UNSTEADY_MAX = 0.1
"""The part of sequences that may be left out: too slow a machine, or a real broker that disagrees with itself."""


@pytest.mark.live
def test_random_sequences_look_the_same_on_both(vhost: Vhost) -> None:
    outcome = compare(vhost.amqp_url, vhost.profile, range(FIRST_SEED, FIRST_SEED + SEQUENCES))
    if RECORDS:
        keep(outcome, vhost.version)
    different, unsteady, total = outcome.different, outcome.unsteady, len(outcome.seeds)
    print(f"{outcome.profile}: {total} sequences, {len(different)} different, {len(unsteady)} left out {unsteady}")
    report = "\n\n".join(f"seed {seed}: {text}" for seed, text in different.items())
    assert not different, f"{len(different)} of {total} differ on {outcome.profile}\n{report}"
    assert len(unsteady) <= UNSTEADY_MAX * total, f"nothing can be said about {len(unsteady)} of {total}"


def keep(outcome: Comparison, version: str) -> None:
    """Put this version's figure in the place of the one that is kept."""
    kept = json.loads(KEPT.read_text())
    kept["profiles"][outcome.profile] = {
        "version": version,
        "date": datetime.now(UTC).date().isoformat(),
        "scale": SCALE,
        "first_seed": outcome.seeds.start,
        "sequences": len(outcome.seeds),
        "left_out": len(outcome.unsteady),
        "compared": outcome.compared,
        "operations": outcome.operations,
        "different_seeds": sorted(outcome.different),
    }
    KEPT.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
