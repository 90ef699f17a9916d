"""Long answers, written as they are. The framework would check every value of a page against its shape before it writes
it, at twice the price of reading the page; that they agree is checked by the tests, which ask for the document."""

from collections.abc import Mapping
from typing import Any

from fastapi import Response
from pydantic import BaseModel
from pydantic_core import to_json

_JSON = "application/json"


def json_answer(told: Mapping[str, Any] | BaseModel) -> Response:
    """200 with this object. Its shape is the route's `response_model`, which the caller answers for."""
    return Response(to_json(told), media_type=_JSON)
