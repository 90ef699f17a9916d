"""Schemas of auto-retry rules."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from redrive.admin.schemas.base import RequestSchema, ResponseSchema, Why, example

_YEAR_MS = 366 * 86_400_000


class Rule(ResponseSchema):
    """How auto-retry sends the dead letters of a scope (`*`, `queue:NAME`, `group:ID`) back."""

    model_config = ConfigDict(
        json_schema_extra=example(
            scope="queue:orders",
            enabled=True,
            attempts=3,
            first_ms=1_000,
            max_ms=60_000,
            settle_ms=600_000,
            declared=False,
        )
    )

    scope: str
    enabled: bool
    attempts: int
    first_ms: int
    max_ms: int
    settle_ms: int
    declared: bool
    """Whether a file declares it. A rule that a person sets replaces it."""


class Rules(ResponseSchema):
    """Every rule. The most specific applies; without one auto-retry is off."""

    model_config = ConfigDict(
        json_schema_extra=example(
            rules=[
                {
                    "scope": "queue:orders",
                    "enabled": True,
                    "attempts": 3,
                    "first_ms": 1_000,
                    "max_ms": 60_000,
                    "settle_ms": 600_000,
                    "declared": False,
                }
            ]
        )
    )

    rules: list[Rule]


class RuleRequest(RequestSchema):
    """A whole rule. A field that is left out has the default below."""

    model_config = ConfigDict(json_schema_extra=example(enabled=True, attempts=5, first_ms=10_000, max_ms=600_000))

    enabled: bool = True
    attempts: int = Field(default=3, ge=1, le=1_000)
    first_ms: int = Field(default=1_000, ge=1, le=_YEAR_MS, description="Before the first attempt, doubled each time.")
    max_ms: int = Field(default=60_000, ge=1, le=_YEAR_MS, description="The longest pause.")
    settle_ms: int = Field(default=600_000, ge=1, le=_YEAR_MS, description="Not come back for so long is resolved.")
    why: Why = ""

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        if self.first_ms > self.max_ms:
            raise ValueError("first_ms is above max_ms: the first pause can't be longer than the longest")
        return self
