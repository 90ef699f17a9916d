"""Sends one batch of copies to the broker. Nothing is sent twice, and no result is guessed.

outcome                        the dead letter
Confirmed                      sent
Returned, Nacked               refused, with the broker's reason
InDoubt                        in doubt: the connection or channel went before the confirm
InDoubt, certainly not sent    refused, where AMQP can't carry it; queued again where there was no connection
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from redrive.client import Client, ClientError, Confirmed, InDoubt, Nacked, Outcome, Outgoing, Publisher, Returned
from redrive.deadletters.stop_waits import wait_done
from redrive.records import ItemState, SendResult

_CLOSE_S_MAX = 60.0
"""More than a publisher takes to give up on its confirms."""


class BatchSender:
    """Publishes batches, on one publisher for as long as that is open."""

    def __init__(self, client: Client, *, window: int, patience_s: float, grace_s: float) -> None:
        self._client = client
        self._window = window
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._publisher: Publisher | None = None

    async def send(
        self,
        copies: Sequence[Outgoing],
        *,
        stop: asyncio.Event,
        halfway: Callable[[], Awaitable[None]] | None = None,
    ) -> list[Outcome | None]:
        """The outcome of each copy, in order; None where it certainly was not sent because there was no connection.

        Waits for a connection and for confirms up to `patience_s`, once `stop` is set no longer than `grace_s`.
        `halfway` is awaited when some are sent and some are not (for tests).
        """
        if halfway is not None:
            half = (len(copies) + 1) // 2
            first = asyncio.create_task(self._publish(copies[:half], stop))
            await asyncio.sleep(0)
            while not first.done() and not self._is_sending():  # noqa: ASYNC110 - only tests come here
                await asyncio.sleep(0.001)
            try:
                await halfway()
                return await first + await self._publish(copies[half:], stop)
            finally:
                first.cancel()
        return await self._publish(copies, stop)

    async def close(self) -> None:
        """Closes the channel."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.close()

    def _is_sending(self) -> bool:
        return self._publisher is not None and self._publisher.in_flight > 0

    async def _publish(self, copies: Sequence[Outgoing], stop: asyncio.Event) -> list[Outcome | None]:
        if not copies:
            return []
        publisher = await self._ready(stop)
        if publisher is None:
            return [None] * len(copies)
        publishing = asyncio.create_task(publisher.publish_many(copies))
        try:
            await wait_done(publishing, stop, self._patience_s, self._grace_s)
            gave_up = not publishing.done()
            if gave_up:
                # What waits for the publish window is then not sent, and what is in flight is in doubt.
                await self.close()
                async with asyncio.timeout(_CLOSE_S_MAX):
                    await asyncio.shield(publishing)
            outcomes = await publishing
        finally:
            publishing.cancel()
        is_over = gave_up or self._client.is_closed
        return [None if is_over and isinstance(one, InDoubt) and not one.sent else one for one in outcomes]

    async def _ready(self, stop: asyncio.Event) -> Publisher | None:
        if self._publisher is None:
            opening = asyncio.create_task(self._client.publisher(window=self._window))
            try:
                await wait_done(opening, stop, self._patience_s, self._grace_s)
                if opening.done():
                    self._publisher = opening.result()
            except ClientError:
                return None
            finally:
                opening.cancel()
                await asyncio.wait([opening])
        return self._publisher


def send_result(letter_id: str, copy: Outgoing, outcome: Outcome | None) -> SendResult:
    """The result for a dead letter, by the outcome of its copy."""
    match outcome:
        case None:
            return SendResult(id=letter_id, state=ItemState.QUEUED, reason="there was no connection to send it on")
        case Confirmed():
            return SendResult(id=letter_id, state=ItemState.SENT)
        case Returned():
            where = f"exchange {copy.exchange} with key {copy.routing_key}" if copy.exchange else copy.routing_key
            reason = f"no queue takes it at {where}: the broker returned it, {outcome.code} {outcome.text}"
            return SendResult(id=letter_id, state=ItemState.REFUSED, reason=reason)
        case Nacked() if copy.exchange:
            # One of several queues refusing it is a nack; the others may have it.
            reason = "the broker refused it, for one queue behind the exchange at least; others may have it"
            return SendResult(id=letter_id, state=ItemState.IN_DOUBT, reason=reason)
        case Nacked():
            reason = "the broker refused it: the target is full, or could not store it"
            return SendResult(id=letter_id, state=ItemState.REFUSED, reason=reason)
        case InDoubt(sent=False):
            return SendResult(id=letter_id, state=ItemState.REFUSED, reason=f"it can't be sent: {outcome.reason}")
        case InDoubt():
            return SendResult(id=letter_id, state=ItemState.IN_DOUBT, reason=outcome.reason)
        case _:
            assert_never(outcome)
