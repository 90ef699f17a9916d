"""Schemas of redrives: operations, their items, and the plan of a dry run."""

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from redrive.admin.schemas.base import (
    LETTER_ID,
    MOMENT,
    OPERATION_ID,
    Moment,
    RequestSchema,
    ResponseSchema,
    Why,
    example,
)
from redrive.admin.schemas.messages import IDS_MAX
from redrive.records import ItemState, OperationKind, OperationState

_OPERATION: dict[str, Any] = {
    "id": OPERATION_ID,
    "kind": "redrive",
    "state": "running",
    "selection": "queue:orders error:Timeout",
    "target": {"exchange": None, "routing_key": None},
    "rate_per_s": 50.0,
    "keep_attempts": False,
    "ramp": [1, 2, 5, 20],
    "settle_s": 600.0,
    "who": "ada",
    "why": "the supplier is back",
    "total": 412,
    "sent": 180,
    "refused": 0,
    "in_doubt": 0,
    "skipped": 0,
    "left": 232,
    "created_at": MOMENT,
    "started_at": MOMENT,
    "ended_at": None,
    "note": "",
    "measured_per_s": 48.2,
    "eta_s": 4.8,
}
_TEXT_MAX = 255


class Target(ResponseSchema):
    """Where copies go. Both null: the queue that each message failed in."""

    exchange: str | None
    routing_key: str | None


class TargetRequest(RequestSchema):
    """Where copies go instead of the failed queue. `{queue}` in either stands for it."""

    exchange: str | None = Field(
        default=None, max_length=_TEXT_MAX, description="An empty one is the default exchange."
    )
    routing_key: str | None = Field(default=None, max_length=_TEXT_MAX, description="By default each message's first.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.exchange is None and self.routing_key is not None:
            raise ValueError("a routing_key needs an exchange; for a queue write the exchange ''")
        if self.exchange == "" and not self.routing_key:
            raise ValueError("the default exchange needs a routing_key: the name of a queue")
        return self


class RedriveRequest(RequestSchema):
    """What to send back: `ids`, or everything that matches a filter `q`, a `group`, a `queue` (or several of these)."""

    model_config = ConfigDict(
        json_schema_extra=example(q="error:Timeout", queue="orders", rate_per_s=50, why="the supplier is back")
    )

    ids: Annotated[list[str], Field(min_length=1, max_length=IDS_MAX)] | None = None
    q: str | None = Field(default=None, max_length=10_000, description="The filter grammar; empty is everything.")
    group: str | None = Field(default=None, max_length=_TEXT_MAX)
    queue: str | None = Field(
        default=None, max_length=_TEXT_MAX, description="The failed queue, or the dead-letter one."
    )
    target: TargetRequest | None = None
    rate_per_s: float | None = Field(default=None, gt=0, lt=1_000_000)
    ramp: list[Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        default_factory=list,
        max_length=20,
        description="Sizes of the first batches; the redrive pauses if a message comes back.",
    )
    limit: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="Maximum number of letters; oldest first."
    )
    keep_attempts: bool = False
    include_in_doubt: bool = Field(default=False, description="Doubtful ones too, which may make duplicates.")
    settle_s: float = Field(
        default=600.0, gt=0, le=31_536_000, description="A message that did not come back for so long is resolved."
    )
    why: Why = ""
    dry_run: bool = Field(
        default=False, description="IdempotentResponses 200 with what would be sent where; nothing is changed."
    )

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        narrows = any(one is not None for one in (self.q, self.group, self.queue))
        if (self.ids is not None) == narrows:
            raise ValueError("say which: by ids, or by q, group and queue (an empty q is everything), not by both")
        return self


class Redrive(ResponseSchema):
    """An operation and its progress. `measured_per_s` and `eta_s` are null while they are unknown."""

    model_config = ConfigDict(json_schema_extra=example(**_OPERATION))

    id: str
    kind: OperationKind
    state: OperationState
    selection: str | None = Field(description="Null if it names values that this token may not see.")
    target: Target
    rate_per_s: float | None
    keep_attempts: bool
    ramp: list[int]
    settle_s: float
    who: str
    why: str
    total: int
    sent: int
    refused: int
    in_doubt: int
    skipped: int
    left: int
    created_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None
    note: str
    measured_per_s: float | None
    eta_s: float | None


class Redrives(ResponseSchema):
    """A page, the newest first. With `next` there may be more."""

    model_config = ConfigDict(json_schema_extra=example(redrives=[_OPERATION], next=None))

    redrives: list[Redrive]
    next: str | None


class Item(ResponseSchema):
    """One dead letter in an operation."""

    id: str
    queue: str
    state: ItemState
    reason: str
    at: Moment | None


class Items(ResponseSchema):
    """A page, in the order they are sent. With `next` there may be more."""

    model_config = ConfigDict(
        json_schema_extra=example(
            items=[{"id": LETTER_ID, "queue": "orders", "state": "sent", "reason": "", "at": MOMENT}], next=None
        )
    )

    items: list[Item]
    next: str | None


class PlannedTarget(ResponseSchema):
    """A target as it is now; null: unknown."""

    exchange: str
    routing_key: str | None
    copies: int
    exists: bool
    consumers: int | None
    messages_ready: int | None


class PlanFinding(ResponseSchema):
    """Something to know before sending. An `error` would refuse the redrive."""

    code: str
    severity: str
    address: str
    text: str


class Plan(ResponseSchema):
    """What a redrive would send where. `targets` is null if the broker could not be asked; `note` says why."""

    model_config = ConfigDict(
        json_schema_extra=example(
            dry_run=True,
            total=412,
            by_queue={"orders": 412},
            left_alone={"retrying": 3},
            targets=[
                {
                    "exchange": "",
                    "routing_key": "orders",
                    "copies": 412,
                    "exists": True,
                    "consumers": 2,
                    "messages_ready": 0,
                }
            ],
            findings=[],
            note="",
        )
    )

    dry_run: bool
    total: int
    by_queue: dict[str, int]
    left_alone: dict[str, int]
    targets: list[PlannedTarget] | None
    findings: list[PlanFinding]
    note: str
