"""Seeded bugs of time: TTL, x-expires, delayed retry."""

from tests.mutations.mutation import Mutation

AREA = "Time"

BUGS = (
    Mutation(
        name="any-message-expires",
        area=AREA,
        file="engine/ready_messages.py",
        old='''        return self.peek()

    def pop_first_to_expire(self) -> QueueEntry:
        """Take the head."""
        return self.pop()
''',
        new='''        return min(self, key=lambda one: one.deadline_ms or NEVER, default=None)

    def pop_first_to_expire(self) -> QueueEntry:
        """Take the head."""
        first = self.first_to_expire()
        others = [one for one in self if one is not first]
        self.clear()
        for one in others:
            self.append(one)
        return first
''',
        sees="A message expires behind one that has longer to live; RabbitMQ lets only the head expire.",
    ),
    Mutation(
        name="longer-ttl-counts",
        area=AREA,
        file="engine/queues.py",
        old="expiration_ms < ttl_ms",
        new="expiration_ms > ttl_ms",
        sees="Of the queue's TTL and the message's expiration the longer counts.",
    ),
    Mutation(
        name="message-ttl-wins",
        area=AREA,
        file="engine/queues.py",
        old="(ttl_ms is None or expiration_ms < ttl_ms)",
        new="True",
        sees="A message's expiration outlives the queue's TTL.",
    ),
    Mutation(
        name="requeue-renews-the-ttl",
        area=AREA,
        file="engine/queues.py",
        old="entry.redelivered = True",
        new=(
            "entry.redelivered = True\n"
            "        if self._ttl_ms is not None:\n"
            "            entry.deadline_ms = engine.now_ms + self._ttl_ms"
        ),
        sees="A requeued message has its whole TTL again.",
    ),
    Mutation(
        name="ttl-zero-never-delivered",
        area=AREA,
        file="engine/queues.py",
        old="if self.consumers.all and not ready and not self._send_buffer_is_full():",
        new="if ttl_ms != 0 and self.consumers.all and not ready and not self._send_buffer_is_full():",
        sees="A message with TTL 0 dies although a consumer is free.",
    ),
    Mutation(
        name="policy-ttl-for-the-queued",
        area=AREA,
        file="engine/queues.py",
        old="self._ttl_ms = settings.message_ttl_ms",
        new=(
            "self._ttl_ms = settings.message_ttl_ms\n"
            "        for entry in self.ready if self._ttl_ms is not None else ():\n"
            "            entry.deadline_ms = entry.enqueued_ms + self._ttl_ms"
        ),
        sees="A TTL policy set today lets messages expire that were queued before it.",
    ),
    Mutation(
        name="used-queue-expires",
        area=AREA,
        file="engine/queues.py",
        old="NEVER if expires_ms is None or self.consumers.all else",
        new="NEVER if expires_ms is None else",
        sees="x-expires deletes a queue that has a consumer.",
    ),
    Mutation(
        name="use-does-not-renew-expires",
        area=AREA,
        file="engine/queues.py",
        old="self.used_ms = self.engine.now_ms",
        new="pass",
        sees="x-expires counts from the declaration, however often the queue is used.",
    ),
    Mutation(
        name="delay-does-not-grow",
        area=AREA,
        file="engine/queue_settings.py",
        old="self.delayed_min_ms * max(failed, 1)",
        new="self.delayed_min_ms",
        sees="4.3: delayed retry waits the minimum every time.",
    ),
    Mutation(
        name="delay-without-maximum",
        area=AREA,
        file="engine/queue_settings.py",
        old="return min(self.delayed_min_ms * max(failed, 1), self.delayed_max_ms)",
        new="return self.delayed_min_ms * max(failed, 1)",
        sees="4.3: delayed retry waits longer than its maximum.",
    ),
    Mutation(
        name="delay-for-the-returned-too",
        area=AREA,
        file="engine/queues.py",
        old='"failed": failed,',
        new='"failed": True,',
        sees="4.3: delayed retry of type `failed` delays nacked messages too.",
    ),
    Mutation(
        name="deadlines-ring-late",
        area=AREA,
        file="engine/engine.py",
        old="self.now_ms = max(self.now_ms, due[0])",
        new="self.now_ms = max(self.now_ms, now_ms)",
        sees="When an hour passes at once, the second of two waits in a row begins only at its end.",
    ),
)
