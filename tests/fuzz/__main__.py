"""Run the fuzzers: `python -m tests.fuzz [--seconds N] [--keep] [TARGET …]`, one target after the other.

Each target starts from its seeds and the kept corpus. An input that breaks a target is copied into the corpus, where
the ordinary tests replay it from then on; `--keep` also adds inputs that reached new code.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.seeds import seeds

CORPUS = Path(__file__).parent / "corpus"
TARGETS = ("splitter", "tables", "client", "server")
KEPT_SIZE_MAX, KEPT_COUNT_MAX = 1024, 120


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Coverage-guided fuzzing of redrive.wire."
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"any of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach new code to the corpus")
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if importlib.util.find_spec("atheris") is None:
        print(
            "The fuzzers need atheris, which is not among the development packages: pip install atheris",
            file=sys.stderr,
        )
        return 2
    failed = [target for target in options.targets or TARGETS if not _run(target, options.seconds, options.keep)]
    if failed:
        print(f"broken: {', '.join(failed)}; the inputs are in {CORPUS.name}/, replayed by the ordinary tests")
    return 1 if failed else 0


def _run(target: str, seconds: int, keep: bool) -> bool:
    """One target in a process of its own, since the fuzzer ends the process it runs in."""
    kept = CORPUS / target
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        grown, found = Path(scratch, "grown"), Path(scratch, "found")
        grown.mkdir()
        found.mkdir()
        for number, seed in enumerate(seeds(target)):
            (grown / f"seed-{number}").write_bytes(seed)
        print(f"== {target}, {seconds} s", flush=True)
        limits = [f"-max_total_time={seconds}", "-max_len=6000", "-timeout=10", "-rss_limit_mb=1024"]
        fuzzer = [sys.executable, "-m", "tests.fuzz.process", target, "-print_final_stats=1"]
        ended = subprocess.run([*fuzzer, *limits, f"-artifact_prefix={found}/", str(grown), str(kept)], check=False)
        for broken in found.iterdir():
            (kept / broken.name).write_bytes(broken.read_bytes())
        if keep:
            _keep(grown, kept)
        return ended.returncode == 0


def _keep(grown: Path, kept: Path) -> None:
    """Add what the run has grown: each of these files reached something new. Small ones, evenly over their sizes."""
    eligible = sorted(
        (path.stat().st_size, path)
        for path in grown.iterdir()
        if not path.name.startswith("seed-") and path.stat().st_size <= KEPT_SIZE_MAX
    )
    room = max(KEPT_COUNT_MAX - len(list(kept.iterdir())), 0)
    stride = max(-(-len(eligible) // room), 1) if room else len(eligible) + 1
    for _, path in eligible[stride - 1 :: stride]:
        (kept / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
