"""Where handlers publish: one publisher for all of them, apart from the one that carries copies."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from redrive.client import Confirmed, InDoubt, Nacked, Publisher, Returned
from redrive.client import Outcome as PublishOutcome
from redrive.core import headers as names
from redrive.runtime.apart import Apart
from redrive.runtime.codecs import Codec
from redrive.runtime.errors import PublishFailed
from redrive.wire import LocalProtocolError, Properties, Timestamp

_RAW = "application/octet-stream"


class Outlet:
    """Publishes for handlers, with confirms."""

    def __init__(
        self,
        publisher: Publisher,
        codec: Codec,
        *,
        new_publisher: Callable[[], Awaitable[Publisher]],
        loop: asyncio.AbstractEventLoop,
        new_id: Callable[[], str],
        now_s: Callable[[], int],
    ) -> None:
        self.loop = loop
        self._publisher = publisher
        self._apart = Apart(new_publisher)
        self._codec = codec
        self._new_id = new_id
        self._now_s = now_s

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: Any,
        *,
        headers: Mapping[str, Any],
        message_id: str | None,
        correlation_id: str | None,
        type: str | None,
        content_type: str | None,
        reply_to: str | None,
        priority: int | None,
        timeout_s: float,
    ) -> str:
        """Publishes one message and returns its id. Raises `PublishFailed`.

        A new message has no life behind it: what headers tell of another's (counts, deaths, origins) is left out.
        """
        raw = isinstance(body, bytes | bytearray | memoryview)
        payload = bytes(body) if raw else self._codec.write(body)
        chosen_id = self._new_id() if message_id is None else message_id
        try:
            properties = Properties.of(
                headers={name: value for name, value in headers.items() if not names.is_of_a_life(name)},
                content_type=(_RAW if raw else self._codec.content_type) if content_type is None else content_type,
                delivery_mode=2,
                priority=priority,
                correlation_id=correlation_id,
                reply_to=reply_to,
                message_id=chosen_id,
                timestamp=Timestamp(self._now_s()),
                type=type,
            )
            apart = self._apart
            # A handler that is wrong about an exchange must not spoil what others publish at the same time.
            publisher = apart if apart.exchanges and exchange in apart.exchanges else self._publisher
            outcome = await publisher.publish(exchange, routing_key, payload, properties, deadline_s=timeout_s)
        except LocalProtocolError as error:
            raise PublishFailed(exchange, routing_key, str(error), in_doubt=False) from None
        if not isinstance(outcome, Confirmed):
            apart.learn(exchange, outcome)
            in_doubt = isinstance(outcome, InDoubt) and outcome.sent
            raise PublishFailed(exchange, routing_key, describe_publish(outcome), in_doubt=in_doubt)
        return chosen_id


def describe_publish(outcome: PublishOutcome) -> str:
    """What became of a publish, as a person reads it."""
    match outcome:
        case Confirmed():
            return "confirmed"
        case Returned(code=code, text=text):
            return f"no queue took it ({code} {text})"
        case Nacked():
            return "the broker refused it: a queue is full or failing"
        case InDoubt(reason=reason, sent=sent):
            return f"{'in doubt' if sent else 'not sent'}: {reason}"
