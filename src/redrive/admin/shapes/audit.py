"""The audit trail as the API answers it."""

from typing import Any

from pydantic import ConfigDict

from redrive.admin.shapes.base import MOMENT, OPERATION_ID, Answer, Moment, example


class AuditEntry(Answer):
    """Who did what to which messages, when, why. Contents are never in it."""

    at: Moment | None
    who: str
    action: str
    subject: str
    count: int
    why: str
    detail: dict[str, Any]


class AuditTrail(Answer):
    """A page, the newest first. With `next` there may be more."""

    model_config = ConfigDict(
        json_schema_extra=example(
            entries=[
                {
                    "at": MOMENT,
                    "who": "ada",
                    "action": "redrive.created",
                    "subject": OPERATION_ID,
                    "count": 412,
                    "why": "the supplier is back",
                    "detail": {"selection": "queue:orders error:Timeout"},
                }
            ],
            next=None,
        )
    )

    entries: list[AuditEntry]
    next: str | None
