"""Long JSON responses, written without validation. FastAPI would check every value of a page against its schema, which
costs twice as much as reading the page. Tests check that responses and schemas agree."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from fastapi import Response

_JSON = "application/json"
_YIELD_EVERY = 50
_Value = TypeVar("_Value")
_encode = msgspec.json.Encoder().encode


def json_response(content: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Response:
    """200 with this object. The caller makes sure that it fits the route's `response_model`."""
    return Response(_encode(content), media_type=_JSON, headers=headers)


async def yielding_to_requests(values: Sequence[_Value]) -> AsyncIterator[_Value]:
    """Each of the values. Other requests run in between, so that one long page delays nobody."""
    for number, value in enumerate(values, start=1):
        yield value
        if number % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
