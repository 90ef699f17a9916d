"""A queue: enqueues messages, delivers them, requeues them, lets them expire.

Everything a queue decides by itself is here. What dies goes to the engine; `dead_letter_exchange` publishes it there.
Only the head expires, on all versions and both kinds: an unexpired head holds up the expired messages behind it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from redrive import wire
from redrive.embedded.engine import journal
from redrive.embedded.engine.consumers import Consumer, Consumers
from redrive.embedded.engine.delayed_messages import DelayedMessages
from redrive.embedded.engine.effects import Deliver
from redrive.embedded.engine.length_limits import LengthLimits
from redrive.embedded.engine.messages import Message, QueueEntry
from redrive.embedded.engine.profiles import Profile, SettledBy
from redrive.embedded.engine.queue_settings import QUORUM, REJECT_PUBLISH_DLX, QueueSettings
from redrive.embedded.engine.ready_messages import QuorumTwoToOneOrder, ReadyMessages, order_of
from redrive.embedded.engine.timers import NEVER
from redrive.embedded.engine.x_death import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED

if TYPE_CHECKING:
    from redrive.embedded.engine.connections import Connection
    from redrive.embedded.engine.dead_letter_exchange import HeldDeadLetters
    from redrive.embedded.engine.vhosts import Vhost


CONSUMER_TIMEOUT_MS = 1_800_000
"""`consumer_timeout` where nobody configured it."""
UNSENT_BYTES_MAX = 1024 * 1024
UNSENT_EFFECTS_MAX = 2_000
"""How much may wait to be sent before queues stop delivering."""


class Queue:
    """One queue. `owner` is the connection that an exclusive one belongs to."""

    is_stream = False

    def __init__(
        self,
        vhost: "Vhost",
        name: str,
        *,
        durable: bool,
        auto_delete: bool,
        owner: "Connection | None",
        arguments: Mapping[str, Any],
        settings: QueueSettings,
    ) -> None:
        self.engine = engine = vhost.engine
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = dict(arguments)
        self.kind = settings.kind
        self.is_quorum = settings.kind == QUORUM
        self.consumers = Consumers(settings.single_active)
        self.ready: ReadyMessages = order_of(settings, engine.profile)
        self.ready_bytes = 0
        self.unacked_count = 0
        self.delayed = DelayedMessages()
        self.held_dead_letters: HeldDeadLetters | None = None
        self.is_deleted = False
        self.used_ms = engine.now_ms
        self._counts_deliveries = self.is_quorum or engine.profile.carries_everything
        self._size_has_header = self.is_quorum and engine.profile.quorum_size_has_header
        self._counts_reads = isinstance(self.ready, QuorumTwoToOneOrder)
        self._alarm_ms = NEVER
        self._has_deadlines = False  # whether anything here ever had a deadline
        self.apply(settings)

    def apply(self, settings: QueueSettings) -> None:
        """Go by these settings from now on; messages keep the deadlines they have."""
        self.settings = settings
        self.limits = LengthLimits(settings, self.is_quorum)
        self._ttl_ms = settings.message_ttl_ms
        if settings.expires_ms is not None:
            self._has_deadlines = True
        self.trim()
        self.rearm()

    @property
    def consumer_timeout_ms(self) -> int:
        """How long a client may hold a message of this queue."""
        if not self.is_quorum and not self.engine.profile.timeout_closes_channel:
            return NEVER
        own_ms = self.settings.consumer_timeout_ms
        return CONSUMER_TIMEOUT_MS if own_ms is None else own_ms

    @property
    def stored(self) -> int:
        """How many messages there are: ready, unacked, delayed, or dead letters that are held."""
        return len(self.ready) + self.unacked_count + len(self.delayed) + self.held_count

    def ready_entries(self) -> Iterator[QueueEntry]:
        """The messages that can be delivered now."""
        return iter(self.ready)

    @property
    def held_count(self) -> int:
        """Dead letters that wait for a target (at-least-once)."""
        return 0 if self.held_dead_letters is None else len(self.held_dead_letters)

    def size_of(self, message: Message) -> int:
        """What a message counts towards max-length-bytes."""
        return len(message.body) + (len(message.header) if self._size_has_header else 0)

    def enqueue(self, message: Message, publisher: object | None = None) -> bool:
        """Take a message; False if the queue is full and refuses it. At-most-once dead letters have no `publisher`."""
        engine = self.engine
        now_ms = engine.now_ms
        if self.limits.refusing and not self.limits.admit(self, message, publisher):
            if self.settings.overflow == REJECT_PUBLISH_DLX:
                engine.add_dead_letter(self, QueueEntry(message, 0, now_ms, None), MAXLEN)
            return False
        ttl_ms, expiration_ms = self._ttl_ms, message.expiration_ms
        if expiration_ms is not None and (ttl_ms is None or expiration_ms < ttl_ms):
            ttl_ms = expiration_ms
        engine.sequence += 1
        entry = QueueEntry(message, engine.sequence, now_ms, None if ttl_ms is None else now_ms + ttl_ms)
        if ttl_ms is not None:
            self._has_deadlines = True  # also where it goes straight to a consumer: it may be requeued
        if message.failed and engine.profile.carries_everything:
            entry.failed = message.failed
        ready = self.ready
        if self.consumers.all and not ready and not self._send_buffer_is_full():
            consumer = self.consumers.take()
            if consumer is not None:
                # Straight to a consumer, as a TTL of 0 asks for: deliver now or never.
                if self._counts_reads:
                    ready.append(entry)
                    ready.pop()
                self.deliver(entry, consumer)
                return True
        ready.append(entry)
        self.ready_bytes += self.size_of(message)
        dropped = self.limits.bounded and self.trim()
        if self._has_deadlines and (self.is_quorum or dropped or len(ready) == 1):
            # A classic queue checks its head only when it thinks that it has a new one: in a priority queue it does not
            # notice a message that overtakes the head and is about to expire.
            self.expire()
            self.rearm()
        self.limits.update(self)
        return True

    def deliver(self, entry: QueueEntry, consumer: Consumer) -> None:
        """Deliver a message to a consumer that has prefetch left."""
        channel = consumer.channel
        channel.delivery_tag = tag = channel.delivery_tag + 1
        message = entry.message
        redelivered, header = (
            self.as_delivered(entry) if self._counts_deliveries else (entry.redelivered, message.header)
        )
        engine = self.engine
        engine.effects.append(Deliver(channel, consumer.tag, tag, redelivered, message, header))
        engine.unsent_bytes += len(message.body)
        if message.history is not None:
            message.history.append((engine.now_ms, journal.DELIVERED, self.name, consumer.tag))
        if not consumer.no_ack:
            entry.delivered_ms = engine.now_ms
            due_ms = engine.now_ms + consumer.timeout_ms
            if due_ms < engine.timeout_check_ms:
                engine.timeout_check_ms = due_ms
            channel.unacked[tag] = (entry, self, consumer)
            channel.shared_unacked += 1
            consumer.unacked_count += 1
            self.unacked_count += 1
            engine.unacked_count += 1

    def as_delivered(self, entry: QueueEntry, *, fetched: bool = False) -> tuple[bool, bytes]:
        """`redelivered` and the content header as this queue shows them; `fetched`: to basic.get."""
        return _as_delivered(entry, self.engine.profile, quorum=self.is_quorum, fetched=fetched)

    def dispatch(self) -> None:
        """Deliver as many messages as the consumers have prefetch for."""
        ready = self.ready
        if not ready:
            return
        self.expire_before_read()
        take = self.consumers.take
        while ready and not self._send_buffer_is_full():
            consumer = take()
            if consumer is None:
                break
            self.deliver(self.pop(), consumer)
            if self._has_deadlines:
                self.expire()
        if self._has_deadlines:
            self.rearm()
        self.limits.update(self)

    def _send_buffer_is_full(self) -> bool:
        """Whether so much waits to be sent that delivering must wait: a million messages are not sent at once."""
        engine = self.engine
        if engine.unsent_bytes < UNSENT_BYTES_MAX and len(engine.effects) < UNSENT_EFFECTS_MAX:
            return False
        engine.stalled[self] = None
        return True

    def pop(self) -> QueueEntry:
        """Take the head out."""
        entry = self.ready.pop()
        self.ready_bytes -= self.size_of(entry.message)
        return entry

    def ack(self, entry: QueueEntry) -> None:
        """An unacked message is acknowledged."""
        self._forget_unacked()
        history = entry.message.history
        if history is not None:
            history.append((self.engine.now_ms, journal.ACKED, self.name))

    def discard(self, entries: Iterable[QueueEntry], how: SettledBy) -> None:
        """Unacked messages are nacked or rejected without requeue: they die."""
        profile = self.engine.profile
        for entry in entries:
            self._forget_unacked()
            if self.is_deleted:
                continue
            if self._counts_deliveries and how in profile.failing_discards:
                entry.failed += 1
                entry.acquired += 1
            self.engine.add_dead_letter(self, entry, REJECTED)

    def requeue(self, entries: Iterable[QueueEntry], how: SettledBy) -> None:
        """Unacked messages are requeued together, in this order."""
        pending_before = len(self.engine.pending_dead_letters)
        for entry in entries:
            self._forget_unacked()
            if not self.is_deleted:
                self._requeue_one(entry, how)
        if self.is_deleted:
            return
        self._has_deadlines = self._has_deadlines or bool(self.delayed)
        if self.limits.bounded and not self.is_quorum:
            self.trim()
        if self._has_deadlines:
            self.expire()
        self.dispatch()
        if self.limits.bounded and self.is_quorum:
            self.trim(pending_before)  # a quorum queue delivers first
            self.limits.update(self)
        if self._has_deadlines:
            self.rearm()

    def expire(self) -> None:
        """Expire the head as long as its deadline has passed."""
        now_ms, ready = self.engine.now_ms, self.ready
        first = ready.first_to_expire()
        while first is not None and first.deadline_ms is not None and first.deadline_ms <= now_ms:
            ready.pop_first_to_expire()
            self.ready_bytes -= self.size_of(first.message)
            self.engine.add_dead_letter(self, first, EXPIRED)
            first = ready.first_to_expire()
            self.limits.update(self)

    def trim(self, pending_before: int | None = None) -> bool:
        """drop-head: the oldest die until the rest fits; whether any did.

        `pending_before` is how many dead letters the engine had when the present operation began; None is now.
        """
        engine, dropped = self.engine, False
        backwards = self.is_quorum and engine.profile.quorum_drops_backwards
        place = (len(engine.pending_dead_letters) if pending_before is None else pending_before) if backwards else None
        while self.ready and self.limits.is_over(self) and not self.limits.refusing:
            engine.add_dead_letter(self, self.pop(), MAXLEN, place)
            dropped = True
        return dropped

    def expire_before_read(self) -> None:
        """To be called before reads: a quorum queue expires its head then, a classic one only by its timer and after a
        delivery."""
        if self.is_quorum and self._has_deadlines:
            self.expire()

    def touch(self) -> None:
        """The queue is used: its x-expires starts again."""
        self.used_ms = self.engine.now_ms
        if self.settings.expires_ms is not None:
            self.rearm()

    def wake(self, now_ms: int) -> None:
        """A timer of this queue fires; what it was for may have changed since."""
        self._alarm_ms = NEVER
        if self.is_deleted:
            return
        if self._expires_at() <= now_ms:
            self.vhost.delete_queue(self, why="unused for its x-expires")
            return
        while self.delayed.next_ms <= now_ms:
            self._make_ready(self.delayed.pop())
        if self.held_dead_letters is not None:
            self.held_dead_letters.wake(now_ms)
        self.expire()
        self.dispatch()
        self.rearm()

    def rearm(self) -> None:
        """Set a timer for the next deadline of this queue."""
        first = self.ready.first_to_expire()
        next_ms = NEVER if first is None or first.deadline_ms is None else first.deadline_ms
        next_ms = min(next_ms, self.delayed.next_ms)
        if self.held_dead_letters is not None:
            next_ms = min(next_ms, self.held_dead_letters.retry_ms)
        next_ms = min(next_ms, self._expires_at())
        if next_ms < self._alarm_ms:
            self._alarm_ms = next_ms
            self.engine.timers.set(next_ms, self)

    def purge(self) -> int:
        """Delete the ready messages, on 4.3 the delayed and held ones too; returns how many."""
        gone = list(self.ready)
        self.ready.clear()
        if self.engine.profile.quorum_purge_takes_all:
            gone += self.delayed
            self.delayed.clear()
            if self.held_dead_letters is not None:
                gone += self.held_dead_letters.entries()
                self.held_dead_letters.clear()
        for entry in gone:
            self._note_end(entry, "purged")
        self.ready_bytes = 0
        self.limits.update(self)
        return len(gone)

    def keep_only(self, wanted: Callable[[QueueEntry], bool], *, why: str) -> None:
        """Delete the ready messages for which `wanted` is false."""
        kept = list(self.ready)
        self.ready.clear()
        self.ready_bytes = 0
        for entry in kept:
            if wanted(entry):
                self.ready.append(entry)
                self.ready_bytes += self.size_of(entry.message)
            else:
                self._note_end(entry, why)

    def end(self, why: str) -> None:
        """The queue is deleted with its messages: nothing is dead-lettered."""
        self.is_deleted = True
        for entry in [*self.ready, *self.delayed]:
            self._note_end(entry, why)
        self.ready.clear()
        self.delayed.clear()

    def _requeue_one(self, entry: QueueEntry, how: SettledBy) -> None:
        engine = self.engine
        entry.redelivered = True
        if not self._counts_deliveries:
            self._make_ready(entry)
            return
        profile, settings = engine.profile, self.settings
        entry.acquired += 1
        failed = how in profile.failing_requeues
        if failed:
            entry.failed += 1
        count = entry.acquired if profile.limit_counts_acquired else entry.failed
        if self.is_quorum and settings.delivery_limit is not None and count > settings.delivery_limit:
            engine.add_dead_letter(self, entry, DELIVERY_LIMIT)
            return
        delayed = {"all": True, "failed": failed, "returned": not failed}.get(settings.delayed_retry, False)
        if delayed:
            delay_ms = settings.retry_delay_ms(entry.failed)
            self.delayed.add(engine.now_ms + delay_ms, entry)
            if entry.message.history is not None:
                entry.message.history.append((engine.now_ms, journal.DELAYED, self.name, delay_ms))
            return
        to_back = profile.requeues_to_back_without_limit and self.is_quorum and not settings.has_delivery_limit
        if to_back and how is not SettledBy.CHANNEL_CLOSED:
            engine.sequence += 1
            entry.sequence = engine.sequence
            self._make_ready(entry, to_back=True)
        else:
            self._make_ready(entry)

    def _make_ready(self, entry: QueueEntry, *, to_back: bool = False) -> None:
        if to_back:
            self.ready.append(entry)
        else:
            self.ready.requeue(entry)
        self.ready_bytes += self.size_of(entry.message)
        if entry.message.history is not None:
            entry.message.history.append((self.engine.now_ms, journal.REQUEUED, self.name))

    def _forget_unacked(self) -> None:
        self.unacked_count -= 1
        self.engine.unacked_count -= 1

    def _expires_at(self) -> int:
        expires_ms = self.settings.expires_ms
        return NEVER if expires_ms is None or self.consumers.all else self.used_ms + expires_ms

    def _note_end(self, entry: QueueEntry, why: str) -> None:
        if entry.message.history is not None:
            entry.message.history.append((self.engine.now_ms, journal.GONE, self.name, why))


def _as_delivered(entry: QueueEntry, profile: Profile, *, quorum: bool, fetched: bool) -> tuple[bool, bytes]:
    """`redelivered` and the content header, with x-delivery-count and x-acquired-count where the version sends them.

    Only quorum queues send counters. A client's own header of that name stays until the queue has a value to send.
    `fetched`: the answer to basic.get.
    """
    message = entry.message
    if not quorum:
        return entry.redelivered or (profile.carries_everything and message.failed > 0), message.header
    headers: dict[str, Any] = {}
    if profile.shows_acquired:
        acquired, failed = entry.acquired or message.acquired, entry.failed
        if failed:
            headers["x-delivery-count"] = wire.Int64(failed)
        if acquired:
            headers["x-acquired-count"] = wire.Int64(acquired)
        redelivered = bool(headers)
    else:
        count = entry.acquired or message.failed
        redelivered = count > 0
        if redelivered or (fetched and profile.shows_zero_count):
            headers["x-delivery-count"] = wire.Int64(count)
    if not headers:
        return redelivered, message.header
    return redelivered, wire.sort_headers(wire.Properties(message.header).edit(headers=headers).raw, once=False)
