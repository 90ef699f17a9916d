"""What all shapes share: answers say everything there is, requests take nothing that they don't know."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

MOMENT = "2026-01-31T12:00:00.000Z"
"""In examples."""
LETTER_ID = "06ehrkd4b1xk0c8a9m2p5v7w3z"
OPERATION_ID = "06ehrm0q7y3n5s1d8f2j4k6w9t"
GROUP_ID = "9f2c1a7be04d5538"

_HALVES = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")

FILTER_CHARACTERS_MAX = 4_000
"""In a URL, where one character may take twelve and a server takes 64 KiB for all of it."""

Moment = Annotated[str, Field(description="ISO 8601 in UTC with milliseconds.", examples=[MOMENT])]
Why = Annotated[str, Field(max_length=2_000, description="For the audit, and for whoever looks at it later.")]
NeededWhy = Annotated[
    str, Field(min_length=1, max_length=2_000, pattern=r"\S", description="Whoever looks at it later has only this.")
]


class ResponseSchema(BaseModel):
    """Something the API says."""

    model_config = ConfigDict(extra="forbid")


class RequestSchema(BaseModel):
    """Something somebody asks for. A field that is not known is refused rather than overlooked, and a text that no
    database holds before anything is done."""

    model_config = ConfigDict(extra="forbid", strict=True)
    holds_payload: ClassVar[bool] = False
    """Whether its texts may have every character that a message may."""

    @model_validator(mode="before")
    @classmethod
    def _has_storable_texts(cls, asked: Any) -> Any:
        unstorable = _HALVES if cls.holds_payload else _UNSTORABLE
        if any(unstorable.search(text) for text in _texts(asked)):
            raise ValueError("there is a character in it that no text holds: half a surrogate pair, or NUL")
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
