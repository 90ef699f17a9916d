"""A group: dead letters of one kind, with its notes and the state that people gave it."""

from dataclasses import dataclass

from redrive.records.states import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNote:
    """A note of a person about a group."""

    at_ms: int
    who: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStateChange:
    """The state that somebody gave a group, and why."""

    state: GroupState
    at_ms: int
    who: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A row of the store. `count` are all its dead letters, `by_status` those of each status."""

    id: str
    title: str
    queue: str
    owner: str
    """The queue whose operators it belongs to."""
    error_type: str | None
    state: GroupState
    first_seen_ms: int
    last_seen_ms: int
    count: int
    by_status: dict[str, int]
    redriven: int
    """Copies sent back so far, and how many of them came back."""
    returned: int
    notes: tuple[GroupNote, ...] = ()
    state_change: GroupStateChange | None = None
    """The last one; of a group that has regressed since, it says who resolved it."""
