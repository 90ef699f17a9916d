"""The probe's 43 questions, asked of the embedded broker: each profile answers as the real version of its name did.

The questions, the answers and the mask live beside the project; without them this test says that it is skipped.
"""

import importlib.util
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from redrive.embedded import PROFILES
from tests.unit.embedded.threaded import broker_in_a_thread

PROBE = Path(__file__).parents[4] / "shared" / "probe"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROBE.is_dir(), reason="the probe (shared/probe) is not beside this project"),
]

PATIENT = Path(__file__).with_name("patient_probe.py")

# Two questions whose recorded answers were cut short: the probe stopped listening at the first batch of events, and
# what that held varied from run to run on every real version. Asked patiently (see patient_probe), all three real
# brokers give these answers, every time.
COMPLETE = {
    "round_robin_priority": {"rr": ["lo", "lo2"] * 3, "prio": ["hi"] * 4},
    "single_active_consumer": [1, 1, 2, 2],
}


def mask(answer: Any) -> Any:
    spec = importlib.util.spec_from_file_location("probe_mask", PROBE / "mask.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mask(answer)


def ask(profile: str, *cases: str) -> dict[str, Any]:
    with broker_in_a_thread(profile) as (broker, _):
        run = subprocess.run(
            [sys.executable, str(PATIENT), str(PROBE / "probe.py"), "127.0.0.1", str(broker.port), *cases],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert run.returncode == 0, run.stderr[-2000:]
    answers: dict[str, Any] = {}
    for line in run.stdout.splitlines():
        answers |= json.loads(line)
    return answers


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """All three asked at once: the probe spends its time waiting."""
    with ThreadPoolExecutor(len(PROFILES)) as threads:
        return dict(zip(PROFILES, threads.map(ask, PROFILES), strict=True))


@pytest.mark.parametrize("profile", PROFILES)
def test_every_question_is_answered_as_the_real_version_answered_it(
    profile: str, answers: dict[str, dict[str, Any]]
) -> None:
    golden = {case: seen[profile] for case, seen in json.loads((PROBE / "golden.json").read_text()).items()}
    assert set(answers[profile]) == set(golden)
    assert len(golden) == 43
    wrong = {}
    for case, expected in golden.items():
        got = mask(answers[profile][case])
        wanted = COMPLETE.get(case, expected)
        if got != wanted:
            wrong[case] = {"expected": wanted, "got": got}
    assert wrong == {}
