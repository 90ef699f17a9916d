"""Publishing on a channel: the way from basic.publish to return, confirm or refusal; confirm and tx mode.

A mandatory message without a route is returned before it is confirmed; without a route and not mandatory it is
confirmed and gone. One full queue among several is enough for a refusal, and the others have the message all the same.
"""

from redrive import wire
from redrive.embedded.engine import journal
from redrive.embedded.engine.channel_state import ChannelState, Transaction
from redrive.embedded.engine.effects import Confirm, Deliver, Refused, Return
from redrive.embedded.engine.messages import Message, read_message, reply_to_of
from redrive.embedded.engine.refusals import Refusal, access_refused, precondition, resource
from redrive.embedded.engine.routing import route

REPLY_TO = "amq.rabbitmq.reply-to"
REPLY_ADDRESS = f"{REPLY_TO}.g1h"
"""What the addresses of channels begin with; RabbitMQ's go on with an Erlang pid in base64, whose first octets these
are."""


class Publishing(ChannelState):
    """The publisher's half of a channel."""

    def publish(
        self,
        exchange_name: str,
        routing_key: str,
        header: bytes,
        body: bytes,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """basic.publish. Raises Refusal."""
        if immediate:
            raise Refusal(540, "immediate=true")
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
            message.life = self.engine.journal.life_of(message.message_id)
        if self.transaction is not None:
            self.transaction.publishes.append((message, mandatory))
            return
        taken = self._send(message, mandatory)
        if self.confirms:
            self.publish_number += 1
            self.engine.effects.append((Confirm if taken else Refused)(self, self.publish_number))
        if self.engine.dead:
            self.engine.finish()

    def select_confirms(self) -> None:
        """confirm.select. Raises Refusal."""
        if self.transaction is not None:
            raise precondition("cannot switch from tx to confirm mode")
        self.confirms = True

    def select_transactions(self) -> None:
        """tx.select. Raises Refusal."""
        if self.confirms:
            raise precondition("cannot switch from confirm to tx mode")
        if self.transaction is None:
            self.transaction = Transaction()

    def send_publishes(self, publishes: list[tuple[Message, bool]]) -> bool:
        """The publishes of a transaction that is committed; False if a queue refused one."""
        taken = [self._send(message, mandatory) for message, mandatory in publishes]
        return all(taken)

    def required_transaction(self) -> Transaction:
        """The transaction in progress. Raises Refusal where the channel has none."""
        if self.transaction is None:
            raise precondition("channel is not transactional")
        return self.transaction

    def _send(self, message: Message, mandatory: bool) -> bool:
        """Route and offer; False if a queue refused."""
        exchange = self.vhost.exchanges.get(message.exchange)
        queues = [] if exchange is None else route(self.vhost, exchange, message)
        life = message.life
        if life is not None:
            names = tuple(queue.name for queue in queues)
            life.append((self.engine.now_ms, journal.PUBLISHED, message.exchange, message.keys[0], names))
        taken = True
        for queue in queues:
            if not queue.offer(message, self):
                # A quorum queue has nobody to tell in a transaction: it drops the message, and the commit succeeds.
                taken = taken and queue.is_quorum and self.transaction is not None
                if life is not None:
                    life.append((self.engine.now_ms, journal.REFUSED, queue.name))
        if not queues and not self._reply(message) and mandatory:
            self.engine.effects.append(Return(self, message))
            if life is not None:
                life.append((self.engine.now_ms, journal.RETURNED, message.exchange, message.keys[0]))
        return taken

    def _address_reply(self, message: Message) -> None:
        """direct reply-to: the pseudo-queue's name becomes this channel's address."""
        if reply_to_of(message.header) != REPLY_TO:
            return
        if self.reply_tag is None:
            raise precondition("fast reply consumer does not exist")
        message.header = wire.Properties(message.header).edit(reply_to=self.reply_address).raw

    def _reply(self, message: Message) -> bool:
        """Deliver to the channel whose reply address the routing key is."""
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
