"""Copies to exchanges that close the channel of whoever publishes to them: one at a time, on a channel of their own.

A publish to an exchange that is missing, or that is refused to us, closes its channel, and every other copy in flight
there is in doubt. These would be sent again, and those that had arrived would run twice, with every try anew. So once
an exchange is known for that, what goes to it goes apart, until the broker takes it.
"""

import asyncio
from collections.abc import Awaitable, Callable

from redrive.client import InDoubt, Publisher
from redrive.client import Outcome as PublishOutcome
from redrive.wire import Properties

_CLOSING = ("404 ", "403 ")
_DEFAULT_EXCHANGE = "amq.default"
"""What the broker calls the default exchange when it speaks of it."""


class Apart:
    """A publisher for such copies; it has a channel once it is needed."""

    def __init__(self, new_publisher: Callable[[], Awaitable[Publisher]]) -> None:
        self.exchanges: set[str] = set()
        """Those that are known for it now."""
        self._new_publisher = new_publisher
        self._publisher: Publisher | None = None
        self._turn = asyncio.Lock()

    def learn(self, exchange: str, outcome: PublishOutcome) -> None:
        """What became of a copy to an exchange, on any channel. A copy that was only in flight when another's exchange
        closed the channel hears the same words, so they must name its own."""
        if _closes(exchange, outcome):
            self.exchanges.add(exchange)

    async def publish(
        self, exchange: str, routing_key: str, body: bytes, properties: Properties, *, deadline_s: float
    ) -> PublishOutcome:
        """As a publisher does. Where the exchange closes the channel again, the copy has certainly not arrived."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._turn.acquire()
        except TimeoutError:
            return InDoubt(f"no turn within {deadline_s:g} s", sent=False)
        try:
            if self._publisher is None:
                self._publisher = await self._new_publisher()
            outcome = await self._publisher.publish(exchange, routing_key, body, properties, deadline_s=deadline_s)
        finally:
            self._turn.release()
        if isinstance(outcome, InDoubt):
            return InDoubt(outcome.reason, sent=False) if _closes(exchange, outcome) else outcome
        self.exchanges.discard(exchange)
        return outcome


def _closes(exchange: str, outcome: PublishOutcome) -> bool:
    """Whether the broker closed a channel over this exchange."""
    if not isinstance(outcome, InDoubt) or not outcome.reason.startswith(_CLOSING):
        return False
    return f"exchange '{exchange or _DEFAULT_EXCHANGE}' in vhost" in outcome.reason
