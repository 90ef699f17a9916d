"""A message's life as values: what happened, when and where, and how it ended.

ending    exit  what
handled   0     a run succeeded
parked    0     it lies in a queue that keeps it: the shape's parking, or wherever a topology without shapes put it
lost      1     no queue has it, and no run succeeded
stuck     1     a queue holds it for a dead-letter target that does not come
endless   1     it goes round and round; the simulation gave up, a broker would not
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What an event is about."""

    PUBLISHED = "published"
    """Its publisher sent it."""
    RUN = "run"
    """A consumer had it in hand; the handler ran, or `decision` says why not."""
    PAUSED = "paused"
    """The consumer held it for a while."""
    ARRIVED = "arrived"
    """A copy came into a queue: by the consumer's publish or by dead-lettering."""
    RETURNED = "returned"
    """Back into its queue from the consumer's hand."""
    DELAYED = "delayed"
    """Its own queue keeps it from being delivered for a while."""
    REFUSED = "refused"
    """A copy was not taken by the broker; the delivery goes back to its queue."""
    HELD = "held"
    DROPPED = "dropped"


class Ending(StrEnum):
    """How it ended."""

    HANDLED = "handled"
    PARKED = "parked"
    LOST = "lost"
    STUCK = "stuck"
    ENDLESS = "endless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened `at_ms` after the message was published.

    `queue` is where, `text` a phrase for people. A run has its number (`attempt`, from 1) and what was decided; an
    arrival has how it came (`why`), and `until_ms` if it will leave by itself. `also` are other queues that got a
    copy, whose consumers see to it. `headers` are the message's own at that moment, where somebody could see them.
    """

    at_ms: int
    kind: Kind
    text: str
    queue: str | None = None
    attempt: int | None = None
    outcome: str | None = None
    decision: str | None = None
    delay_ms: int | None = None
    until_ms: int | None = None
    why: str | None = None
    also: tuple[str, ...] = ()
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """All of it. `attempts_max` is None where nobody counts; `headers` are those it has at its end, if it has one."""

    queue: str
    shape: str | None
    profile: str
    script: str
    attempts_max: int | None
    events: tuple[Event, ...]
    ending: Ending
    text: str
    at_ms: int
    resting_in: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How often a handler ran."""
        return sum(1 for event in self.events if event.attempt is not None)

    @property
    def is_safe(self) -> bool:
        """Whether the message was handled or is kept."""
        return self.ending in (Ending.HANDLED, Ending.PARKED)
