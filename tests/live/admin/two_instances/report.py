"""What came of it, as numbers and as a page. Pure."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.live.admin.two_instances.scene import Outcome, Plan

P95_MS_MAX = 100.0
"""The bar."""

_Row = tuple[float, str, int, float, int]


def summary(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """The numbers, with every request's time by kind."""
    rows: list[_Row] = [(at, kind, status, ms, died) for at, kind, status, ms, died in outcome.load["rows"]]
    kinds = sorted({row[1] for row in rows})
    killed_s = outcome.killed.at_s
    return {
        "plan": asdict(plan),
        "killed": asdict(outcome.killed),
        "account": asdict(outcome.account),
        "in_doubt_after_the_kill": outcome.doubted,
        "finished_s": outcome.finished_s,
        "survivor_exit_code": outcome.survivor_code,
        "operations": [
            {name: one[name] for name in ("id", "state", "total", "sent", "refused", "in_doubt", "skipped", "note")}
            for one in outcome.operations
        ],
        "requests": {
            "asked": plan.rate * plan.seconds,
            "answered": len(rows),
            "statuses": dict(sorted(Counter(str(row[2]) for row in rows).items())),
            "connections_died": sum(row[4] for row in rows),
            "unanswered": outcome.load["unanswered"],
            "failures": outcome.load["failures"],
        },
        "latency_ms": {
            "all": percentiles([row[3] for row in rows]),
            "both_instances": percentiles([row[3] for row in rows if row[0] < killed_s]),
            "one_instance": percentiles([row[3] for row in rows if row[0] >= killed_s]),
            **{kind: percentiles([row[3] for row in rows if row[1] == kind]) for kind in kinds},
        },
        "p95_ms_by_second": _by_second(rows, plan.seconds),
        "raw_ms": {kind: sorted(row[3] for row in rows if row[1] == kind) for kind in kinds},
    }


def problems(told: dict[str, Any], *, p95_ms_max: float | None = P95_MS_MAX) -> list[str]:
    """What does not hold; a small run on a busy machine says nothing about time, and asks for None."""
    found = list(told["account"]["problems"])
    found += [f"operation {one['id']} is {one['state']}" for one in told["operations"] if one["state"] != "done"]
    requests, left = told["requests"], told["account"]
    found += [f"a request failed: {one}" for one in requests["failures"]]
    if requests["answered"] != requests["asked"]:
        found.append(f"{requests['answered']} of {requests['asked']} requests were answered")
    if left["left"] or left["in_doubt"]:
        found.append(f"{left['left']} messages were left in queues, {left['in_doubt']} in doubt")
    if not told["killed"]["collected"]:
        found.append("the killed instance collected nothing when it was killed")
    if told["survivor_exit_code"] != 0:
        found.append(f"the other instance ended with {told['survivor_exit_code']}")
    p95 = told["latency_ms"]["all"]["p95"]
    if p95_ms_max is not None and p95 > p95_ms_max:
        found.append(f"p95 of all requests is {p95} ms, and must be under {p95_ms_max:g} ms")
    return found


def percentiles(times: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and the longest."""
    if len(times) < 2:
        return {"requests": len(times)} | {name: max(times, default=0.0) for name in ("p50", "p95", "p99", "max")}
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    p50, p95, p99 = (round(cuts[place - 1], 1) for place in (50, 95, 99))
    return {"requests": len(times), "p50": p50, "p95": p95, "p99": p99, "max": max(times)}


def render(results: dict[str, Any]) -> str:
    """Markdown, for the documentation."""
    lines = []
    for version, told in results["versions"].items():
        plan, killed, made, requests = told["plan"], told["killed"], told["account"], told["requests"]
        total = sum(one["sent"] for one in told["operations"])
        lines += [
            f"RabbitMQ {version}, {told['date']}: {plan['messages']:,} messages, {plan['rate']} requests/s for "
            f"{plan['seconds']} s. Killed after {killed['at_s']:.0f} s, while it collected {killed['collected']} of "
            f"{plan['queues']} queues and had sent {killed['sent']:,} of {killed['total']:,} copies of an operation. "
            f"{len(made['problems'])} messages lost or doubled; {told['in_doubt_after_the_kill']} in doubt, "
            f"sent again with {made['marked']} marked duplicates; {len(told['operations'])} operations done, "
            f"{total:,} copies; {made['resolved']} resolved by requests. {requests['answered']:,} of "
            f"{requests['asked']:,} requests answered, {requests['connections_died']} after their connection died "
            f"with the instance, {len(requests['failures'])} failed. All collected and sent after "
            f"{told['finished_s']:.0f} s.",
            "",
            "| | requests | p50 ms | p95 ms | p99 ms | longest |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        lines += [
            f"| {name.replace('_', ' ')} | {one['requests']:,} | {one['p50']:.1f} | {one['p95']:.1f} | "
            f"{one['p99']:.1f} | {one['max']:.0f} |"
            for name, one in told["latency_ms"].items()
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _by_second(rows: Sequence[_Row], seconds: int) -> list[float]:
    found: list[list[float]] = [[] for _ in range(seconds)]
    for row in rows:
        found[min(int(row[0]), seconds - 1)].append(row[3])
    return [percentiles(times)["p95"] for times in found]
