"""The cells of the matrix: who works, what is killed, and the window in which that happens."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

Store: TypeAlias = Literal["sqlite", "postgresql"]
QueueType: TypeAlias = Literal["classic", "quorum"]
STORES: tuple[Store, ...] = ("sqlite", "postgresql")
QUEUE_TYPES: tuple[QueueType, ...] = ("classic", "quorum")


class Flow(StrEnum):
    """Who works, and on what."""

    COLLECT = "collector"
    COLLECT_TWINS = "collector of twins"
    """The same, on messages that are all alike, without an id; and a kill that comes late."""
    COLLECT_RETURNS = "collector of returns"
    """The same, on copies that were redriven and died again: they belong to rows there are."""
    REDRIVE = "redriver"
    AUTO_RETRY = "auto-retry"


class Victim(StrEnum):
    """What is killed."""

    PROCESS = "process"
    BROKER = "broker"
    DATABASE = "database"
    MACHINE = "machine"
    """Process and broker at once; what comes after comes an hour later."""


COLLECTOR_STEPS = ("taken", "stored", "acked", "barrier", "owned")
COLLECTOR_WRITES = ("announcing", "storing", "owning")
REDRIVER_STEPS = ("claimed", "taken", "published", "confirmed", "recorded")
REDRIVER_WRITES = ("taking", "exchanging", "recording")

STEPS: dict[Flow, tuple[str, ...]] = {
    Flow.COLLECT: COLLECTOR_STEPS,
    Flow.COLLECT_TWINS: COLLECTOR_STEPS,
    Flow.COLLECT_RETURNS: COLLECTOR_STEPS,
    Flow.REDRIVE: REDRIVER_STEPS,
    Flow.AUTO_RETRY: ("chosen", *REDRIVER_STEPS),
}
"""The checkpoints: a step is done, the next one has not begun. `published` is half a batch."""
WRITES: dict[Flow, tuple[str, ...]] = {
    Flow.COLLECT: COLLECTOR_WRITES,
    Flow.COLLECT_TWINS: COLLECTOR_WRITES,
    Flow.COLLECT_RETURNS: COLLECTOR_WRITES,
    Flow.REDRIVE: REDRIVER_WRITES,
    Flow.AUTO_RETRY: ("choosing", *REDRIVER_WRITES),
}
"""The transactions. `inside`: all is written, not committed. `unanswered`: it is committed, nobody hears of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kill. It happens when the window is reached for the `turn`-th time: in the first batch, or in the second; for
    the third time a redriver has two batches."""

    flow: Flow
    victim: Victim
    window: str
    store: Store
    queue_type: QueueType
    turn: int = 1

    @property
    def may_doubt(self) -> bool:
        """Whether letters may be in doubt after it: the intent to send them was committed, their end was not."""
        if self.flow not in (Flow.REDRIVE, Flow.AUTO_RETRY):
            return False
        return self.window not in ("claimed", "chosen", "inside choosing", "choosing unanswered", "inside taking")

    @property
    def may_double(self) -> bool:
        """Whether one message may become two: a documented window, and marked."""
        if self.flow not in (Flow.COLLECT, Flow.COLLECT_TWINS):
            return self.may_doubt
        is_before = self.window in ("taken", "inside announcing", "inside storing")
        return not (is_before and self.kills_process)

    @property
    def is_within_batch(self) -> bool:
        """Whether the window comes after the first step."""
        return self.window != STEPS[self.flow][0] and not any(
            word in self.window for word in ("announcing", "choosing")
        )

    @property
    def kills_broker(self) -> bool:
        """Alone or with the process."""
        return self.victim in (Victim.BROKER, Victim.MACHINE)

    @property
    def kills_process(self) -> bool:
        """Alone or with the broker; else it goes on, without what was killed."""
        return self.victim in (Victim.PROCESS, Victim.MACHINE)

    def __str__(self) -> str:
        turn = "" if self.turn == 1 else f", turn {self.turn}"
        return f"{self.flow}, {self.victim} killed at {self.window}{turn} ({self.store}, {self.queue_type})"


def windows_of(flow: Flow, victim: Victim, store: Store) -> tuple[str, ...]:
    """Where something can be killed while somebody works, in the order of the work."""
    inside = tuple(f"inside {write}" for write in WRITES[flow])
    match victim:
        case Victim.PROCESS:
            return (*STEPS[flow], *inside)
        case Victim.BROKER | Victim.MACHINE:
            return STEPS[flow]
        case Victim.DATABASE if store == "sqlite":
            # There is no server to kill: somebody else holds the lock. Inside a transaction the lock is ours.
            return STEPS[flow]
        case _:
            return (*STEPS[flow], *inside, *(f"{write} unanswered" for write in WRITES[flow]))


def all_cells(stores: Sequence[Store] = STORES) -> Iterator[Cell]:
    """Every cell there is; the same on every version."""
    for victim in Victim:
        for flow in Flow:
            for store in stores:
                if store not in _stores_of(flow, victim):
                    continue
                for window in windows_of(flow, victim, store):
                    for queue_type in QUEUE_TYPES:
                        for turn in _turns(flow, victim, window):
                            yield Cell(
                                flow=flow, victim=victim, window=window, store=store, queue_type=queue_type, turn=turn
                            )


def sample_cells(*, seed: int, victim: Victim, count: int, stores: Sequence[Store] = STORES) -> list[Cell]:
    """A few cells with one kind of victim, drawn from a seed, of every flow if they suffice."""
    cells = [cell for cell in all_cells(stores) if cell.victim is victim]
    random.Random(seed).shuffle(cells)
    first: dict[Flow, Cell] = {}
    for cell in cells:
        first.setdefault(cell.flow, cell)
    chosen = list(first.values())[:count]
    return chosen + [cell for cell in cells if cell not in chosen][: count - len(chosen)]


def _stores_of(flow: Flow, victim: Victim) -> Sequence[Store]:
    """Where the question is what the broker says after its death, one database is as good as another."""
    if flow is Flow.COLLECT_TWINS:
        return () if victim is Victim.DATABASE else ("sqlite",)
    return ("sqlite",) if victim is Victim.MACHINE else STORES


def _turns(flow: Flow, victim: Victim, window: str) -> tuple[int, ...]:
    if flow is Flow.REDRIVE and window in REDRIVER_STEPS and window != "claimed":
        return (1, 2, 3) if victim is Victim.PROCESS else (1, 3)
    has_second = flow in (Flow.COLLECT, Flow.REDRIVE) and window != "claimed"
    return (1, 2) if victim is Victim.PROCESS and has_second else (1,)
