"""Seeded bugs of limits: delivery limit, max-length, policies that bound."""

from tests.mutations.mutation import Mutation

AREA = "Limits"

BUGS = (
    Mutation(
        name="delivery-limit-one-early",
        area=AREA,
        file="engine/queues.py",
        old="count > settings.delivery_limit",
        new="count >= settings.delivery_limit",
        sees="A delivery limit of 2 allows two deliveries instead of three.",
    ),
    Mutation(
        name="drop-head-drops-the-newest",
        area=AREA,
        file="engine/queues.py",
        old="self.pop(), MAXLEN",
        new=(
            "(lambda kept: (self.ready.clear(), [self.ready.append(one) for one in kept[:-1]], "
            "setattr(self, 'ready_bytes', self.ready_bytes - self.size_of(kept[-1].message)), kept[-1])[-1])"
            "(list(self.ready)), MAXLEN"
        ),
        sees="A full queue drops what was just published instead of its oldest message.",
    ),
    Mutation(
        name="bytes-not-limited",
        area=AREA,
        file="engine/length_limits.py",
        old="return self._bytes_max is not None and queue.ready_bytes > self._bytes_max",
        new="return False",
        sees="x-max-length-bytes does nothing on a queue that drops its head.",
    ),
    Mutation(
        name="in-hand-counts-towards-length",
        area=AREA,
        file="engine/length_limits.py",
        old="return len(queue.ready) + len(queue.delayed) + queue.held_count",
        new="return len(queue.ready) + len(queue.delayed) + queue.held_count + queue.unacked_count",
        sees="Unacked messages count towards x-max-length.",
    ),
    Mutation(
        name="full-quorum-queue-takes-at-once-again",
        area=AREA,
        file="engine/length_limits.py",
        old="_SOFT_LIMIT = 0.8",
        new="_SOFT_LIMIT = 1.0",
        sees="A full quorum queue accepts publishes again after one ack; RabbitMQ waits until a fifth is free.",
    ),
    Mutation(
        name="reject-publish-not-dead-lettered",
        area=AREA,
        file="engine/queues.py",
        old="if self.settings.overflow == REJECT_PUBLISH_DLX:",
        new="if False:",
        sees="reject-publish-dlx refuses and dead-letters nothing.",
    ),
    Mutation(
        name="larger-of-argument-and-policy",
        area=AREA,
        file="engine/queue_settings.py",
        old="return min(argument, by_policy)",
        new="return max(argument, by_policy)",
        sees="Of a TTL by argument and one by policy the larger counts.",
    ),
    Mutation(
        name="policy-overrules-dead-letter-argument",
        area=AREA,
        file="engine/queue_settings.py",
        old="return by_policy if key in _POLICY_FIRST else argument",
        new="return by_policy",
        sees="A policy's dead-letter exchange replaces the one in the queue's arguments.",
    ),
    Mutation(
        name="argument-overrules-overflow-policy",
        area=AREA,
        file="engine/queue_settings.py",
        old="return by_policy if key in _POLICY_FIRST else argument",
        new="return argument",
        sees="A queue's own x-overflow counts although a policy says otherwise.",
    ),
    Mutation(
        name="lowest-policy-applies",
        area=AREA,
        file="engine/policies.py",
        old="return max(fitting,",
        new="return min(fitting,",
        sees="Of two policies that match the one of lower priority applies.",
    ),
)
