"""A queue: takes messages, gives them out, takes them back, lets them expire.

Everything a queue decides by itself is here; what becomes of the dead is `deadletters`' work, to whom the queue hands
them through its house. Only the head expires, on all versions and both kinds: an unexpired head holds up the expired
behind it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from redrive.embedded.engine import journal
from redrive.embedded.engine.consumers import Consumer, Consumers
from redrive.embedded.engine.deaths import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from redrive.embedded.engine.delayed import Delayed
from redrive.embedded.engine.effects import Deliver
from redrive.embedded.engine.house import House
from redrive.embedded.engine.limits import Limits
from redrive.embedded.engine.messages import Entry, Message
from redrive.embedded.engine.presenting import presented
from redrive.embedded.engine.profiles import Returning
from redrive.embedded.engine.ready import QuorumTwoToOne, Ready, order_of
from redrive.embedded.engine.settings import QUORUM, REJECT_PUBLISH_DLX, Settings
from redrive.embedded.engine.timers import NEVER

if TYPE_CHECKING:
    from redrive.embedded.engine.connections import Connection
    from redrive.embedded.engine.deadletters import Holding
    from redrive.embedded.engine.vhosts import Vhost


CONSUMER_TIMEOUT_MS = 1_800_000
"""`consumer_timeout` where nobody configured it."""
UNSENT_BYTES_MAX = 1024 * 1024
UNSENT_EFFECTS_MAX = 2_000
"""What may wait to be taken before queues give out no more."""


class Queue:
    """One queue. `owner` is the connection that an exclusive one belongs to."""

    is_stream = False

    def __init__(
        self,
        house: House,
        vhost: "Vhost",
        name: str,
        *,
        durable: bool,
        auto_delete: bool,
        owner: "Connection | None",
        arguments: Mapping[str, Any],
        settings: Settings,
    ) -> None:
        self.house = house
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = dict(arguments)
        self.kind = settings.kind
        self.is_quorum = settings.kind == QUORUM
        self.consumers = Consumers(settings.single_active)
        self.ready: Ready = order_of(settings, house.profile)
        self.ready_bytes = 0
        self.in_hand = 0
        self.delayed = Delayed()
        self.holding: Holding | None = None
        self.is_deleted = False
        self.used_ms = house.now_ms
        self._counts = self.is_quorum or house.profile.carries_everything
        self._size_has_header = self.is_quorum and house.profile.quorum_size_has_header
        self._counts_reads = isinstance(self.ready, QuorumTwoToOne)
        self._alarm_ms = NEVER
        self._watches = False  # whether anything here ever had a deadline
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Go by these settings from now on; messages keep the deadlines they have."""
        self.settings = settings
        self.limits = Limits(settings, self.is_quorum)
        self._ttl_ms = settings.message_ttl_ms
        if settings.expires_ms is not None:
            self._watches = True
        self.trim()
        self.rearm()

    @property
    def consumer_timeout_ms(self) -> int:
        """How long a client may hold a message of this queue."""
        if not self.is_quorum and not self.house.profile.overdue_closes_channel:
            return NEVER
        own_ms = self.settings.consumer_timeout_ms
        return CONSUMER_TIMEOUT_MS if own_ms is None else own_ms

    @property
    def stored(self) -> int:
        """How many messages there are: ready, in hand, delayed or held."""
        return len(self.ready) + self.in_hand + len(self.delayed) + self.held

    def resting(self) -> Iterator[Entry]:
        """The messages that can be given out now."""
        return iter(self.ready)

    @property
    def held(self) -> int:
        """Dead letters that wait for a target (at-least-once)."""
        return 0 if self.holding is None else len(self.holding)

    def size_of(self, message: Message) -> int:
        """What a message counts towards max-length-bytes."""
        return len(message.body) + (len(message.header) if self._size_has_header else 0)

    def offer(self, message: Message, publisher: object | None = None) -> bool:
        """Take a message, or False: the queue is full and refuses. `publisher` is None where nobody waits for that."""
        house = self.house
        now_ms = house.now_ms
        if self.limits.refusing and not self.limits.admit(self, message, publisher):
            if self.settings.overflow == REJECT_PUBLISH_DLX:
                house.bury(self, Entry(message, 0, now_ms, None), MAXLEN)
            return False
        ttl_ms, expiration_ms = self._ttl_ms, message.expiration_ms
        if expiration_ms is not None and (ttl_ms is None or expiration_ms < ttl_ms):
            ttl_ms = expiration_ms
        house.sequence += 1
        entry = Entry(message, house.sequence, now_ms, None if ttl_ms is None else now_ms + ttl_ms)
        if ttl_ms is not None:
            self._watches = True  # also where it goes straight to a consumer: it may come back
        if message.failed and house.profile.carries_everything:
            entry.failed = message.failed
        ready = self.ready
        if self.consumers.all and not ready and not self._stalls():
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
        if self._watches and (self.is_quorum or dropped or len(ready) == 1):
            # A classic queue looks at its head only when it has a new one by its own reckoning: in a priority queue a
            # message that overtakes the head with its time nearly up is not noticed.
            self.expire()
            self.rearm()
        self.limits.note(self)
        return True

    def deliver(self, entry: Entry, consumer: Consumer) -> None:
        """Give a message to a consumer that has room."""
        channel = consumer.channel
        channel.delivery_tag = tag = channel.delivery_tag + 1
        message = entry.message
        redelivered, header = self.presented(entry) if self._counts else (entry.redelivered, message.header)
        house = self.house
        house.effects.append(Deliver(channel, consumer.tag, tag, redelivered, message, header))
        house.unsent_bytes += len(message.body)
        if message.life is not None:
            message.life.append((house.now_ms, journal.DELIVERED, self.name, consumer.tag))
        if not consumer.no_ack:
            entry.given_ms = house.now_ms
            due_ms = house.now_ms + consumer.timeout_ms
            if due_ms < house.overdue_ms:
                house.overdue_ms = due_ms
            channel.unacked[tag] = (entry, self, consumer)
            channel.shared_in_hand += 1
            consumer.in_hand += 1
            self.in_hand += 1
            house.in_hand += 1

    def presented(self, entry: Entry, *, fetched: bool = False) -> tuple[bool, bytes]:
        """`redelivered` and the content header as this queue shows them; `fetched`: to basic.get."""
        return presented(entry, self.house.profile, quorum=self.is_quorum, fetched=fetched)

    def dispatch(self) -> None:
        """Give out what can be given out."""
        ready = self.ready
        if not ready:
            return
        self.look()
        take = self.consumers.take
        while ready and not self._stalls():
            consumer = take()
            if consumer is None:
                break
            self.deliver(self.pop(), consumer)
            if self._watches:
                self.expire()
        if self._watches:
            self.rearm()
        self.limits.note(self)

    def _stalls(self) -> bool:
        """Whether so much waits to be sent that giving out more must wait: a million messages are not sent at once."""
        house = self.house
        if house.unsent_bytes < UNSENT_BYTES_MAX and len(house.effects) < UNSENT_EFFECTS_MAX:
            return False
        house.stalled[self] = None
        return True

    def pop(self) -> Entry:
        """Take the head out."""
        entry = self.ready.pop()
        self.ready_bytes -= self.size_of(entry.message)
        return entry

    def acked(self, entry: Entry) -> None:
        """A message in hand is done."""
        self._let_go()
        life = entry.message.life
        if life is not None:
            life.append((self.house.now_ms, journal.ACKED, self.name))

    def discard(self, entries: Iterable[Entry], how: Returning) -> None:
        """Messages in hand are rejected and not wanted back: they die."""
        profile = self.house.profile
        for entry in entries:
            self._let_go()
            if self.is_deleted:
                continue
            if self._counts and how in profile.failing_discards:
                entry.failed += 1
                entry.acquired += 1
            self.house.bury(self, entry, REJECTED)

    def give_back(self, entries: Iterable[Entry], how: Returning) -> None:
        """Messages in hand come back at one stroke, in this order."""
        dead_before = len(self.house.dead)
        for entry in entries:
            self._let_go()
            if not self.is_deleted:
                self._put_back(entry, how)
        if self.is_deleted:
            return
        self._watches = self._watches or bool(self.delayed)
        if self.limits.bounded and not self.is_quorum:
            self.trim()
        if self._watches:
            self.expire()
        self.dispatch()
        if self.limits.bounded and self.is_quorum:
            self.trim(dead_before)  # a quorum queue gives out first
            self.limits.note(self)
        if self._watches:
            self.rearm()

    def expire(self) -> None:
        """Let the head die while its time is up."""
        now_ms, ready = self.house.now_ms, self.ready
        first = ready.first_to_expire()
        while first is not None and first.deadline_ms is not None and first.deadline_ms <= now_ms:
            ready.pop_first_to_expire()
            self.ready_bytes -= self.size_of(first.message)
            self.house.bury(self, first, EXPIRED)
            first = ready.first_to_expire()
            self.limits.note(self)

    def trim(self, dead_before: int | None = None) -> bool:
        """drop-head: the oldest die until the rest fits; whether any did.

        `dead_before` counts the dead of the house when the present stroke began; None is now.
        """
        house, dropped = self.house, False
        backwards = self.is_quorum and house.profile.quorum_drops_backwards
        place = (len(house.dead) if dead_before is None else dead_before) if backwards else None
        while self.ready and self.limits.is_over(self) and not self.limits.refusing:
            house.bury(self, self.pop(), MAXLEN, place)
            dropped = True
        return dropped

    def look(self) -> None:
        """Before the queue is asked for anything: a quorum queue lets its head expire then, a classic one only by its
        timer and after giving a message out."""
        if self.is_quorum and self._watches:
            self.expire()

    def touch(self) -> None:
        """Somebody uses the queue: its x-expires begins again."""
        self.used_ms = self.house.now_ms
        if self.settings.expires_ms is not None:
            self.rearm()

    def wake(self, now_ms: int) -> None:
        """A deadline of this queue has come, or one that it had."""
        self._alarm_ms = NEVER
        if self.is_deleted:
            return
        if self._expires_at() <= now_ms:
            self.vhost.delete_queue(self, why="unused for its x-expires")
            return
        while self.delayed.next_ms <= now_ms:
            self._make_ready(self.delayed.pop())
        if self.holding is not None:
            self.holding.wake(now_ms)
        self.expire()
        self.dispatch()
        self.rearm()

    def rearm(self) -> None:
        """See that an alarm is set for the next thing that happens here by itself."""
        first = self.ready.first_to_expire()
        next_ms = NEVER if first is None or first.deadline_ms is None else first.deadline_ms
        next_ms = min(next_ms, self.delayed.next_ms)
        if self.holding is not None:
            next_ms = min(next_ms, self.holding.retry_ms)
        next_ms = min(next_ms, self._expires_at())
        if next_ms < self._alarm_ms:
            self._alarm_ms = next_ms
            self.house.timers.set(next_ms, self)

    def purge(self) -> int:
        """Throw the ready messages away, on 4.3 the delayed and held ones too; how many that were."""
        gone = list(self.ready)
        self.ready.clear()
        if self.house.profile.quorum_purge_takes_all:
            gone += self.delayed
            self.delayed.clear()
            if self.holding is not None:
                gone += self.holding.entries()
                self.holding.clear()
        for entry in gone:
            self._note_end(entry, "purged")
        self.ready_bytes = 0
        self.limits.note(self)
        return len(gone)

    def keep(self, wanted: Callable[[Entry], bool], *, why: str) -> None:
        """Forget the ready messages that are not wanted."""
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
        """The queue is gone, and all in it: nothing is dead-lettered."""
        self.is_deleted = True
        for entry in [*self.ready, *self.delayed]:
            self._note_end(entry, why)
        self.ready.clear()
        self.delayed.clear()

    def _put_back(self, entry: Entry, how: Returning) -> None:
        house = self.house
        entry.redelivered = True
        if not self._counts:
            self._make_ready(entry)
            return
        profile, settings = house.profile, self.settings
        entry.acquired += 1
        failed = how in profile.failing_returns
        if failed:
            entry.failed += 1
        count = entry.acquired if profile.limit_counts_acquired else entry.failed
        if self.is_quorum and settings.delivery_limit is not None and count > settings.delivery_limit:
            house.bury(self, entry, DELIVERY_LIMIT)
            return
        delayed = {"all": True, "failed": failed, "returned": not failed}.get(settings.delayed_retry, False)
        if delayed:
            delay_ms = settings.retry_delay_ms(entry.failed)
            self.delayed.add(house.now_ms + delay_ms, entry)
            if entry.message.life is not None:
                entry.message.life.append((house.now_ms, journal.DELAYED, self.name, delay_ms))
            return
        to_back = profile.returns_to_back_without_limit and self.is_quorum and not settings.has_delivery_limit
        if to_back and how is not Returning.LOST:
            house.sequence += 1
            entry.sequence = house.sequence
            self._make_ready(entry, to_back=True)
        else:
            self._make_ready(entry)

    def _make_ready(self, entry: Entry, *, to_back: bool = False) -> None:
        if to_back:
            self.ready.append(entry)
        else:
            self.ready.give_back(entry)
        self.ready_bytes += self.size_of(entry.message)
        if entry.message.life is not None:
            entry.message.life.append((self.house.now_ms, journal.REQUEUED, self.name))

    def _let_go(self) -> None:
        self.in_hand -= 1
        self.house.in_hand -= 1

    def _expires_at(self) -> int:
        expires_ms = self.settings.expires_ms
        return NEVER if expires_ms is None or self.consumers.all else self.used_ms + expires_ms

    def _note_end(self, entry: Entry, why: str) -> None:
        if entry.message.life is not None:
            entry.message.life.append((self.house.now_ms, journal.GONE, self.name, why))
