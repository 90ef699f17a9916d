"""Dead letters in the words of Bookly's runbook: camelCase fields, statuses in upper case."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from redrive.admin.schemas.base import LETTER_ID, MOMENT, OPERATION_ID, Moment, RequestSchema, ResponseSchema, example

_ENTRY: dict[str, Any] = {
    "id": LETTER_ID,
    "status": "PENDING",
    "eventId": "2b1c",
    "eventType": "AvailabilityChecked",
    "topic": "availability.checked",
    "service": "availability-service",
    "queue": "availability",
    "dlq": "availability.dlq",
    "correlationId": None,
    "error": "TimeoutError: the hotel is away",
    "reason": "retries_exhausted",
    "attempts": 4,
    "retryCount": 0,
    "failedAt": MOMENT,
    "createdAt": MOMENT,
    "updatedAt": MOMENT,
    "nextRetryAt": None,
    "statusReason": None,
    "resolvedBy": None,
    "resolution": None,
    "redacted": False,
}
_camel = cache(to_camel)
_COUNTS = {"PENDING": 3, "RETRYING": 1, "WAITING": 0, "IN_DOUBT": 0, "FAILED": 2, "RESOLVED": 0}


def in_camel_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with camelCase names, for a response that no model writes."""
    return {_camel(name): value for name, value in fields.items()}


class CamelResponse(ResponseSchema):
    """A response whose fields are written in camelCase."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Entry(CamelResponse):
    """A dead letter. `redacted`: something of it is not shown to this token."""

    model_config = ConfigDict(json_schema_extra=example(**_ENTRY))

    id: str
    status: str = Field(description="PENDING, RETRYING, WAITING, IN_DOUBT, FAILED or RESOLVED.")
    event_id: str | None = Field(description="The message's message_id.")
    event_type: str | None = Field(description="The message's type.")
    topic: str = Field(description="The routing key it was published with first.")
    service: str | None
    queue: str
    dlq: str
    correlation_id: str | None
    error: str | None
    reason: str
    attempts: int | None
    retry_count: int = Field(description="How often it was sent back from here.")
    failed_at: Moment | None
    created_at: Moment | None
    updated_at: Moment | None
    next_retry_at: Moment | None
    status_reason: str | None
    resolved_by: str | None
    resolution: str | None
    redacted: bool = False


class WholeEntry(Entry):
    """A dead letter with its message. The raw bytes of its payload are at /api/v1/messages/ID/body."""

    model_config = ConfigDict(
        json_schema_extra=example(
            **_ENTRY, payload='{"hotel": 7}', payloadEncoding="utf-8", headers={"x-tenant": "acme"}, properties={}
        )
    )

    payload: str | None = Field(description="As text; null where it is not shown.")
    payload_encoding: str | None = Field(description="`utf-8`, or `base64` where it is no UTF-8.")
    headers: Any
    properties: dict[str, Any] | None


class Entries(CamelResponse):
    """A page, the most recently dead first. With `nextCursor` there may be more, even if a page has few items or
    none."""

    model_config = ConfigDict(json_schema_extra=example(items=[_ENTRY], nextCursor=None))

    items: list[Entry]
    next_cursor: str | None


class BooklyStats(CamelResponse):
    """How many there are by status; and by topic, service and event type, each by status. `partial`: not all were
    counted, only the newest."""

    model_config = ConfigDict(
        json_schema_extra=example(
            total=6,
            byStatus=_COUNTS,
            byTopic={"availability.checked": {"PENDING": 3}},
            byService={"availability-service": {"PENDING": 3}},
            byEventType={"AvailabilityChecked": {"PENDING": 3}},
            partial=False,
        )
    )

    total: int
    by_status: dict[str, int]
    by_topic: dict[str, dict[str, int]]
    by_service: dict[str, dict[str, int]]
    by_event_type: dict[str, dict[str, int]]
    partial: bool


class Retried(Entry):
    """The dead letter, and the operation that sends it."""

    model_config = ConfigDict(
        json_schema_extra=example(**{**_ENTRY, "status": "RETRYING"}, operation=OPERATION_ID, note="")
    )

    operation: str
    note: str = Field(description="Why it waits, where it does.")


class ResolveEntryRequest(RequestSchema):
    """Who resolved it, and how."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra=example(resolvedBy="admin", resolution="Data corrected manually"),
    )

    resolved_by: str = Field(min_length=1, max_length=80, pattern=r"\S")
    resolution: str = Field(min_length=1, max_length=2_000, pattern=r"\S")
