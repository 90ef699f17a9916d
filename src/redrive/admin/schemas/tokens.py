"""Schemas of tokens."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from redrive.records import Role


class NewToken(BaseModel):
    """A token to create."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "ada", "role": "operator", "queues": ["orders*"], "expires_in_days": 90}]
        },
    )
    name: str = Field(min_length=1, max_length=100, description="Who it is for: the audit's who.")
    role: Role
    queues: list[str] = Field(
        default_factory=list, max_length=50, description="Names of queues, with `*`; none: every queue."
    )
    payloads: bool = Field(default=False, description="Lets a viewer see payloads.")
    expires_in_days: int | None = Field(default=90, ge=1, le=3650, description="null: it does not expire.")
    why: str = Field(default="", max_length=2000)


class TokenShape(BaseModel):
    """A token, without its secret."""

    id: str
    name: str
    role: Role
    queues: list[str]
    payloads: bool
    state: Literal["valid", "expired", "revoked"]
    created_at: str | None
    created_by: str
    expires_at: str | None
    revoked_at: str | None


class MadeToken(TokenShape):
    """A token with its text, which is shown this once."""

    token: str | None = Field(description="`rd_…`, for `Authorization: Bearer`; null in a repeated answer.")


class TokenList(BaseModel):
    """All tokens, also those that are expired or revoked; the oldest first."""

    tokens: list[TokenShape]
