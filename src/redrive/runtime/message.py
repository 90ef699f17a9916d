"""A message as its handler sees it: where it came from, which attempt this is, and how to publish what follows from it.

Everything is decoded when it is asked for. The exchange and the routing key are those the message was first published
with, by whichever route it came back since.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.client import Delivery
from redrive.core import count_retries, headers, original_headers, read_count
from redrive.runtime.delivered_message import DeliveredMessage

if TYPE_CHECKING:
    from redrive.runtime.handler_publisher import HandlerPublisher
    from redrive.topology import QueuePlan

CARRIED = ("traceparent", "tracestate", "baggage")
"""W3C trace context and baggage: headers that go on to what a handler publishes."""


class OutgoingProperties(NamedTuple):
    """The properties of a message that a handler publishes; None where the publisher decides."""

    headers: Mapping[str, Any]
    message_id: str | None
    correlation_id: str | None
    type: str | None
    content_type: str | None
    reply_to: str | None
    priority: int | None


class Message:
    """The message being handled. How the handler ends settles it, never this object."""

    __slots__ = ("_attempts_max", "_message", "_plan", "_publisher")

    def __init__(self, delivery: Delivery, plan: "QueuePlan", publisher: "HandlerPublisher", attempts_max: int) -> None:
        self._message = DeliveredMessage(delivery, plan)
        self._plan = plan
        self._publisher = publisher
        self._attempts_max = attempts_max

    def __repr__(self) -> str:
        return f"<Message {self.id or 'without id'} of {self.queue}, attempt {self.attempt} of {self.attempts_max}>"

    @property
    def attempts_max(self) -> int:
        """How many runs the queue allows in all; a rule with its own `attempts_max` may allow more or fewer. A message
        that was redriven with its attempts kept gets this run beyond them."""
        return max(self._attempts_max, self.attempt)

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self._message.delivery.body

    @property
    def queue(self) -> str:
        """The queue it was consumed from."""
        return self._message.queue

    @property
    def exchange(self) -> str:
        """The exchange it was first published to."""
        return original_headers(self._message)[headers.ORIGINAL_EXCHANGE] if self._came_back else self._message.exchange

    @property
    def routing_key(self) -> str:
        """The key it was first published with."""
        return self._plan.handler_routing_key(self._message)

    @property
    def attempt(self) -> int:
        """Which run of the handler this is, from 1."""
        return count_retries(self._message, self._plan.counted_by) + 1

    @property
    def redelivered(self) -> bool:
        """Whether a consumer may have had it before: this run may be a repetition."""
        return self._message.redelivered or read_count(self._message.header(headers.DELIVERIES)) > 0

    @property
    def headers(self) -> dict[str, Any]:
        """All its headers."""
        return dict(self._message.delivery.properties.headers)

    def header(self, name: str, default: Any = None) -> Any:
        """One header's value."""
        return self._message.delivery.properties.header(name, default)

    @property
    def id(self) -> str | None:
        """Its message_id, the same on every attempt. A message that was published without one has None until our first
        copy of it gives it an id."""
        return self._message.message_id

    @property
    def correlation_id(self) -> str | None:
        """Its correlation_id property."""
        return self._message.delivery.properties.correlation_id

    @property
    def reply_to(self) -> str | None:
        """Where its publisher expects a reply."""
        return self._message.delivery.properties.reply_to

    @property
    def type(self) -> str | None:
        """What kind of message its publisher says it is."""
        return self._message.delivery.properties.type

    @property
    def content_type(self) -> str | None:
        """What its publisher says the body is."""
        return self._message.delivery.properties.content_type

    @property
    def content_encoding(self) -> str | None:
        """How its publisher says the body is compressed."""
        return self._message.delivery.properties.content_encoding

    @property
    def app_id(self) -> str | None:
        """The app that published it, as its publisher says."""
        return self._message.delivery.properties.app_id

    @property
    def priority(self) -> int | None:
        """Its priority."""
        return self._message.delivery.properties.priority

    @property
    def timestamp(self) -> datetime | None:
        """When it was published, as its publisher says, in UTC."""
        moment = self._message.delivery.properties.timestamp
        return moment if isinstance(moment, datetime) else None

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        type: str | None = None,
        content_type: str | None = None,
        reply_to: str | None = None,
        priority: int | None = None,
        timeout_s: float = 30.0,
    ) -> str:
        """Publishes what follows from this message, confirmed and mandatory, and returns its id.

        A body of bytes is sent as it is, anything else as the codec writes it. The new message carries this message's
        correlation id (its own id if it has none) and its `traceparent`, `tracestate` and `baggage`, unless given here.
        `headers` may be this message's own: those that describe its life (`x-retry-count`, `x-original-*`, `x-final-*`,
        `x-redrive-*`, `x-redriven-*`, x-death, delivery counts) are left out, since the new message starts afresh.
        Raises `PublishFailed` if no queue took it or the broker has not confirmed it in time: let it fail the handler,
        and the attempt is retried. A retry publishes again, so pass a `message_id` made from this message's if a
        duplicate matters.
        """
        given = dict(headers or {})
        for name in CARRIED:
            carried = self.header(name) if name not in given else None
            if carried is not None:
                given[name] = carried
        return await self._publisher.publish(
            exchange,
            routing_key,
            body,
            properties=OutgoingProperties(
                headers=given,
                message_id=message_id,
                correlation_id=(self.correlation_id or self.id) if correlation_id is None else correlation_id,
                type=type,
                content_type=content_type,
                reply_to=reply_to,
                priority=priority,
            ),
            timeout_s=timeout_s,
        )

    def publish_blocking(self, exchange: str, routing_key: str, body: Any, **options: Any) -> str:
        """`publish` for a handler that is a plain function, and so runs in a thread; it takes the same options.

        Raises RuntimeError in the event loop's own thread, which would wait for itself for ever.
        """
        if _running_loop() is self._publisher.loop:
            raise RuntimeError(
                "publish_blocking() would stop the event loop for good; use `await message.publish(...)` in an async"
                " handler"
            )
        future = asyncio.run_coroutine_threadsafe(
            self.publish(exchange, routing_key, body, **options), self._publisher.loop
        )
        return future.result()

    @property
    def _came_back(self) -> bool:
        return self._plan.handler_routing_key(self._message) != self._message.routing_key or not self._message.exchange


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # a thread without one
        return None
