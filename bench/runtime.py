"""`python -m bench.runtime`: what the runtime costs over the bare client, beside other frameworks, and its memory.

    W2  consume and ack: the bare client, the runtime with raw and with typed bodies, pika, FastStream, dramatiq
    W3  three retries, then parked: the runtime, the bare client, pika, FastStream
    memory  the runtime's own, while a million messages pass through it

Rounds are interleaved on one RabbitMQ, as in bench.amqp, whose harness it is. W3 keeps both cores busy for seconds, and
who comes right after another may be slowed by it: there is a pause before each case, and there are ten times as many
rounds. Raw numbers: results/runtime.json.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.amqp.broker import start_broker
from bench.amqp.cases import Client, Workload, make_body
from bench.amqp.clients.contract import Case
from bench.amqp.clients.runtime_client import compiled_for, runner_for, surroundings
from bench.amqp.harness import Harness, Measurement
from bench.amqp.programs import Missing, Program, Programs, cache_folder
from bench.amqp.report import median_cpu_s_per_10k
from redrive.client import Client as AmqpClient
from redrive.client import Confirmed, Outgoing
from redrive.runtime import App
from redrive.wiring import rare_garbage_collection

KEPT = Path(__file__).parent / "results" / "runtime.json"
VERSION = "3.10"
MEMORY_MESSAGES, MEMORY_STEP = 1_000_000, 100_000

_ARGUMENTS = make_body()
DRAMATIQ_BODY = json.dumps(
    {
        "queue_name": "SOURCE",
        "actor_name": "bench",
        "args": [],
        "kwargs": json.loads(_ARGUMENTS),
        "options": {},
        "message_id": "5f1c1f6e-0a4e-4f0b-9d7b-2f8f1d6c3a11",
        "message_timestamp": 1_790_000_000_000,
    },
    separators=(",", ":"),
)
"""The same document in dramatiq's envelope, so larger than the others' 256 bytes."""

CLIENTS: tuple[Client, ...] = (
    Client(name="redrive", title="the bare client", messages={"W2": 100_000, "W3": 12_000}),
    Client(name="runtime", title="the runtime, raw bodies", messages={"W2": 100_000, "W3": 12_000}),
    Client(name="runtime-typed", title="the runtime, typed bodies", messages={"W2": 60_000}),
    Client(name="pika", title="pika AsyncioConnection", messages={"W2": 30_000, "W3": 12_000}),
    Client(name="faststream", title="FastStream", messages={"W2": 2_000, "W3": 300}),
    Client(name="dramatiq", title="dramatiq", messages={"W2": 3_000}, body=DRAMATIQ_BODY),
)
WORKLOADS: tuple[Workload, ...] = ("W2", "W3")
FRAMEWORKS = ("faststream", "dramatiq")
SETTLE_S = 2.5
ROUNDS_OF_W3 = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything could be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.runtime", description="What the runtime costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, one round: does it work?")
    chosen = parser.parse_args(arguments)
    rounds, divisor = (1, 10) if chosen.quick else (chosen.rounds, 1)
    makers = Programs(cache=cache_folder(), say=_say)
    programs = {client.name: makers.get(client.name) for client in CLIENTS}
    for name, program in programs.items():
        if isinstance(program, Missing):
            _say(f"!!! {name} is left out: {program.reason}")
    filler = next(each for each in map(makers.get, ("c", "pika")) if isinstance(each, Program))
    with start_broker(VERSION) as broker:
        harness = Harness(broker, programs, filler=filler, quick=chosen.quick, say=_say, settle_s=SETTLE_S)
        versions = broker.versions()
        measurements = list(harness.run(CLIENTS, ("W2",), rounds))
        of_w3 = [client for client in CLIENTS if "W3" in client.messages]
        measurements += harness.run(of_w3, ("W3",), rounds * ROUNDS_OF_W3)
        with broker.queues_for("W2") as queues:
            case = Case(
                workload="W2",
                url=broker.url,
                messages=MEMORY_MESSAGES // divisor,
                source=queues.source,
                target=queues.target,
                window=1000,
                prefetch=500,
                body=make_body().encode(),
            )
            with rare_garbage_collection():  # as `redrive run` does
                memory = asyncio.run(watch_memory(case, MEMORY_STEP // divisor))
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rounds": rounds,
        "versions": {**versions, **{name: harness.libraries.get(name, "") for name in programs}},
        "rows": [row for workload in WORKLOADS for row in rows_of(workload, measurements)],
        "memory": memory,
        "measurements": [dataclasses.asdict(one) for one in measurements],
    }
    print(render(result))
    if not chosen.quick:
        KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        KEPT.with_suffix(".md").write_text(render(result), encoding="utf-8")
    return 1 if any(one.error for one in measurements) else 0


def rows_of(workload: Workload, measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """A row for each client: medians, and its rate as a part of the bare client's and of pika's, round by round."""
    rows = []
    for client in CLIENTS:
        mine = {one.round: one for one in measurements if (one.workload, one.client) == (workload, client.name)}
        rates = {number: one.rate for number, one in mine.items() if one.rate is not None}
        if not rates:
            continue
        rows.append(
            {
                "workload": workload,
                "client": client.title,
                "messages": client.messages[workload],
                "rate": statistics.median(rates.values()),
                "rate_min": min(rates.values()),
                "rate_max": max(rates.values()),
                "cpu_s_per_10k": median_cpu_s_per_10k(list(mine.values())),
                "of_bare": _ratio(workload, rates, "redrive", measurements),
                "of_pika": _ratio(workload, rates, "pika", measurements),
            }
        )
    return rows


def _ratio(
    workload: Workload, rates: dict[int, float], other: str, measurements: Sequence[Measurement]
) -> float | None:
    theirs = {one.round: one.rate for one in measurements if (one.workload, one.client) == (workload, other)}
    ratios = [rate / base for number, rate in rates.items() if (base := theirs.get(number))]
    return statistics.median(ratios) if ratios else None


def factors_of(workload: Workload, measurements: Sequence[Measurement]) -> str:
    """How many times as fast as other frameworks the runtime is, in a sentence; empty if they were not measured."""
    factors = []
    for name in ("runtime", "runtime-typed"):
        title = next(client.title for client in CLIENTS if client.name == name)
        mine = {one.round: one for one in measurements if (one.workload, one.client) == (workload, name)}
        rates = {number: one.rate for number, one in mine.items() if one.rate is not None}
        over = [
            f"{factor:.1f} × {client.title}"
            for client in CLIENTS
            if client.name in FRAMEWORKS and (factor := _ratio(workload, rates, client.name, measurements)) is not None
        ]
        factors += [f"{title}, {', '.join(over)}"] if over else []
    if not factors:
        return ""
    return f"Factors over other frameworks, medians of the ratios round by round: {'; '.join(factors)}."


async def watch_memory(case: Case, step: int) -> list[dict[str, int]]:
    """This process's memory while messages go through the runtime in it: published and consumed at the same time."""
    app = App(compiled_for(case))
    handled = 0
    seen: list[dict[str, int]] = []

    @app.consumer(case.source, prefetch=case.prefetch)
    async def handle(_body: bytes) -> None:
        nonlocal handled
        handled += 1
        if handled % step == 0:
            seen.append({"messages": handled, "resident_kb": _resident_kb()})

    async with surroundings(case), runner_for(app, case), AmqpClient(case.url) as client:
        publisher = await client.publisher(window=case.window)
        batch = [Outgoing("", case.source, case.body)] * 1000
        for _ in range(case.messages // 1000):
            outcomes = await publisher.publish_many(batch)
            assert all(isinstance(one, Confirmed) for one in outcomes)
        while handled < case.messages:  # noqa: ASYNC110 - the rest of a benchmark
            await asyncio.sleep(0.05)
    return seen


def _resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def render(result: dict[str, Any]) -> str:
    """Markdown, for a terminal and for the documentation."""
    measurements = [Measurement(**one) for one in result["measurements"]]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if version)
    rounds = result["rounds"]
    lines = [f"{result['date']}, {rounds} rounds, {rounds * ROUNDS_OF_W3} of W3. {versions}."]
    titles: dict[Workload, str] = {"W2": "consume and ack", "W3": "three retries, then parked"}
    for workload, title in titles.items():
        lines += ["", f"**{workload}** {title}", "", "| | messages | msg/s | spread | CPU s/10k | of bare | of pika |"]
        lines.append("|---|--:|--:|--:|--:|--:|--:|")
        for row in result["rows"]:
            if row["workload"] == workload:
                spread = f"{row['rate_min']:,.0f}–{row['rate_max']:,.0f}"
                cells = [row["client"], f"{row['messages']:,}", f"{row['rate']:,.0f}", spread]
                cells += [
                    "–" if value is None else f"{value:.{digits}f}"
                    for value, digits in ((row["cpu_s_per_10k"], 3), (row["of_bare"], 2), (row["of_pika"], 2))
                ]
                lines.append(f"| {' | '.join(cells)} |")
        factors = factors_of(workload, measurements)
        lines += ["", factors] if factors else []
    lines += ["", "Resident memory of one process that publishes and consumes:", ""]
    lines += ["| messages | " + " | ".join(f"{one['messages']:,}" for one in result["memory"]) + " |"]
    lines += ["|---|" + "--:|" * len(result["memory"])]
    lines += ["| MB | " + " | ".join(f"{one['resident_kb'] / 1024:.1f}" for one in result["memory"]) + " |"]
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
