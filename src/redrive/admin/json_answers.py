"""Long answers, written as they are. The framework would check every value of a page against its shape before it writes
it, at twice the price of reading the page; that they agree is checked by the tests, which ask for the document."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from fastapi import Response

_JSON = "application/json"
_PIECE = 50
_Value = TypeVar("_Value")
_encode = msgspec.json.Encoder().encode


def json_answer(told: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Response:
    """200 with this object. Its shape is the route's `response_model`, which the caller answers for."""
    return Response(_encode(told), media_type=_JSON, headers=headers)


async def in_pieces(values: Sequence[_Value]) -> AsyncIterator[_Value]:
    """Each of them; now and then other requests get their turn, so that one long page holds up nobody."""
    for number, value in enumerate(values, start=1):
        yield value
        if number % _PIECE == 0:
            await asyncio.sleep(0)
