"""`python -m bench.telemetry`: what counting one ack costs, ours and prometheus_client's, in one run.

Both count the delivery and its seconds in a histogram, with the labels looked up beforehand where the library lets one.
"""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import prometheus_client

from redrive.telemetry import Telemetry

KEPT = Path(__file__).parent / "results" / "telemetry.json"
ACKS = 200_000
ROUNDS = 7


def main() -> int:
    """Measures, prints and keeps."""
    telemetry = Telemetry()
    counter = prometheus_client.Counter("acks", "acks", ["queue"]).labels("orders")
    histogram = prometheus_client.Histogram("seconds", "seconds", ["queue"]).labels("orders")

    def theirs(_queue: str, seconds: float) -> None:
        counter.inc()
        histogram.observe(seconds)

    candidates: dict[str, Callable[[str, float], None]] = {"ours": telemetry.acked, "prometheus_client": theirs}
    rounds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, count in candidates.items():
            began_s = time.process_time()
            for _ in range(ACKS):
                count("orders", 0.0042)
            rounds[name].append((time.process_time() - began_s) / ACKS * 1e6)
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "acks": ACKS,
        "microseconds_per_ack": {name: statistics.median(values) for name, values in rounds.items()},
        "rounds": rounds,
    }
    for name, values in rounds.items():
        print(f"{name:<20}{statistics.median(values):6.2f} µs  ({min(values):.2f}–{max(values):.2f})")
    KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
