"""Queues with and without a dead-letter exchange, and queues that are deleted as soon as they were seen."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive.client import Channel, Client, NotFound, PreconditionFailed
from redrive.inspection import find_dead_letter_exchange

DLX = "x-dead-letter-exchange"

QUEUES: dict[str, tuple[dict[str, Any], str | None]] = {
    "plain": ({}, None),
    "with": ({"arguments": {DLX: "dead"}}, "dead"),
    "to the default exchange": ({"arguments": {DLX: "", "x-dead-letter-routing-key": "parked"}}, ""),
    "named none": ({"arguments": {DLX: "none"}}, "none"),
    "quorum": ({"arguments": {"x-queue-type": "quorum"}}, None),
    "quorum with": ({"arguments": {"x-queue-type": "quorum", DLX: "dead", "x-delivery-limit": 3}}, "dead"),
    "not durable": ({"durable": False, "auto_delete": True, "arguments": {DLX: "dead"}}, "dead"),
    "many": (
        {
            "arguments": {
                "x-expires": 100_000,
                "x-message-ttl": 3000,
                "x-max-length": 4,
                "x-overflow": "reject-publish",
                "x-max-priority": 4,
                "x-single-active-consumer": True,
                "x-dead-letter-routing-key": "elsewhere",
                DLX: "dead",
            }
        },
        "dead",
    ),
}


class VanishingQueues(Client):
    """Whose queues are deleted as soon as they were seen."""

    async def channel(self) -> Channel:
        channel = await super().channel()
        declare: Callable[..., Awaitable[Any]] = channel.declare_queue

        async def declare_queue(name: str, *, passive: bool = False, **settings: Any) -> Any:
            answer = await declare(name, passive=passive, **settings)
            if passive:
                await channel.delete_queue(name)
            return answer

        channel.declare_queue = declare_queue  # type: ignore[method-assign, assignment]
        return channel


async def check_vanishing(url: str) -> None:
    """A queue that is deleted after it was seen is not made again by the question."""
    async with VanishingQueues(url) as client:
        await (await client.channel()).declare_queue("plain")
        with pytest.raises((NotFound, PreconditionFailed)):
            await find_dead_letter_exchange(client, "plain")
        with pytest.raises(NotFound):
            await (await client.channel()).declare_queue("plain", passive=True)
