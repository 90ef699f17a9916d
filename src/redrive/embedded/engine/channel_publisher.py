"""The publisher's half of a channel: from basic.publish to basic.return, ack or nack; confirm and tx mode.

A mandatory message without a route is returned before it is confirmed; without a route and not mandatory it is
confirmed and dropped. One full queue among several is enough for a nack, and the others have the message all the same.
"""

from redrive import wire
from redrive.embedded.engine import journal
from redrive.embedded.engine.amqp_errors import AmqpError, access_refused, precondition, resource
from redrive.embedded.engine.channel_base import REPLY_TO, ChannelBase, Transaction
from redrive.embedded.engine.effects import BasicReturn, Confirm, ConfirmNack, Deliver
from redrive.embedded.engine.messages import Message, read_message, reply_to_of
from redrive.embedded.engine.routing import route


class PublisherMethods(ChannelBase):
    """What a client may call to publish messages."""

    def publish(
        self,
        exchange_name: str,
        routing_key: str,
        header: bytes,
        body: bytes,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """basic.publish. Raises AmqpError."""
        if immediate:
            raise AmqpError(540, "immediate=true")
        bytes_max = self.engine.profile.message_bytes_max
        if len(body) > bytes_max:
            raise precondition(f"message size {len(body)} is larger than configured max size {bytes_max}")
        exchange = self.vhost.exchange(exchange_name)
        if exchange.internal:
            where = resource("exchange", exchange_name, self.vhost.name)
            raise access_refused(f"cannot publish to internal {where}")
        sorts = self.engine.profile.sorts_headers
        user = None if self.connection.may_impersonate else self.connection.user
        message = read_message(exchange_name, routing_key, header, body, user, sorts_headers=sorts)
        if b"amq.rabbitmq.reply-to" in header:
            self._address_reply(message)
        if message.message_id is not None:
            message.history = self.engine.journal.history_of(message.message_id)
        if self.transaction is not None:
            self.transaction.publishes.append((message, mandatory))
            return
        taken = self._send(message, mandatory)
        if self.confirms:
            self.publish_number += 1
            self.engine.effects.append((Confirm if taken else ConfirmNack)(self, self.publish_number))
        if self.engine.pending_dead_letters:
            self.engine.flush_dead_letters()

    def select_confirms(self) -> None:
        """confirm.select. Raises AmqpError."""
        if self.transaction is not None:
            raise precondition("cannot switch from tx to confirm mode")
        self.confirms = True

    def select_transactions(self) -> None:
        """tx.select. Raises AmqpError."""
        if self.confirms:
            raise precondition("cannot switch from confirm to tx mode")
        if self.transaction is None:
            self.transaction = Transaction()

    def send_publishes(self, publishes: list[tuple[Message, bool]]) -> bool:
        """The publishes of a transaction that is committed; False if a queue refused one."""
        taken = [self._send(message, mandatory) for message, mandatory in publishes]
        return all(taken)

    def required_transaction(self) -> Transaction:
        """The transaction in progress. Raises AmqpError where the channel has none."""
        if self.transaction is None:
            raise precondition("channel is not transactional")
        return self.transaction

    def _send(self, message: Message, mandatory: bool) -> bool:
        """Route and enqueue; False if a queue refused."""
        exchange = self.vhost.exchanges.get(message.exchange)
        queues = [] if exchange is None else route(self.vhost, exchange, message)
        history = message.history
        if history is not None:
            names = tuple(queue.name for queue in queues)
            history.append((self.engine.now_ms, journal.PUBLISHED, message.exchange, message.keys[0], names))
        taken = True
        for queue in queues:
            if not queue.enqueue(message, self):
                # A quorum queue can't report it in a transaction: it drops the message, and the commit succeeds.
                taken = taken and queue.is_quorum and self.transaction is not None
                if history is not None:
                    history.append((self.engine.now_ms, journal.REFUSED, queue.name))
        if not queues and not self._reply(message) and mandatory:
            self.engine.effects.append(BasicReturn(self, message))
            if history is not None:
                history.append((self.engine.now_ms, journal.RETURNED, message.exchange, message.keys[0]))
        return taken

    def _address_reply(self, message: Message) -> None:
        """Direct reply-to: replace the pseudo-queue's name by this channel's reply address."""
        if reply_to_of(message.header) != REPLY_TO:
            return
        if self.reply_tag is None:
            raise precondition("fast reply consumer does not exist")
        message.header = wire.Properties(message.header).edit(reply_to=self.reply_address).raw

    def _reply(self, message: Message) -> bool:
        """Direct reply-to: deliver to the channel whose reply address is the routing key; False if there is none."""
        if message.exchange or not message.keys[0].startswith(REPLY_TO):
            return False
        target = self.engine.reply_channels.get(message.keys[0])
        if target is None or target.reply_tag is None:
            return False
        target.delivery_tag += 1
        self.engine.effects.append(
            Deliver(target, target.reply_tag, target.delivery_tag, False, message, message.header)
        )
        return True
