"""A channel: everything a client may call on one, by AMQP's names.

The publisher's and the consumer's methods are in `channel_publisher` and `channel_consumer`; here are declarations,
transactions and the channel's end. An AmqpError closes the channel; the server does that.
"""

from collections.abc import Mapping
from typing import Any

from redrive.embedded.engine.amqp_errors import (
    AmqpError,
    access_refused,
    default_exchange,
    not_found,
    precondition,
    resource,
)
from redrive.embedded.engine.channel_base import REPLY_ADDRESS, REPLY_TO, Unacked
from redrive.embedded.engine.channel_consumer import ConsumerMethods
from redrive.embedded.engine.channel_publisher import PublisherMethods
from redrive.embedded.engine.profiles import SettledBy
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.timers import NEVER


class Channel(PublisherMethods, ConsumerMethods):
    """One channel, from open to end."""

    def declare_queue(
        self,
        name: str,
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> tuple[str, int, int]:
        """queue.declare: name, ready messages, consumers. Raises AmqpError."""
        name = _without_breaks(name)
        if name.startswith(REPLY_TO):
            self._find_replies(name)
            return name, 0, 1
        if passive:
            queue = self.vhost.queue(name, self.connection)
            if not queue.is_quorum:
                queue.touch()
        else:
            if not name:
                name = f"amq.gen-{self.engine.unique_name()}"
            elif name.startswith("amq."):
                raise access_refused(f"queue name '{name}' contains reserved prefix 'amq.*'")
            queue = self.vhost.declare_queue(
                name,
                durable=durable,
                auto_delete=auto_delete,
                owner=self.connection if exclusive else None,
                arguments=arguments or {},
            )
        self.last_queue = name
        queue.expire_before_read()
        self.engine.flush_dead_letters()
        return name, len(queue.ready), self.vhost.count_consumers(queue)

    def delete_queue(self, name: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """queue.delete: how many messages were ready; a queue that is not there is fine. Raises AmqpError."""
        name = self.named_queue(_without_breaks(name))
        if name not in self.vhost.queues:
            return 0
        queue = self.vhost.queue(name, self.connection)
        where = resource("queue", name, self.vhost.name)
        if queue.is_stream:
            if_unused = if_empty = False  # RabbitMQ ignores them for streams
        if if_unused and queue.consumers.all:
            raise precondition(f"{where} in use")
        if if_empty and queue.ready:
            raise precondition(f"{where} not empty")
        count = self.vhost.delete_queue(queue)
        self.engine.flush_dead_letters()
        return count

    def purge_queue(self, name: str) -> int:
        """queue.purge: how many messages were deleted. Raises AmqpError."""
        return self.vhost.queue(self.named_queue(_without_breaks(name)), self.connection).purge()

    def bind_queue(self, name: str, exchange: str, key: str, arguments: Mapping[str, Any]) -> None:
        """queue.bind. Raises AmqpError."""
        name, key = self._bound_names(name, key)
        _refuse_default(exchange)
        self.vhost.bind(exchange, self._bindable(name), key, arguments)

    def unbind_queue(self, name: str, exchange: str, key: str, arguments: Mapping[str, Any]) -> None:
        """queue.unbind; what is not there is fine. Raises AmqpError."""
        name, key = self._bound_names(name, key)
        _refuse_default(exchange)
        if name in self.vhost.queues:
            self.vhost.unbind(exchange, self.vhost.queue(name, self.connection), key, arguments)

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """exchange.declare. Raises AmqpError."""
        name = _without_breaks(name)
        if passive:
            _refuse_default(name)
            self.vhost.exchange(name)
            return
        self.vhost.declare_exchange(
            name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments or {}
        )

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """exchange.delete. Raises AmqpError."""
        self.vhost.delete_exchange(_without_breaks(name), if_unused=if_unused)

    def bind_exchange(self, destination: str, source: str, key: str, arguments: Mapping[str, Any]) -> None:
        """exchange.bind. Raises AmqpError."""
        _refuse_default(destination)
        _refuse_default(source)
        target = self.vhost.exchange(destination)
        self.vhost.bind(source, target, key, arguments)

    def unbind_exchange(self, destination: str, source: str, key: str, arguments: Mapping[str, Any]) -> None:
        """exchange.unbind; what is not there is fine. Raises AmqpError."""
        _refuse_default(destination)
        _refuse_default(source)
        target = self.vhost.exchanges.get(destination)
        if target is not None:
            self.vhost.unbind(source, target, key, arguments)

    def commit(self) -> None:
        """tx.commit: publishes first, then settlements. Raises AmqpError."""
        transaction = self.required_transaction()
        publishes, transaction.publishes = transaction.publishes, []
        settlements, transaction.settlements = transaction.settlements, []
        complete = self.send_publishes(publishes)
        for items, how, requeue in settlements:
            self.apply_settlement(items.values(), how, requeue=requeue)
        self.engine.flush_dead_letters()
        if not complete:
            raise precondition("partial tx completion")

    def rollback(self) -> None:
        """tx.rollback: drop the publishes; what was settled is unacked again. Raises AmqpError."""
        transaction = self.required_transaction()
        transaction.publishes.clear()
        restored = dict(self.unacked)
        for items, _, _ in transaction.settlements:
            restored.update(items)
        transaction.settlements.clear()
        self.unacked = dict(sorted(restored.items()))

    def close(self) -> None:
        """channel.close, from either side."""
        self.end()
        self.engine.flush_dead_letters()

    def end(self) -> None:
        """The channel ends: its consumers are cancelled and its unacked messages requeued."""
        if not self.is_open:
            return
        self.is_open = False
        self.connection.channels.pop(self.number, None)
        if self.reply_tag is not None:
            self._forget_replies()
        queues = [consumer.queue for consumer in self.consumers.values()]
        for consumer in list(self.consumers.values()):
            self.forget(consumer)
        if self.transaction is not None:
            self.rollback()
        items, self.unacked = self.unacked, {}
        # To a quorum queue a basic.get is a consumer whose tag is its delivery tag, and tags are text: the tenth comes
        # before the second. A classic queue requeues each message to its original place.
        numbered = self.engine.profile.consumers_requeue_first
        order = sorted(items.items(), key=lambda item: (*_consumer_key(*item, numbered=numbered), item[0]))
        self.apply_settlement((unacked for _, unacked in order), SettledBy.CHANNEL_CLOSED, requeue=True)
        for queue in {id(queue): queue for queue in queues}.values():
            self.consumer_left(queue)

    def _find_replies(self, name: str) -> None:
        """Check that a channel takes replies under that name; the pseudo-queue always exists. Raises AmqpError."""
        if name == REPLY_TO or name in self.engine.reply_channels:
            return
        if self.engine.profile.garbled_reply_to_is_internal_error and not name.startswith(REPLY_ADDRESS):
            raise AmqpError(541)
        raise not_found("queue", name, self.vhost.name)

    def _bound_names(self, name: str, key: str) -> tuple[str, str]:
        """An empty queue name is the last declared queue; then an empty key is its name too."""
        if not name:
            name = self.named_queue(name)
            key = key or name
        return _without_breaks(name), key

    def _bindable(self, name: str) -> Queue:
        if name not in self.vhost.queues:
            raise not_found("queue", name, self.vhost.name)
        return self.vhost.queue(name, self.connection)


def _consumer_key(tag: int, unacked: Unacked, *, numbered: bool) -> tuple[int, str]:
    """What quorum queues order consumers by: `numbered` ones by their numbers, the others after them by their tags."""
    consumer = unacked[2]
    if consumer is None:
        return NEVER, str(tag)
    return (consumer.number, "") if numbered else (NEVER, consumer.tag)


def _refuse_default(exchange: str) -> None:
    if exchange == "":
        raise default_exchange()


def _without_breaks(name: str) -> str:
    """RabbitMQ silently removes carriage returns and line feeds from names."""
    return name.replace("\r", "").replace("\n", "") if "\r" in name or "\n" in name else name
