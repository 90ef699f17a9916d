"""Copies to exchanges that close the channel: published one at a time, on a channel of their own.

The broker closes a channel when somebody publishes to an exchange that is missing or that the user may not write to,
and every other copy in flight on that channel is in doubt then. Those would be sent again, and each that had arrived
would run twice, again with every try. So once an exchange is known to close channels, copies to it are isolated, until
the broker takes one.
"""

import asyncio
from collections.abc import Awaitable, Callable

from redrive.client import InDoubt, Publisher
from redrive.client import Outcome as PublishOutcome
from redrive.wire import Properties

_CLOSING = ("404 ", "403 ")
_DEFAULT_EXCHANGE = "amq.default"
"""The broker's name for the default exchange in its error texts."""


class IsolatedPublisher:
    """A publisher for such copies; it opens a channel when it first needs one."""

    def __init__(self, new_publisher: Callable[[], Awaitable[Publisher]]) -> None:
        self.exchanges: set[str] = set()
        """The exchanges that are known to close channels."""
        self._new_publisher = new_publisher
        self._publisher: Publisher | None = None
        self._one_at_a_time = asyncio.Lock()

    def learn(self, exchange: str, outcome: PublishOutcome) -> None:
        """Notes the outcome of a copy to an exchange, on any channel. A copy that was only in flight when another's
        exchange closed the channel gets the same reason, so the reason must name this exchange."""
        if _closes(exchange, outcome):
            self.exchanges.add(exchange)

    async def publish(
        self, exchange: str, routing_key: str, body: bytes, properties: Properties, *, deadline_s: float
    ) -> PublishOutcome:
        """As a publisher does. If the exchange closes the channel again, the copy has certainly not arrived."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._one_at_a_time.acquire()
        except TimeoutError:
            return InDoubt(f"no turn within {deadline_s:g} s", sent=False)
        try:
            if self._publisher is None:
                self._publisher = await self._new_publisher()
            outcome = await self._publisher.publish(exchange, routing_key, body, properties, deadline_s=deadline_s)
        finally:
            self._one_at_a_time.release()
        if isinstance(outcome, InDoubt):
            return InDoubt(outcome.reason, sent=False) if _closes(exchange, outcome) else outcome
        self.exchanges.discard(exchange)
        return outcome


def _closes(exchange: str, outcome: PublishOutcome) -> bool:
    """Whether the broker closed a channel because of this exchange."""
    if not isinstance(outcome, InDoubt) or not outcome.reason.startswith(_CLOSING):
        return False
    return f"exchange '{exchange or _DEFAULT_EXCHANGE}' in vhost" in outcome.reason
