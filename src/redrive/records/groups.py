"""A group: dead letters of one kind, and what people said about it."""

from dataclasses import dataclass

from redrive.records.states import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNote:
    """What somebody wrote beside a group."""

    at_ms: int
    who: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStateChange:
    """What somebody said about a group last: the state they gave it, and why."""

    state: GroupState
    at_ms: int
    who: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A row of the store. `count` are all its dead letters there are, `by_status` how they stand."""

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
    """Also of a group that has regressed since: then it tells who resolved it."""
