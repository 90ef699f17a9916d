"""What the worker beside the API reports about itself: the collector, redriver and auto-retry of this process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class WorkerActivity(StrEnum):
    """What the worker does."""

    OFF = "off"
    CONNECTING = "connecting"
    COLLECTING = "collecting"
    """Connected and running, also if there is nothing to collect."""
    WAITING = "waiting"
    """For the broker or the database; it continues by itself."""
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """The worker's state at a moment."""

    activity: WorkerActivity
    reason: str = ""
    """Why it waits, in a sentence."""
    collects: bool = True
    """Whether it is to collect at all."""
    auto_retries: bool = True
    queues: Mapping[str, str] = field(default_factory=dict)
    """The dead-letter queues this process collects, and why one is not collected at the moment ("" if it is)."""

    def why_not(self, dlq: str) -> str | None:
        """Why a queue is not collected at the moment, "" if it is; None if this process is not to collect it."""
        reason = self.queues.get(dlq)
        return self.text if reason == "" and self.activity is not WorkerActivity.COLLECTING else reason

    @property
    def is_ready(self) -> bool:
        """Whether the worker does everything it is to do."""
        return self.activity is WorkerActivity.OFF or (self.activity is WorkerActivity.COLLECTING and not self.reason)

    @property
    def reason_without_address(self) -> str:
        """The reason for callers who are no admins: the part after a colon may name hosts."""
        return self.reason.partition(":")[0]

    @property
    def text(self) -> str:
        """In a few words: `collecting`, `waiting: for the broker: …`."""
        redrives_only = self.activity is WorkerActivity.COLLECTING and not self.collects
        activity = "redriving only" if redrives_only else str(self.activity)
        return f"{activity}: {self.reason}" if self.reason else activity
