"""The outcome of one push, as the runtime would see it."""

import asyncio
from typing import Any, cast

from redrive.core import Outcome, outcome_of
from redrive.runtime.message import Message
from redrive.runtime.push import Pusher, PushTarget
from tests.unit.runtime_push.messages import PlainMessage

BODY = b'{"order": 7, "note": "\xff\x00 as it came"}'
NOW_S = 1_767_268_800


async def push_once(target: PushTarget, body: bytes = BODY, **message: Any) -> Outcome | None:
    """The outcome the runtime would see; None for a success."""
    async with Pusher(target, now_s=lambda: NOW_S) as push:
        return await outcome(push, body, **message)


async def outcome(push: Pusher, body: bytes = BODY, **message: Any) -> Outcome | None:
    """The same, with a pusher that is there already."""
    try:
        async with asyncio.timeout(20):
            await push(body, cast(Message, PlainMessage(**message)))
    except Exception as error:  # noqa: BLE001 - as the runtime does
        return outcome_of(error, now_ms=NOW_S * 1000)
    return None
