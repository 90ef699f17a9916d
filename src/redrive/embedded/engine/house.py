"""What a queue needs of the engine it lives in, and nothing more of it."""

from collections import deque
from typing import TYPE_CHECKING, Protocol

from redrive.embedded.engine.effects import Effect
from redrive.embedded.engine.messages import Entry
from redrive.embedded.engine.profiles import Profile
from redrive.embedded.engine.timers import Timers

if TYPE_CHECKING:
    from redrive.embedded.engine.queues import Queue


class House(Protocol):
    """The engine, as a queue sees it."""

    profile: Profile
    timers: Timers
    now_ms: int
    sequence: int
    in_hand: int
    effects: list[Effect]
    unsent_bytes: int
    overdue_ms: int
    """When a message may have been in hand for too long, at the earliest."""
    stalled: dict["Queue", None]
    """Queues that have more to give out as soon as the effects there are have been taken."""
    dead: deque[tuple["Queue", Entry, str]]
    """Who died in the present command."""

    def bury(self, queue: "Queue", entry: Entry, reason: str, place: int | None = None) -> None:
        """A message died: it will be dead-lettered when the present command is through, last or in that place."""
