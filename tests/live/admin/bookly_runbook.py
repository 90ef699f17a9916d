"""Bookly with dead letters and a server that collected them, and the commands of its runbook."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rig import Vhost
from rig.dlq_operator import Operator
from rig.serve_process import Served, serving

FILE = "examples/bookly/redrive.yaml"
QUEUES = ("availability", "availability.dlq")
EMPTY = {"availability": 0, "availability.dlq": 0}

STATS = 'curl http://localhost:3000/dlq/stats -H "Authorization: Bearer $TOKEN"'
LIST = 'curl http://localhost:3000/dlq?status=FAILED -H "Authorization: Bearer $TOKEN"'
RETRY = 'curl -X POST http://localhost:3000/dlq/{dlqId}/retry -H "Authorization: Bearer $TOKEN"'
RESOLVE = """curl -X POST http://localhost:3000/dlq/{dlqId}/resolve \\
  -H "Authorization: Bearer $TOKEN" \\
  -H "Content-Type: application/json" \\
  -d '{"resolvedBy":"admin","resolution":"Data corrected manually"}'"""


@contextmanager
def bookly(vhost: Vhost, folder: Path, *message_ids: str, port: int = 0) -> Iterator[tuple[Operator, Served]]:
    """Bookly with dead letters, and a server that has collected them."""
    operator = Operator(vhost, folder)
    operator.fine("apply", FILE, "--yes")
    if message_ids:
        operator.publish("bookly.events", "availability.checked", *message_ids)
        operator.let_fail(FILE, "availability", dlq="availability.dlq", parked=len(message_ids))
    # Its auto-retry, which the file turns on, would change what the lines are about while they run.
    with serving(folder, operator.environment, FILE, "--no-auto-retry", port=port) as served:
        served.wait("/dlq/stats", lambda stats: bool(stats["total"] == len(message_ids)))
        yield operator, served


def by_event(served: Served, query: str = "") -> dict[str, dict[str, Any]]:
    """The entries by their message ids."""
    return {one["eventId"]: one for one in served.ask(f"/dlq{query}").json["items"]}
