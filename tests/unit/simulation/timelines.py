"""Every example's timelines as they were reviewed and found right, one golden file for each profile.

`python -m tests.unit.simulation.timelines` writes them anew; read the difference before it is committed.
"""

from pathlib import Path

from redrive.embedded import PROFILES
from redrive.simulation import Timeline, as_text, simulate
from redrive.wiring import LoadedFile, load_file

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden"
QUEUES = {
    "ladder": "orders",
    "native": "orders",
    "freeflow": "freeflow.user",
    "event-bus": "wms.queue.wms-cincout",
    "file-pipeline": "q.thumbnail",
    "ratatoskr": "my-service.events",
    "bookly": "reports",
}
SCRIPTS = {
    "fails": "fail",
    "recovers": "fail,ok",
    "mixed": "fail,retry-after:2m,crash,425,503:40s,ok",
    "late": "retry-after:40m,ok",
    "crashes": "crash",
    "parks": "park",
}


def example(name: str) -> LoadedFile:
    return load_file(str(ROOT / "examples" / name / "redrive.yaml"))


def timeline_of(name: str, script: str, profile: str) -> Timeline:
    loaded = example(name)
    timeline, left_out = simulate(
        loaded.topology, queue=QUEUES[name], compiled=loaded.compiled, script=script, profile=profile
    )
    assert left_out == ()
    return timeline


def cases() -> list[tuple[str, str]]:
    """Every example with every profile that can run it."""
    return [(name, profile) for name in QUEUES for profile in PROFILES if name != "native" or profile == "4.3"]


def golden_file(name: str, profile: str) -> Path:
    return GOLDEN / f"{name}-{profile}.txt"


def timelines(name: str, profile: str) -> str:
    """All scripts of one example on one profile."""
    return "\n".join(as_text(timeline_of(name, script, profile)) for script in SCRIPTS.values())


def main() -> None:
    for name, profile in cases():
        golden_file(name, profile).write_text(timelines(name, profile), encoding="utf-8")


if __name__ == "__main__":
    main()
