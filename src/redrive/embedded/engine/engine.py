"""The engine: a broker's whole state, told the time, never asking for it.

Commands come in through the channels of its connections; what is to be sent comes out of `effects`, in order. Between
two commands nothing happens but by `advance_to`, which lets every deadline ring at its own moment. The same commands at
the same times always give the same effects: there is no clock, no randomness and no I/O in here.
"""

import base64
import hashlib
from collections import deque

from redrive.embedded.engine.channel_state import ChannelState
from redrive.embedded.engine.connections import Connection
from redrive.embedded.engine.deadletters import bury
from redrive.embedded.engine.effects import Effect
from redrive.embedded.engine.journal import Hop, Journal, Place
from redrive.embedded.engine.messages import Entry
from redrive.embedded.engine.overdue import release_overdue
from redrive.embedded.engine.profiles import Profile
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.refusals import Refusal
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
        self.sequence = 0
        self.in_hand = 0
        """Messages that clients have and have not settled."""
        self.overdue_ms = NEVER
        self.vhosts: dict[str, Vhost] = {}
        self.connections: list[Connection] = []
        self.reply_channels: dict[str, ChannelState] = {}
        self.dead: deque[tuple[Queue, Entry, str]] = deque()
        self._seed = seed
        self._names = 0
        self.add_vhost("/")

    def add_vhost(self, name: str) -> Vhost:
        """A vhost, made if it is not there."""
        return self.vhosts.setdefault(name, Vhost(self, name)) if name not in self.vhosts else self.vhosts[name]

    def connect(self, vhost: str, user: str, *, wants_cancel: bool = True, may_impersonate: bool = False) -> Connection:
        """A client's connection. Raises Refusal (530) where there is no such vhost."""
        if vhost not in self.vhosts:
            raise Refusal(530, f"vhost {vhost} not found")
        connection = Connection(
            self, self.vhosts[vhost], user, wants_cancel=wants_cancel, may_impersonate=may_impersonate
        )
        self.connections.append(connection)
        return connection

    def disconnect(self, connection: Connection) -> None:
        """The client is gone."""
        if connection in self.connections:
            self.connections.remove(connection)
            connection.close()

    def advance_to(self, now_ms: int) -> None:
        """It is `now_ms`: everything due until then happens, each at its own moment. Time never goes back."""
        while True:
            if self.overdue_ms <= now_ms:
                due = self.timers.pop_due(self.overdue_ms)
                if due is None:
                    self.now_ms = max(self.now_ms, self.overdue_ms)
                    release_overdue(self)
                    self.finish()
                    continue
            else:
                due = self.timers.pop_due(now_ms)
                if due is None:
                    break
            self.now_ms = max(self.now_ms, due[0])
            due[1].wake(self.now_ms)
            self.finish()
        self.now_ms = max(self.now_ms, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When something may happen by itself, if nobody does anything; None if never."""
        next_ms = self.timers.next_ms
        if self.in_hand and self.overdue_ms < (NEVER if next_ms is None else next_ms):
            return self.overdue_ms
        return next_ms

    def bury(self, queue: Queue, entry: Entry, reason: str, place: int | None = None) -> None:
        """A message died; it is dead-lettered by `finish`, after the command that killed it: last, or in that place."""
        self.dead.insert(len(self.dead) if place is None else place, (queue, entry, reason))

    def finish(self) -> None:
        """Dead-letter what died, and what died of that, until it is quiet: no message dies for ever at one moment."""
        dead = self.dead
        while dead:
            bury(self, *dead.popleft())

    def take_effects(self) -> list[Effect]:
        """Everything to be sent since the last call."""
        effects, self.effects = self.effects, []
        self.unsent_bytes = 0
        return effects

    def resume(self) -> None:
        """What there was to send is sent: queues that waited for that give out more."""
        stalled, self.stalled = self.stalled, {}
        for queue in stalled:
            queue.dispatch()
        self.finish()

    def unique(self) -> str:
        """The variable part of a name that the broker makes up: 22 characters, never the same twice."""
        self._names += 1
        digest = hashlib.sha256(f"{self._seed}:{self._names}".encode()).digest()[:16]
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def life(self, message_id: str) -> list[Hop]:
        """What happened to the messages of that id, in order."""
        return self.journal.read(message_id)

    def whereabouts(self, message_id: str) -> list[Place]:
        """Where the copies of a message are now; empty when there are none. Looks through all queues."""
        places = []
        for queue in self.queues():
            found = [(entry, "ready") for entry in queue.resting()]
            found += [(entry, "delayed") for entry in queue.delayed]
            found += [] if queue.holding is None else [(entry, "held") for entry in queue.holding.entries()]
            places += [_place(queue, entry, state) for entry, state in found if entry.message.message_id == message_id]
        for connection in self.connections:
            for channel in connection.channels.values():
                for entry, queue, _ in channel.unacked.values():
                    if entry.message.message_id == message_id and not (queue.is_deleted or queue.is_stream):
                        places.append(_place(queue, entry, "in hand"))
        return places

    def queues(self) -> list[Queue]:
        """Every queue of every vhost."""
        return [queue for vhost in self.vhosts.values() for queue in vhost.queues.values()]


def _place(queue: Queue, entry: Entry, state: str) -> Place:
    deadline = entry.deadline_ms if state == "ready" else None
    return Place(vhost=queue.vhost.name, queue=queue.name, state=state, expires_at_ms=deadline)
