"""Schemas of redactions."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from redrive.records import Role


class NewRedaction(BaseModel):
    """A value to hide."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"kind": "body", "path": "customer.card", "hidden_from": "operator"}]},
    )
    kind: Literal["body", "header"]
    path: str = Field(
        min_length=1,
        max_length=300,
        description="In a body as filters write it: `customer.card`, `items.*.price`; of a header its name.",
    )
    hidden_from: Role = Field(description="The highest role that does not see it; those below it do not either.")
    why: str = Field(default="", max_length=2000)


class RedactionShape(BaseModel):
    """A value that is hidden."""

    id: str
    kind: Literal["body", "header"]
    path: str
    hidden_from: Role


class RedactionList(BaseModel):
    """All redactions, by kind and path."""

    redactions: list[RedactionShape]
