"""A plain channel: declare, bind, delete, purge, get and settle, one call at a time.

For topology work and one-off questions. A channel error raises a typed exception and closes only this channel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive import wire
from redrive.client.channel_session import ChannelSession
from redrive.client.errors import AlreadySettled, StaleDelivery
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The broker's answer to a declare: the queue's name (generated if none was given), ready messages, consumers."""

    name: str
    messages_ready: int
    consumers: int


class Channel(ChannelSession):
    """A channel for calls.

    Every call raises `ChannelClosed` (typed by code) or `ConnectionClosed`, and `wire.LocalProtocolError`, with nothing
    sent, for what AMQP can't carry (a name of 256 octets).
    """

    def __init__(self, connection: "Connection", number: int) -> None:
        super().__init__(connection, number)
        # By tag, to recognise its own: a message of another channel has the same small numbers, and so has a message of
        # the channel that had this number before.
        self._unsettled: dict[int, tuple[wire.Got, str]] = {}

    async def declare_queue(
        self,
        name: str = "",
        *,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> QueueState:
        """Declares a queue, or with `passive` only asks whether it exists."""
        answer = await self.call(
            methods.QueueDeclare(
                queue=name,
                passive=passive,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=dict(arguments or {}),
            ),
            methods.QueueDeclareOk,
        )
        return QueueState(name=answer.queue, messages_ready=answer.message_count, consumers=answer.consumer_count)

    async def delete_queue(self, name: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes a queue (the broker accepts a missing one too); returns how many messages were deleted with it."""
        method = methods.QueueDelete(queue=name, if_unused=if_unused, if_empty=if_empty)
        return (await self.call(method, methods.QueueDeleteOk)).message_count

    async def purge_queue(self, name: str) -> int:
        """Deletes the ready messages of a queue; returns how many."""
        return (await self.call(methods.QueuePurge(queue=name), methods.QueuePurgeOk)).message_count

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Binds a queue to an exchange."""
        method = methods.QueueBind(
            queue=queue, exchange=exchange, routing_key=routing_key, arguments=dict(arguments or {})
        )
        await self.call(method, methods.QueueBindOk)

    async def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Removes a binding."""
        method = methods.QueueUnbind(
            queue=queue, exchange=exchange, routing_key=routing_key, arguments=dict(arguments or {})
        )
        await self.call(method, methods.QueueUnbindOk)

    async def declare_exchange(
        self,
        name: str,
        type: str = "direct",
        *,
        passive: bool = False,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Declares an exchange, or with `passive` only asks whether it exists."""
        await self.call(
            methods.ExchangeDeclare(
                exchange=name,
                type=type,
                passive=passive,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=dict(arguments or {}),
            ),
            methods.ExchangeDeclareOk,
        )

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Deletes an exchange."""
        await self.call(methods.ExchangeDelete(exchange=name, if_unused=if_unused), methods.ExchangeDeleteOk)

    async def bind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Binds an exchange to another."""
        method = methods.ExchangeBind(
            destination=destination, source=source, routing_key=routing_key, arguments=dict(arguments or {})
        )
        await self.call(method, methods.ExchangeBindOk)

    async def unbind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Removes a binding between exchanges."""
        method = methods.ExchangeUnbind(
            destination=destination, source=source, routing_key=routing_key, arguments=dict(arguments or {})
        )
        await self.call(method, methods.ExchangeUnbindOk)

    async def qos(self, prefetch: int, *, per_channel: bool = False) -> None:
        """Sets how many unsettled messages a consumer of this channel may have."""
        await self.call(methods.BasicQos(prefetch_count=prefetch, per_channel=per_channel), methods.BasicQosOk)

    async def get_message(self, queue: str, *, no_ack: bool = False) -> wire.Got | None:
        """One message, or None if the queue is empty. Unless `no_ack`, settle it on this channel.

        A cancelled call requeues the message; with `no_ack` it may be lost.
        """
        method = methods.BasicGet(queue=queue, no_ack=no_ack)
        answer = await self._ask(method, (wire.Got, methods.BasicGetEmpty), None if no_ack else self._requeue)
        if not isinstance(answer, wire.Got):
            return None
        if not no_ack:
            self._unsettled[answer.delivery_tag] = (answer, queue)
        return answer

    def ack(self, message: wire.Got, *, multiple: bool = False) -> None:
        """Acks a message got on this channel, with `multiple` also those got before it.

        Raises `StaleDelivery` if it was got on another channel or this one is gone, `AlreadySettled` the second time.
        """
        self._take(message, multiple=multiple)
        self.connection.amqp.ack(self.number, message.delivery_tag, multiple)
        self.connection.flush_soon()

    def nack(self, message: wire.Got, *, requeue: bool, multiple: bool = False) -> None:
        """Nacks a message got on this channel. Raises as `ack` does."""
        self._take(message, multiple=multiple)
        self.connection.amqp.nack(self.number, message.delivery_tag, multiple, requeue)
        self.connection.flush_soon()

    def reject(self, message: wire.Got, *, requeue: bool) -> None:
        """Rejects a message got on this channel. Raises as `ack` does."""
        self._take(message, multiple=False)
        self.connection.amqp.reject(self.number, message.delivery_tag, requeue)
        self.connection.flush_soon()

    def _take(self, message: wire.Got, *, multiple: bool) -> None:
        tag = message.delivery_tag
        got, queue = self._unsettled.get(tag, (None, "(got)"))
        if not self.usable or message.channel != self.number or (got is not None and got is not message):
            raise StaleDelivery(tag, queue)
        if got is None:
            raise AlreadySettled(tag, queue)
        for one in [one for one in self._unsettled if one <= tag] if multiple else [tag]:
            del self._unsettled[one]

    def _requeue(self, answer: object) -> None:
        if isinstance(answer, wire.Got) and self.usable:
            # nack and not reject: on 4.3 only a reject counts as a failed delivery.
            self.connection.amqp.nack(self.number, answer.delivery_tag, False, True)
            self.connection.flush_soon()
