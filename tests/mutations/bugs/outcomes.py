"""Seeded bugs of what a publisher hears: confirms, returns, transactions, refusals."""

from tests.mutations.mutation import Mutation

AREA = "Outcomes"

BUGS = (
    Mutation(
        name="return-after-the-confirm",
        area=AREA,
        file="engine/channel_publisher.py",
        old="self.engine.effects.append((Confirm if taken else ConfirmNack)(self, self.publish_number))",
        new=(
            "effects = self.engine.effects\n"
            "            place = len(effects) - bool(effects and isinstance(effects[-1], BasicReturn))\n"
            "            effects.insert(place, (Confirm if taken else ConfirmNack)(self, self.publish_number))"
        ),
        sees="A mandatory message without a route is confirmed before it is returned: a publisher takes it for stored.",
    ),
    Mutation(
        name="return-lost",
        area=AREA,
        file="engine/channel_publisher.py",
        old="and not self._reply(message) and mandatory:",
        new="and not self._reply(message) and not mandatory:",
        sees="A mandatory message without a route is not returned.",
    ),
    Mutation(
        name="full-queue-confirms",
        area=AREA,
        file="engine/channel_publisher.py",
        old="(Confirm if taken else ConfirmNack)",
        new="Confirm",
        sees="A message that a full queue refused is confirmed.",
    ),
    Mutation(
        name="one-taker-is-enough",
        area=AREA,
        file="engine/channel_publisher.py",
        old="taken = taken and queue.is_quorum and self.transaction is not None",
        new="taken = len(queues) > 1",
        sees="A message refused by one of several queues is confirmed.",
    ),
    Mutation(
        name="unroutable-is-refused",
        area=AREA,
        file="engine/channel_publisher.py",
        old="        return taken\n\n    def _address_reply",
        new="        return taken and bool(queues)\n\n    def _address_reply",
        sees="A message without a route is nacked; RabbitMQ confirms it.",
    ),
    Mutation(
        name="only-the-last-confirmed",
        area=AREA,
        file="confirms.py",
        old="ack(channel.number, last, last > first)",
        new="ack(channel.number, last, False)",
        sees="Of several publishes in a packet only the last is ever confirmed.",
    ),
    Mutation(
        name="transaction-publishes-at-once",
        area=AREA,
        file="engine/channel_publisher.py",
        old="self.transaction.publishes.append((message, mandatory))",
        new="self._send(message, mandatory)",
        sees="A message published in a transaction is there before the commit, and after a rollback.",
    ),
    Mutation(
        name="rollback-settles",
        area=AREA,
        file="engine/channels.py",
        old="restored.update(items)",
        new="pass",
        sees="What was acked in a transaction is nowhere after its rollback.",
    ),
    Mutation(
        name="missing-exchange-closes-the-connection",
        area=AREA,
        file="client_session.py",
        old="if error.is_hard:",
        new="if True:",
        sees="A publish to a missing exchange closes the whole connection, not the channel.",
    ),
)
