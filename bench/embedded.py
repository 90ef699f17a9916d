"""The embedded broker in numbers: the engine alone, over TCP, memory, depth, a ladder in virtual time, the start.

`python -m bench.embedded` prints the table and keeps the raw numbers in bench/results/embedded.json and the table in
embedded.md, for docs/performance.md. Each case runs in a process of its own, so that one case's garbage is not
another's pause; `python -m bench.embedded CASE …` is such a process and prints its numbers as JSON.
"""

import asyncio
import datetime
import gc
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
PROFILES = ("3.10", "4.0", "4.3")
KINDS = ("classic", "quorum")
CLIENTS = ("redrive by pipe", "redrive", "an app on the runtime", "pika", "aio-pika")
BODY = b"x" * 256
MESSAGES = 50_000
RUNS = 5
DEPTHS = (1_000, 100_000, 1_000_000)
SAMPLE = 5_000
"""Publishes that are timed at each depth; few beside the smallest depth's neighbours."""
LADDERS = 15
STARTS = 9


def engine_with_queue(profile: str, kind: str) -> tuple[Any, Any]:
    """An engine, and a channel with a queue `q`."""
    from redrive.embedded import PROFILES
    from redrive.embedded.engine import Engine

    engine = Engine(PROFILES[profile], 0)
    channel = engine.connect("/", "guest").open_channel(1)
    channel.declare_queue("q", durable=True, arguments={"x-queue-type": kind})
    return engine, channel


def headers(count: int, prefix: str = "") -> list[bytes]:
    """Content headers of persistent messages, each with an id."""
    from redrive import wire

    return [wire.Properties.of(delivery_mode=2, message_id=f"{prefix}{number}").raw for number in range(count)]


def measure_engine(profile: str, kind: str) -> list[float]:
    """Publish + deliver + ack, in messages a second."""
    rates = []
    for _ in range(RUNS):
        engine, channel = engine_with_queue(profile, kind)
        channel.consume("q", "tag", no_ack=False, exclusive=False, arguments={})
        prepared = headers(MESSAGES)
        began_s = time.perf_counter()
        for header in prepared:
            channel.publish("", "q", header, BODY)
            channel.ack(channel.delivery_tag)
            engine.take_effects()
        rates.append(MESSAGES / (time.perf_counter() - began_s))
    return rates


def measure_tcp(kind: str) -> list[float]:
    """Confirmed, delivered and acked through our client, in messages a second."""
    return [asyncio.run(_over_tcp(kind)) for _ in range(RUNS)]


async def _over_tcp(kind: str) -> float:
    from redrive import wire
    from redrive.client import Client, Delivery, Outgoing
    from redrive.embedded import EmbeddedBroker

    async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client:
        channel = await client.channel()
        await channel.declare_queue("q", arguments={"x-queue-type": kind})
        publisher = await client.publisher(window=2000)
        done = asyncio.Event()
        count = 0

        def take(delivery: Delivery) -> None:
            nonlocal count
            delivery.ack()
            count += 1
            if count == MESSAGES:
                done.set()

        await client.consume("q", take, prefetch=1000)
        properties = wire.Properties.of(delivery_mode=2)
        began_s = time.perf_counter()
        for _ in range(0, MESSAGES, 1000):
            await publisher.publish_many([Outgoing("", "q", BODY, properties)] * 1000)
        await done.wait()
        return MESSAGES / (time.perf_counter() - began_s)


def measure_memory(kind: str) -> list[float]:
    """Bytes for each queued message of 256 bytes."""
    from redrive import wire

    _, channel = engine_with_queue("4.3", kind)
    count = 100_000
    gc.collect()
    tracemalloc.start()
    for number in range(count):
        header = wire.Properties.of(delivery_mode=2, message_id=f"message-{number}").raw
        channel.publish("", "q", header, bytes(bytearray(BODY)))  # a body of its own, as the network brings it
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return [size / count]


