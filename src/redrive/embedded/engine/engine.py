"""The engine: a broker's whole state. The time is passed in; the engine never asks for it.

Commands come in through the channels of its connections; what is to be sent comes out of `effects`, in order. Between
two commands only `advance_to` makes anything happen: every timer fires at its own moment. The same commands at the same
times always give the same effects: there is no clock, no randomness and no I/O in here.
"""

import base64
import hashlib
from collections import deque

from redrive.embedded.engine.amqp_errors import AmqpError
from redrive.embedded.engine.channel_base import ChannelBase
from redrive.embedded.engine.connections import Connection
from redrive.embedded.engine.consumer_timeouts import enforce_consumer_timeouts
from redrive.embedded.engine.dead_letter_exchange import dead_letter
from redrive.embedded.engine.effects import Effect
from redrive.embedded.engine.journal import Hop, Journal, MessageLocation
from redrive.embedded.engine.messages import QueueEntry
from redrive.embedded.engine.profiles import Profile
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.timers import NEVER, Timers
from redrive.embedded.engine.vhosts import Vhost


class Engine:
    """A broker of one profile, beginning at `now_ms` (milliseconds since 1970, virtual)."""

    def __init__(self, profile: Profile, now_ms: int, *, seed: int = 0) -> None:
        self.profile = profile
        self.now_ms = now_ms
        self.timers = Timers()
        self.journal = Journal()
        self.effects: list[Effect] = []
        self.unsent_bytes = 0
        self.stalled: dict[Queue, None] = {}
        """Queues that deliver more as soon as the present effects have been taken."""
        self.sequence = 0
        self.unacked_count = 0
        self.timeout_check_ms = NEVER
        """When a message may reach its consumer timeout, at the earliest."""
        self.vhosts: dict[str, Vhost] = {}
        self.connections: list[Connection] = []
        self.reply_channels: dict[str, ChannelBase] = {}
        self.pending_dead_letters: deque[tuple[Queue, QueueEntry, str]] = deque()
        """What died in the present command, with the reason."""
        self._seed = seed
        self._names = 0
        self.add_vhost("/")

    def add_vhost(self, name: str) -> Vhost:
        """The vhost of that name, created if it does not exist."""
        return self.vhosts.setdefault(name, Vhost(self, name)) if name not in self.vhosts else self.vhosts[name]

    def remove_vhost(self, name: str) -> None:
        """Delete a vhost and everything in it; nothing is dead-lettered. Raises KeyError where there is none."""
        gone = self.vhosts[name]
        for connection in list(self.connections):
            if connection.vhost is gone:
                self.disconnect(connection)
        for queue in list(gone.queues.values()):
            gone.delete_queue(queue, why="its vhost was deleted")
        del self.vhosts[name]
        self.flush_dead_letters()

    def restart(self) -> None:
        """Forget what a restarted broker does not have. All clients must be disconnected.

        Durable queues and exchanges stay, with the bindings between them. A classic queue keeps its persistent
        messages, a quorum queue all of them; deadlines do not change.
        """
        for vhost in self.vhosts.values():
            for queue in list(vhost.queues.values()):
                if not queue.durable:
                    vhost.delete_queue(queue, why="not durable, and the broker restarted")
                elif not queue.is_quorum:
                    queue.keep_only(
                        lambda entry: entry.message.persistent, why="not persistent, and the broker restarted"
                    )
            for exchange in list(vhost.exchanges.values()):
                if not exchange.durable:
                    vhost.remove_exchange(exchange)
        self.take_effects()

    def connect(self, vhost: str, user: str, *, wants_cancel: bool = True, may_impersonate: bool = False) -> Connection:
        """A client's connection. Raises AmqpError (530) where there is no such vhost."""
        if vhost not in self.vhosts:
            raise AmqpError(530, f"vhost {vhost} not found")
        connection = Connection(
            self, self.vhosts[vhost], user, wants_cancel=wants_cancel, may_impersonate=may_impersonate
        )
        self.connections.append(connection)
        return connection

    def disconnect(self, connection: Connection) -> None:
        """Close a client's connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            connection.close()

    def advance_to(self, now_ms: int) -> None:
        """Move the time to `now_ms`: what is due until then happens, each at its own moment. Time never goes back."""
        while True:
            if self.timeout_check_ms <= now_ms:
                due = self.timers.pop_due(self.timeout_check_ms)
                if due is None:
                    self.now_ms = max(self.now_ms, self.timeout_check_ms)
                    enforce_consumer_timeouts(self)
                    self.flush_dead_letters()
                    continue
            else:
                due = self.timers.pop_due(now_ms)
                if due is None:
                    break
            self.now_ms = max(self.now_ms, due[0])
            due[1].wake(self.now_ms)
            self.flush_dead_letters()
        self.now_ms = max(self.now_ms, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When something may happen without a command; None if never."""
        next_ms = self.timers.next_ms
        if self.unacked_count and self.timeout_check_ms < (NEVER if next_ms is None else next_ms):
            return self.timeout_check_ms
        return next_ms

    def add_dead_letter(self, queue: Queue, entry: QueueEntry, reason: str, place: int | None = None) -> None:
        """A message died: `flush_dead_letters` sends it after the present command, last or at that place."""
        self.pending_dead_letters.insert(
            len(self.pending_dead_letters) if place is None else place, (queue, entry, reason)
        )

    def flush_dead_letters(self) -> None:
        """Dead-letter what died, and what dies of that, until nothing is left (`HOPS_AT_ONCE_MAX` ends every cycle)."""
        dead = self.pending_dead_letters
        while dead:
            dead_letter(self, *dead.popleft())

    def take_effects(self) -> list[Effect]:
        """Everything to be sent since the last call."""
        effects, self.effects = self.effects, []
        self.unsent_bytes = 0
        return effects

    def resume(self) -> None:
        """The effects have been sent: queues that waited for that deliver more."""
        stalled, self.stalled = self.stalled, {}
        for queue in stalled:
            queue.dispatch()
        self.flush_dead_letters()

    def unique_name(self) -> str:
        """The variable part of a generated name: 22 characters, never the same twice."""
        self._names += 1
        digest = hashlib.sha256(f"{self._seed}:{self._names}".encode()).digest()[:16]
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def life(self, message_id: str) -> list[Hop]:
        """What happened to the messages of that id, in order."""
        return self.journal.read(message_id)

    def whereabouts(self, message_id: str) -> list[MessageLocation]:
        """Where the copies of a message are now; empty if there are none. Searches all queues."""
        places = []
        for queue in self.queues():
            found = [(entry, "ready") for entry in queue.ready_entries()]
            found += [(entry, "delayed") for entry in queue.delayed]
            found += (
                []
                if queue.held_dead_letters is None
                else [(entry, "held") for entry in queue.held_dead_letters.entries()]
            )
            places += [_place(queue, entry, state) for entry, state in found if entry.message.message_id == message_id]
        for connection in self.connections:
            for channel in connection.channels.values():
                for entry, queue, _ in channel.unacked.values():
                    if entry.message.message_id == message_id and not (queue.is_deleted or queue.is_stream):
                        places.append(_place(queue, entry, "unacked"))
        return places

    def queues(self) -> list[Queue]:
        """Every queue of every vhost."""
        return [queue for vhost in self.vhosts.values() for queue in vhost.queues.values()]


def _place(queue: Queue, entry: QueueEntry, state: str) -> MessageLocation:
    deadline = entry.deadline_ms if state == "ready" else None
    return MessageLocation(vhost=queue.vhost.name, queue=queue.name, state=state, expires_at_ms=deadline)
