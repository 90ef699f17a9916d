"""The workers: each does one part's job to its end, in a process of its own, and waits at its gate on the way.

What goes wrong is left in FOLDER/said, with what the parts noted before.
"""

import asyncio
import os
import random
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redrive.client import Client
from redrive.deadletters.collect.collect_loop import CollectOptions, CollectorParts
from redrive.deadletters.collect.collector import Collector
from redrive.deadletters.collect.sources import Source
from redrive.deadletters.redrive.auto_retry import AutoRetry
from redrive.deadletters.redrive.operation_run import RedriveOptions, RedriverParts
from redrive.deadletters.redrive.redriver import Redriver, RunsElsewhere
from redrive.records import OperationState
from redrive.stores import LeaseLost, Store
from tests.live.deadletters.kills.cells import Flow, QueueType
from tests.live.deadletters.kills.gate import Gate, open_gated_store

BATCH = 8
"""A redriver's first batch; from then on it has two of half that size."""
LEASE_S = 4.0
"""How long after a death others wait. Short: a worker whose database was away waits for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker does. `gates`: where it stands still, and at which time it comes there;
    `ahead_ms`: how far its clock is ahead."""

    flow: Flow
    amqp_url: str
    database_url: str
    dlq: str
    main: str
    queue_type: QueueType
    folder: Path
    operation_id: str = ""
    gates: tuple[tuple[str, int], ...] = ()
    ahead_ms: int = 0
    lease_s: float = LEASE_S
    shares: bool = False
    """Somebody else does the same: to find it done, or taken away, is no failure."""
    rounds: int = 1
    """How often auto-retry looks."""
    busy_timeout_ms: int = 10_000


class Notes:
    """An observer that remembers, for when something goes wrong."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, event: str, /, **details: Any) -> None:
        """One event."""
        self.lines.append(f"{time.monotonic():.3f} {event} {details}")


def work(job: Job, pipe: Any) -> None:
    """The whole of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    notes = Notes()
    try:
        asyncio.run(_work(job, Gate(pipe, job.gates), notes))
    except BaseException:
        (job.folder / "said").write_text("\n".join([*notes.lines, traceback.format_exc()]))
        raise


async def _work(job: Job, gate: Gate, notes: Notes) -> None:
    store = await open_gated_store(job.database_url, gate, busy_timeout_ms=job.busy_timeout_ms)
    async with store, Client(job.amqp_url, observer=notes) as client:
        match job.flow:
            case Flow.COLLECT | Flow.COLLECT_TWINS | Flow.COLLECT_RETURNS:
                await _collect(job, store, client, gate, notes)
            case Flow.REDRIVE:
                await _redrive(job, store, client, gate, notes)
            case Flow.AUTO_RETRY:
                await _auto_retry(job, store, client, gate, notes)


async def _collect(job: Job, store: Store, client: Client, gate: Gate, notes: Notes) -> None:
    async def pause_at(step: str) -> None:
        await gate.pause_at(step)

    source = Source(vhost=client.target.vhost, dlq=job.dlq, known_queue=job.main, queue_type=job.queue_type)
    report = await Collector(
        CollectorParts(
            client=client,
            store=store,
            owner=f"worker {os.getpid()}",
            clock_ms=lambda: round(time.time() * 1000) + job.ahead_ms,
            random_bits=_luck,
            observer=notes,
            options=CollectOptions(lease_s=job.lease_s),
            pause_at=pause_at,
        ),
        [source],
    ).run(once=True)
    assert not report.left, report.left


async def _redrive(job: Job, store: Store, client: Client, gate: Gate, notes: Notes) -> None:
    try:
        ended = await Redriver(_parts(job, store, client, gate, notes)).run(job.operation_id)
    except (RunsElsewhere, LeaseLost):
        if not job.shares:
            raise
    else:
        assert ended.state is OperationState.DONE, ended


async def _auto_retry(job: Job, store: Store, client: Client, gate: Gate, notes: Notes) -> None:
    auto_retry = AutoRetry(Redriver(_parts(job, store, client, gate, notes)), random_bits=_luck)
    for _ in range(job.rounds):
        try:
            await auto_retry.once()
        except LeaseLost:
            if not job.shares:
                raise


def _parts(job: Job, store: Store, client: Client, gate: Gate, notes: Notes) -> RedriverParts:
    async def pause_at(step: str) -> None:
        await gate.pause_at(step)

    return RedriverParts(
        store=store,
        client=client,
        owner=f"worker {os.getpid()}",
        clock_ms=lambda: round(time.time() * 1000) + job.ahead_ms,
        observer=notes,
        options=RedriveOptions(lease_s=job.lease_s, batch=BATCH),
        pause_at=pause_at,
    )


def _luck() -> int:
    return random.getrandbits(64)
