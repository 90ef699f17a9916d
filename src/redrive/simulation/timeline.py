"""The timeline of a simulated message: what happened, when and where, and how it ended.

ending    exit  what
handled   0     a run succeeded
parked    0     a queue keeps it: the shape's parking queue, or wherever a topology without shapes put it
lost      1     no queue has it, and no run succeeded
stuck     1     a queue holds it because no dead-letter target takes it
endless   1     it goes round without end; the simulation gave up, a broker would not
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    """What an event is about."""

    PUBLISHED = "published"
    """Its publisher sent it."""
    RUN = "run"
    """It was delivered to the consumer; the handler ran, or `decision` says why not."""
    PAUSED = "paused"
    """The consumer held it for a while."""
    ARRIVED = "arrived"
    """A copy came into a queue: by the consumer's publish or by dead-lettering."""
    REQUEUED = "returned"
    """The consumer requeued it, or died and the broker did."""
    DELAYED = "delayed"
    """Its own queue delays the next delivery."""
    REFUSED = "refused"
    """The broker did not take a copy; the delivery is requeued."""
    HELD = "held"
    """Its queue could not dead-letter it and keeps it."""
    DROPPED = "dropped"
    """The broker discarded it."""


class EndState(StrEnum):
    """How it ended; the table above."""

    HANDLED = "handled"
    PARKED = "parked"
    LOST = "lost"
    STUCK = "stuck"
    ENDLESS = "endless"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """One thing that happened `at_ms` after the message was published.

    `queue` is where, `text` a phrase for people. A run has its number (`attempt`, from 1) and what was decided. An
    arrival has its reason (`why`), and `until_ms` if the message will expire there. `also` are other queues that got a
    copy; their consumers are not simulated. `headers` are the message's headers at that moment, where they are known.
    """

    at_ms: int
    kind: EventKind
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
class Timeline:
    """The whole timeline. `attempts_max` is None where nothing counts attempts.

    `final_queue` is where the message is at the end, if a queue has it; `headers` are those it has then.
    """

    queue: str
    shape: str | None
    profile: str
    script: str
    attempts_max: int | None
    events: tuple[TimelineEvent, ...]
    end_state: EndState
    text: str
    at_ms: int
    final_queue: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How often a handler ran."""
        return sum(1 for event in self.events if event.attempt is not None)

    @property
    def is_safe(self) -> bool:
        """Whether the message was handled or is kept."""
        return self.end_state in (EndState.HANDLED, EndState.PARKED)
