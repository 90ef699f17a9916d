"""Schemas of dead letters and of requests about them."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from redrive.admin.schemas.base import (
    GROUP_ID,
    LETTER_ID,
    MOMENT,
    Moment,
    NeededWhy,
    RequestSchema,
    ResponseSchema,
    Why,
    example,
)
from redrive.records import Status

IDS_MAX = 10_000
CHANGED_MAX = 10_000
"""One request changes no more than this; a client repeats it until nothing is done any more."""

_MESSAGE: dict[str, Any] = {
    "id": LETTER_ID,
    "version": 3,
    "status": "pending",
    "status_reason": None,
    "queue": "orders",
    "dlq": "orders.parked",
    "vhost": "/",
    "exchange": "domain.events",
    "routing_key": "orders.placed",
    "reason": "retries_exhausted",
    "told_by": "redrive",
    "error": {"type": "TimeoutError", "message": "no answer from stock in 5 s", "status_code": None},
    "attempts": 4,
    "message_id": "2b1c",
    "correlation_id": None,
    "type": "OrderPlaced",
    "service": "shop",
    "group": GROUP_ID,
    "size_bytes": 412,
    "dead_at": MOMENT,
    "collected_at": MOMENT,
    "updated_at": MOMENT,
    "redrives": 0,
    "returns": 0,
    "poison": False,
    "edited": False,
    "due_at": None,
    "silent_at": None,
    "resolved_by": None,
    "copy_of": None,
    "operation": None,
    "redacted": False,
}


class Error(ResponseSchema):
    """What went wrong, as far as it is known."""

    type: str | None
    message: str | None
    status_code: int | None


class Message(ResponseSchema):
    """A dead letter without its content. `redacted`: something of it is not shown to this token."""

    model_config = ConfigDict(json_schema_extra=example(**_MESSAGE))

    id: str
    version: int
    status: Status
    status_reason: str | None
    queue: str
    dlq: str
    vhost: str
    exchange: str
    routing_key: str
    reason: str
    told_by: str
    error: Error | None
    attempts: int | None
    message_id: str | None
    correlation_id: str | None
    type: str | None
    service: str | None
    group: str
    size_bytes: int
    dead_at: Moment | None
    collected_at: Moment | None
    updated_at: Moment | None
    redrives: int
    returns: int
    poison: bool
    edited: bool
    due_at: Moment | None
    silent_at: Moment | None
    resolved_by: str | None
    copy_of: str | None
    operation: str | None
    redacted: bool = False


class Attempt(ResponseSchema):
    """One failed run of a handler."""

    number: int
    at: Moment | None
    error: str | None


class Happening(ResponseSchema):
    """One event in the life of a dead letter."""

    at: Moment | None
    event: str
    who: str
    detail: str | None
    operation: str | None


class Past(ResponseSchema):
    """Until `at` it was another message, which was redriven so many times."""

    at: Moment | None
    redrives: int


class Body(ResponseSchema):
    """A body as text; `base64` where it is no UTF-8. Raw bytes are at `/body`."""

    encoding: Literal["utf-8", "base64"]
    content: str


class Properties(ResponseSchema):
    """Properties and headers with their AMQP types: plain JSON where that says the type, else `{"type": …}`."""

    model_config = ConfigDict(
        json_schema_extra=example(
            properties={"content_type": "application/json", "delivery_mode": 2},
            headers={"x-tenant": "acme", "x-retry-count": 3, "x-size": {"type": "short-int", "value": 7}},
            redacted=False,
        )
    )

    properties: dict[str, Any] | None
    headers: Any = Field(description="An object, or a list of [name, value] where a name is there twice.")
    redacted: bool = False


class WholeMessage(Message):
    """Everything about a dead letter."""

    model_config = ConfigDict(
        json_schema_extra=example(
            **_MESSAGE,
            stack=None,
            history=[{"number": 1, "at": MOMENT, "error": "TimeoutError: no answer from stock in 5 s"}],
            life=[{"at": MOMENT, "event": "collected", "who": "collector", "detail": "", "operation": None}],
            past=[],
            properties={"content_type": "application/json"},
            headers={"x-tenant": "acme"},
            body={"encoding": "utf-8", "content": '{"order": 17}'},
            body_hidden=None,
        )
    )

    stack: str | None
    history: list[Attempt]
    life: list[Happening]
    past: list[Past]
    properties: dict[str, Any] | None
    headers: Any
    body: Body | None
    body_hidden: str | None = Field(description="Why nothing of the body is shown; null where it is.")


class Messages(ResponseSchema):
    """A page. With `next` there may be more; a `partial` page ended before it was full, because it had read enough."""

    model_config = ConfigDict(json_schema_extra=example(messages=[_MESSAGE], next=None, partial=False))

    messages: list[Message]
    next: str | None
    partial: bool


class EditRequest(RequestSchema):
    """The changes to a message. Everything not named keeps its bytes; a property that is null is removed."""

    model_config = ConfigDict(
        json_schema_extra=example(
            body='{"order": 17, "customer": 42}', set_headers={"x-tenant": "acme"}, why="the customer was missing"
        )
    )

    holds_payload: ClassVar[bool] = True

    body: str | None = None
    body_base64: str | None = Field(default=None, description="Instead of `body`, for one that is no text.")
    set_headers: dict[str, Any] = Field(default_factory=dict, description="Typed as `/headers` answers them.")
    drop_headers: list[str] = Field(default_factory=list, max_length=1_000)
    properties: dict[str, Any] = Field(default_factory=dict)
    why: NeededWhy

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        if self.body is not None and self.body_base64 is not None:
            raise ValueError("give the new body once: as body or as body_base64")
        return self


END_WAITING = "Also where a copy was sent and has not come back (retrying, waiting)."
EndWaiting = Annotated[bool, Field(description=END_WAITING)]


class ResolveRequest(RequestSchema):
    """Why nothing more is to be done."""

    model_config = ConfigDict(json_schema_extra=example(why="refunded by hand"))

    why: NeededWhy
    end_waiting: EndWaiting = False


class ReopenRequest(RequestSchema):
    """Why it is pending again."""

    model_config = ConfigDict(json_schema_extra=example(why="the supplier is back"))

    why: Why = ""
    end_waiting: EndWaiting = False


class SettleRequest(RequestSchema):
    """Whether the copy that was in doubt arrived."""

    model_config = ConfigDict(json_schema_extra=example(arrived=True, why="the order is in the shop's database"))

    arrived: bool
    why: NeededWhy


class LettersRequest(RequestSchema):
    """Which dead letters: by `ids` or by a filter `q`. Those that can't be changed are left alone."""

    ids: Annotated[list[str], Field(min_length=1, max_length=IDS_MAX)] | None = None
    q: str | None = Field(default=None, max_length=10_000, description="The filter grammar; empty is everything.")
    limit: int = Field(default=1_000, ge=1, le=CHANGED_MAX, description="Maximum number of letters; oldest first.")
    include_in_doubt: bool = Field(default=False, description="With `q`: doubtful ones too.")
    end_waiting: EndWaiting = False

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if (self.ids is None) == (self.q is None):
            raise ValueError("say which: by ids or by q, and not by both")
        return self


class ResolveManyRequest(LettersRequest):
    """Which ones are resolved, and why."""

    model_config = ConfigDict(json_schema_extra=example(q="queue:orders error:Timeout", why="the orders were resent"))

    why: NeededWhy


class ChangeManyRequest(LettersRequest):
    """Which ones to change, and why."""

    model_config = ConfigDict(json_schema_extra=example(ids=[LETTER_ID], why="test messages"))

    why: Why = ""


class Changed(ResponseSchema):
    """How many were changed (`done`); by id, why each of those named was not (`refused`); and by reason, how many were
    not (`not_done`)."""

    model_config = ConfigDict(
        json_schema_extra=example(
            done=41, refused={LETTER_ID: "it is pending already"}, not_done={"it is pending already": 1}
        )
    )

    done: int
    refused: dict[str, str]
    not_done: dict[str, int]
