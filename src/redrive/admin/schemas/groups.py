"""Schemas of groups."""

from typing import Any

from pydantic import ConfigDict, Field

from redrive.admin.schemas.base import GROUP_ID, MOMENT, Moment, NeededWhy, RequestSchema, ResponseSchema, Why, example
from redrive.records import GroupState

_GROUP: dict[str, Any] = {
    "id": GROUP_ID,
    "title": "TimeoutError: no answer from stock in N s",
    "queue": "orders",
    "error_type": "TimeoutError",
    "state": "open",
    "said": {"state": "open", "at": MOMENT, "who": "ada", "why": "it came back"},
    "first_seen": MOMENT,
    "last_seen": MOMENT,
    "count": 412,
    "by_status": {"pending": 400, "retrying": 12},
    "redriven": 12,
    "returned": 0,
    "notes": [{"at": MOMENT, "who": "ada", "text": "supplier ticket 4711"}],
    "redacted": False,
}


class Note(ResponseSchema):
    """A note on a group."""

    at: Moment | None
    who: str
    text: str


class Said(ResponseSchema):
    """The state that somebody gave a group, and why."""

    state: GroupState
    at: Moment | None
    who: str
    why: str


class Group(ResponseSchema):
    """Dead letters with the same cause, their counts, and what people said about them."""

    model_config = ConfigDict(json_schema_extra=example(**_GROUP))

    id: str
    title: str
    queue: str
    error_type: str | None
    state: GroupState
    said: Said | None = Field(
        description="The last state that somebody gave it; of a regressed group, who resolved it."
    )
    first_seen: Moment | None
    last_seen: Moment | None
    count: int
    by_status: dict[str, int]
    redriven: int
    returned: int
    notes: list[Note]
    redacted: bool = Field(default=False, description="The title is only the error's type, for this token.")


class Groups(ResponseSchema):
    """A page. With `next` there may be more."""

    model_config = ConfigDict(json_schema_extra=example(groups=[_GROUP], next=None))

    groups: list[Group]
    next: str | None


class GroupRequest(RequestSchema):
    """Why; it may be left out."""

    model_config = ConfigDict(json_schema_extra=example(why="ada looks at it"))

    why: Why = ""


class GroupReasonRequest(RequestSchema):
    """Why."""

    model_config = ConfigDict(json_schema_extra=example(why="fixed in 2.4.1"))

    why: NeededWhy


class NoteRequest(RequestSchema):
    """A note to add to a group."""

    model_config = ConfigDict(json_schema_extra=example(text="supplier ticket 4711"))

    text: NeededWhy
