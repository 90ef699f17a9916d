"""The process that `bench.dead_letters` measures: collects a queue into a store, redrives it, and prints as JSON what
that took, by itself and by the database server."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

from redrive.client import Client
from redrive.deadletters import CollectOptions, Collector, CollectorParts, Redriver, RedriverParts, Source
from redrive.records import ID_RANDOM_BITS, Filter, NameTerm, NewOperation, OperationKind, Selection, make_id
from redrive.stores import Store, open_store
from redrive.wiring import rare_garbage_collection


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.dead_letter_work")
    for name in ("amqp", "database", "dlq", "target"):
        parser.add_argument(name)
    parser.add_argument("messages", type=int)
    parser.add_argument("--server", type=int, default=0, help="the process id of PostgreSQL")
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    with rare_garbage_collection():  # as `redrive collect` and `redrive dlq redrive` have it
        print(json.dumps(asyncio.run(work(chosen))))


async def work(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Collects, then redrives."""
    parts = []
    async with Client(chosen.amqp) as client, await open_store(chosen.database) as store:
        for part in (collect, redrive):
            watch = Watch(chosen.messages, server=chosen.server if store.kind == "postgresql" else None)
            profile = cProfile.Profile() if chosen.profile else None
            if profile is not None:
                profile.enable()
            await part(client, store, chosen, watch)
            if profile is not None:
                profile.disable()
                pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(45)
            parts.append(watch.result(part.__name__))
    return parts


async def collect(client: Client, store: Store, chosen: argparse.Namespace, watch: Watch) -> None:
    """The collector, until it has seen the queue empty."""
    # The failed queue is known, as a topology tells it.
    source = Source(vhost=client.target.vhost, dlq=chosen.dlq, known_queue=chosen.target, queue_type="quorum")
    stored = Stored()

    async def look(checkpoint: str) -> None:
        if checkpoint == "owned":
            watch.look(stored.count)

    collector = Collector(
        CollectorParts(
            client=client,
            store=store,
            owner="bench",
            clock_ms=_now_ms,
            random_bits=_luck,
            observer=stored,
            options=CollectOptions(),
            pause_at=look,
        ),
        [source],
    )
    watch.start()
    report = await collector.run(once=True)
    found = await store.letters.count(Filter(), now_ms=_now_ms())
    if report.left or (report.total.inserted, found) != (chosen.messages, chosen.messages):
        sys.exit(f"{report.total.inserted} of {chosen.messages} were collected, {found} are stored: {report.left}")


async def redrive(client: Client, store: Store, chosen: argparse.Namespace, watch: Watch) -> None:
    """One operation of everything."""
    everything = Selection(filter=Filter())
    request = NewOperation(kind=OperationKind.REDRIVE, selection=everything, who="bench", why="measured")
    id = make_id(_now_ms(), _luck())
    watch.start()
    await store.operations.create(request, id=id, now_ms=_now_ms())
    redriver = Redriver(RedriverParts(store=store, client=client, owner="bench", clock_ms=_now_ms))
    ended = await redriver.run(id, on_progress=lambda progress: watch.look(progress.operation.sent))
    retrying = Filter((NameTerm(field="status", values=("retrying",)),))
    found = await store.letters.count(retrying, now_ms=_now_ms())
    if (ended.sent, found) != (chosen.messages, chosen.messages):
        sys.exit(f"{ended.sent} of {chosen.messages} were sent, {found} are retrying: {ended}")


class Stored:
    """Counts what the collector says it has stored."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, event: str, /, **fields: object) -> None:
        """One event of the collector's."""
        count = fields.get("count")
        if event == "collector.stored" and isinstance(count, int):
            self.count += count


class Watch:
    """Time, CPU and memory of this process, and CPU of the database server, up to the last look."""

    def __init__(self, messages: int, *, server: int | None) -> None:
        self._messages = messages
        self._server = server
        self._resident_kb: list[tuple[int, int]] = []
        self._began = self._last = (0.0, 0.0, 0.0)

    def start(self) -> None:
        """The clock runs from here."""
        self._began = self._last = self._now()

    def look(self, done: int) -> None:
        """So many messages are done."""
        self._resident_kb.append((done, _resident_kb()))
        self._last = self._now()

    def result(self, part: str) -> dict[str, Any]:
        """What happened until the last look."""
        seconds, cpu_s, server_cpu_s = (last - began for last, began in zip(self._last, self._began, strict=True))
        early = next(kb for done, kb in self._resident_kb if done >= self._messages // 10)
        return {
            "part": part,
            "messages": self._messages,
            "seconds": round(seconds, 3),
            "cpu_s": round(cpu_s, 3),
            "server_cpu_s": None if self._server is None else round(server_cpu_s, 3),
            "resident_kb_at_tenth": early,
            "resident_kb": self._resident_kb[-1][1],
        }

    def _now(self) -> tuple[float, float, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        server_s = 0.0 if self._server is None else _cpu_s_of_server(self._server)
        return time.perf_counter(), used.ru_utime + used.ru_stime, server_s


def _cpu_s_of_server(postmaster: int) -> float:
    """Of all its processes: those that have ended are counted as their parent's."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # gone meanwhile
        if path.parent.name == str(postmaster):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(postmaster):
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _luck() -> int:
    return random.getrandbits(ID_RANDOM_BITS)


if __name__ == "__main__":
    main()
