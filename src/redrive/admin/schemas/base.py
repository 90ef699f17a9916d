"""The base of all schemas: responses have every field, requests take no unknown one."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

MOMENT = "2026-01-31T12:00:00.000Z"
"""For examples, like the ids below."""
LETTER_ID = "06ehrkd4b1xk0c8a9m2p5v7w3z"
OPERATION_ID = "06ehrm0q7y3n5s1d8f2j4k6w9t"
GROUP_ID = "9f2c1a7be04d5538"

_HALVES = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")

FILTER_CHARACTERS_MAX = 4_000
"""In a URL. One character may take twelve bytes there, and the server takes 64 KiB for the whole URL."""

Moment = Annotated[str, Field(description="ISO 8601 in UTC with milliseconds.", examples=[MOMENT])]
Why = Annotated[str, Field(max_length=2_000, description="For the audit, and for readers of it later.")]
NeededWhy = Annotated[
    str,
    Field(min_length=1, max_length=2_000, pattern=r"\S", description="For the audit: later readers have only this."),
]


class ResponseSchema(BaseModel):
    """The base of responses."""

    model_config = ConfigDict(extra="forbid")


class RequestSchema(BaseModel):
    """The base of requests. An unknown field is refused, not ignored; so is, before anything is done, a text that no
    database can store."""

    model_config = ConfigDict(extra="forbid", strict=True)
    holds_payload: ClassVar[bool] = False
    """Whether its texts may contain every character that a message may."""

    @model_validator(mode="before")
    @classmethod
    def _has_storable_texts(cls, asked: Any) -> Any:
        unstorable = _HALVES if cls.holds_payload else _UNSTORABLE
        if any(unstorable.search(text) for text in _texts(asked)):
            raise ValueError("it contains a character that no database stores: half a surrogate pair, or NUL")
        return asked


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, however deep it is nested."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += one


def example(**fields: Any) -> JsonDict:
    """An example for a model's schema."""
    return {"examples": [fields]}
