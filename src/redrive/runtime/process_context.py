"""What the queues that one process consumes share: its clock, randomness and ids, its observer, its end, its
records."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from redrive.core import Observer
from redrive.runtime.connection_losses import ConnectionLosses
from redrive.runtime.exclusive_run import ExclusiveRuns
from redrive.runtime.run_records import RunRecord, RunRecords

Checkpoint = Callable[[str], None]
"""Called between any two steps of settling with the name of the step; tests kill the process there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """Shared by all queues of a process.

    `stopping` is set once no new deliveries come. `draw` returns a random number, 0 ≤ n < 1. `records` is the folder
    where all processes record what is in their handlers, `record` the file of this one.
    """

    observer: Observer
    now_ms: Callable[[], int]
    draw: Callable[[], float]
    new_id: Callable[[], str]
    checkpoint: Checkpoint | None = None
    records: RunRecords | None = None
    record: RunRecord | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    exclusive_runs: ExclusiveRuns = field(default_factory=ExclusiveRuns)
    losses: ConnectionLosses = field(default_factory=ConnectionLosses)
