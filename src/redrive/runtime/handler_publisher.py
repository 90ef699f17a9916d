"""How handlers publish: one publisher for all of them, separate from the one that sends copies."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redrive.client import Confirmed, InDoubt, Publisher
from redrive.core import headers as names
from redrive.runtime.codecs import Codec
from redrive.runtime.errors import PublishFailed, describe_publish_outcome
from redrive.runtime.message import OutgoingProperties
from redrive.runtime.settlement import IsolatedPublisher
from redrive.wire import LocalProtocolError, Properties, Timestamp

_RAW = "application/octet-stream"


class HandlerPublisher:
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
        self._isolated = IsolatedPublisher(new_publisher)
        self._codec = codec
        self._new_id = new_id
        self._now_s = now_s

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: Any,
        *,
        properties: OutgoingProperties,
        timeout_s: float,
    ) -> str:
        """Publishes one message and returns its id. Raises `PublishFailed`.

        A new message starts afresh: headers that describe another message's life (counts, deaths, origins) are left
        out.
        """
        raw = isinstance(body, bytes | bytearray | memoryview)
        payload = bytes(body) if raw else self._codec.write(body)
        chosen_id = self._new_id() if properties.message_id is None else properties.message_id
        content_type = properties.content_type
        if content_type is None:
            content_type = _RAW if raw else self._codec.content_type
        try:
            encoded = Properties.of(
                headers={
                    name: value for name, value in properties.headers.items() if not names.describes_one_message(name)
                },
                content_type=content_type,
                delivery_mode=2,
                priority=properties.priority,
                correlation_id=properties.correlation_id,
                reply_to=properties.reply_to,
                message_id=chosen_id,
                timestamp=Timestamp(self._now_s()),
                type=properties.type,
            )
            isolated = self._isolated
            # A handler that names a wrong exchange must not disturb what others publish at the same time.
            publisher = isolated if isolated.exchanges and exchange in isolated.exchanges else self._publisher
            outcome = await publisher.publish(exchange, routing_key, payload, encoded, deadline_s=timeout_s)
        except LocalProtocolError as error:
            raise PublishFailed(exchange, routing_key, str(error), in_doubt=False) from None
        if not isinstance(outcome, Confirmed):
            isolated.learn(exchange, outcome)
            in_doubt = isinstance(outcome, InDoubt) and outcome.sent
            raise PublishFailed(exchange, routing_key, describe_publish_outcome(outcome), in_doubt=in_doubt)
        return chosen_id
