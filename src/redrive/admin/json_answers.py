"""Long answers, written as they are. The framework would check every value of a page against its shape before it writes
it, at twice the price of reading the page; that they agree is checked by the tests, which ask for the document."""

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import Response

_JSON = "application/json"
_encode = msgspec.json.Encoder().encode


def json_answer(told: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Response:
    """200 with this object. Its shape is the route's `response_model`, which the caller answers for."""
    return Response(_encode(told), media_type=_JSON, headers=headers)
