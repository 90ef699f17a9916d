"""Schemas of the audit trail."""

from typing import Any

from pydantic import ConfigDict, Field

from redrive.admin.schemas.base import MOMENT, OPERATION_ID, Moment, ResponseSchema, example


class AuditEntry(ResponseSchema):
    """Who did what to which messages, when, why. Contents are never in it."""

    at: Moment | None
    who: str
    token: str | None = Field(
        description="The token's id; `local` without tokens, `cli:` and a login for a command; null: Redrive itself."
    )
    action: str
    subject: str
    count: int
    why: str
    detail: dict[str, Any]
    place: int | None = Field(description="Its number in the chain.")
    hash: str | None = Field(description="Of this entry and the one before it, in hex.")


class AuditTrail(ResponseSchema):
    """A page, the newest first. With `next` there may be more."""

    model_config = ConfigDict(
        json_schema_extra=example(
            entries=[
                {
                    "at": MOMENT,
                    "who": "ada",
                    "token": "1hv7d2m9x0abcdef",
                    "action": "redrive.created",
                    "subject": OPERATION_ID,
                    "count": 412,
                    "why": "the supplier is back",
                    "detail": {"selection": "queue:orders error:Timeout"},
                    "place": 412,
                    "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                }
            ],
            next=None,
        )
    )

    entries: list[AuditEntry]
    next: str | None