def measure_depth(kind: str, depth: int) -> list[float]:
    """Microseconds for a publish into a queue of that depth."""
    _, channel = engine_with_queue("4.3", kind)
    gc.disable()  # a collection of a million messages in the middle of a sample would be all that is measured
    for number in range(0, depth, SAMPLE):
        for header in headers(min(SAMPLE, depth - number), f"{number}-"):
            channel.publish("", "q", header, BODY)
    costs = []
    for run in range(RUNS):
        prepared = headers(SAMPLE // RUNS, f"sample-{run}-")
        began_s = time.perf_counter()
        for header in prepared:
            channel.publish("", "q", header, BODY)
        costs.append((time.perf_counter() - began_s) / len(prepared) * 1e6)
    return costs


def measure_ladder(client: str) -> list[tuple[float, float]]:
    """Milliseconds of a climb, and the same with connecting and declaring."""
    from rig.ladder_app import climb_with_app
    from rig.ladder_clients import CLIMBS, ORDER, PARKED

    from redrive.testing import ThreadedBroker

    climbs = {**CLIMBS, "an app on the runtime": climb_with_app}

    times = []
    for _ in range(LADDERS + 1):
        if client == "redrive by pipe":
            times.append(_climb_by_pipe())
            continue
        broker = ThreadedBroker(time="automatic")
        try:
            began_s = time.perf_counter()
            took_s = climbs[client](broker.url)
            times.append((took_s * 1000, (time.perf_counter() - began_s) * 1000))
            assert [place.queue for place in broker.whereabouts(ORDER)] == [PARKED]
        finally:
            broker.stop()
    return times[1:]  # the first warms the library up


def _climb_by_pipe() -> tuple[float, float]:
    from rig.ladder_clients import ORDER, PARKED, climb_with_redrive

    from redrive.embedded import EmbeddedBroker
    from redrive.testing import run_in_virtual_time

    async def climb() -> tuple[float, float]:
        async with EmbeddedBroker(listen=False) as broker:
            began_s = time.perf_counter()
            took_s = await climb_with_redrive(broker.url, broker.dial, patience_s=3600)
            total_s = time.perf_counter() - began_s
            assert [place.queue for place in broker.whereabouts(ORDER)] == [PARKED]
            return took_s * 1000, total_s * 1000

    return run_in_virtual_time(climb())


def measure_start() -> list[tuple[float, float]]:
    """Seconds until `redrive broker` says where it listens: on the clock, and of the CPU until it has ended again."""
    times = []
    for _ in range(STARTS + 1):
        began_s = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "broker", "--port", "0"], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        assert process.stderr.readline().startswith("amqp://")
        took_s = time.perf_counter() - began_s
        process.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        times.append((took_s, usage.ru_utime + usage.ru_stime))
    return times[1:]  # the first finds no bytecode


CASES: dict[str, Callable[..., list[Any]]] = {
    "engine": measure_engine,
    "tcp": measure_tcp,
    "memory": measure_memory,
    "depth": lambda kind, depth: measure_depth(kind, int(depth)),
    "ladder": measure_ladder,
    "start": measure_start,
}


def measure(case: str, *arguments: str) -> list[Any]:
    """A case in a process of its own."""
    command = [sys.executable, "-m", "bench.embedded", case, *arguments]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    values: list[Any] = json.loads(output)
    return values


def middle(values: list[Any], column: int | None = None) -> float:
    """The median."""
    return float(statistics.median(values if column is None else [one[column] for one in values]))


def table(head: str, rows: list[str]) -> str:
    """A Markdown table; the first column is text."""
    columns = head.count("|") - 1
    return "\n".join([head, "|---|" + "--:|" * (columns - 1), *rows])


def report(result: dict[str, Any]) -> str:
    """The tables."""
    found, setting = result["cases"], result["setting"]
    engine = [
        f"| {profile} | " + " | ".join(f"{middle(found[f'engine {profile} {kind}']):,.0f}" for kind in KINDS) + " |"
        for profile in PROFILES
    ]
    depths = " | ".join(f"µs a publish at {depth:,}" for depth in DEPTHS)
    queues = [
        f"| {kind} | {middle(found[f'tcp {kind}']):,.0f} | {middle(found[f'memory {kind}']):,.0f} | "
        + " | ".join(f"{middle(found[f'depth {kind} {depth}']):.1f}" for depth in DEPTHS)
        + " |"
        for kind in KINDS
    ]
    ladders = [
        f"| {client} | {middle(found[f'ladder {client}'], 0):.0f} | {middle(found[f'ladder {client}'], 1):.0f} |"
        for client in CLIENTS
    ]
    start = found["start"]
    quiet = "" if setting["load"] < 1 else f" The machine was busy with other things (load {setting['load']:.0f})."
    return "\n\n".join(
        [
            f"{setting['date']}, Python {setting['python']}, {setting['cores']} cores.{quiet}",
            table("| engine alone, messages/s | classic | quorum |", engine),
            table(f"| profile 4.3 | TCP, messages/s | bytes a queued message of 256 | {depths} |", queues),
            table("| a ladder of 35 min 30 s | ms | ms with connecting |", ladders),
            f"`redrive broker` listens after {middle(start, 0):.2f} s ({middle(start, 1):.2f} s of CPU).",
        ]
    )


def main() -> None:
    """All cases, the tables, the raw numbers."""
    setting = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    wanted = [
        *(("engine", profile, kind) for profile in PROFILES for kind in KINDS),
        *(("tcp", kind) for kind in KINDS),
        *(("memory", kind) for kind in KINDS),
        *(("depth", kind, str(depth)) for kind in KINDS for depth in DEPTHS),
        *(("ladder", client) for client in CLIENTS),
        ("start",),
    ]
    cases: dict[str, Any] = {}
    for case in wanted:
        cases[" ".join(case)] = values = measure(*case)
        print(f"{' '.join(case):<24} {middle(values, 0 if isinstance(values[0], list) else None):>12,.2f}", flush=True)
    result = {"setting": setting, "cases": cases}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "embedded.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "embedded.md").write_text(report(result) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))
    else:
        main()
