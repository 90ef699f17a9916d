"""What becomes of the dead: published to the dead-letter exchange, dropped, or held until a target has them.

At most once (the default): a missing exchange, no route or a full target loses the message in silence. At least once
(quorum queues that ask for it): it is held in its source, at most 32 on their way at a time, and tried again every 180
seconds of virtual time; a message whose only way is a circle is held for good.
"""

from collections import deque
from typing import TYPE_CHECKING

from redrive.embedded.engine import journal
from redrive.embedded.engine.deaths import REJECTED, is_cycle, record_death
from redrive.embedded.engine.messages import Entry, Message
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.routing import route
from redrive.embedded.engine.timers import NEVER

if TYPE_CHECKING:
    from redrive.embedded.engine.engine import Engine

RETRY_MS = 180_000
ON_THE_WAY_MAX = 32
HOPS_AT_ONCE_MAX = 1_000
"""3.10's order of x-death can hide a circle from its own detection (rejected once, then full queues dying into one
another): a real one then moves the message round without end. Here it ends."""


class Letter:
    """A dead message, and the queues that have it already."""

    __slots__ = ("delivered", "entry", "reason")

    def __init__(self, entry: Entry, reason: str) -> None:
        self.entry = entry
        self.reason = reason
        self.delivered: set[int] = set()


class Holding:
    """The dead letters that an at-least-once queue holds."""

    def __init__(self, engine: "Engine", queue: Queue) -> None:
        self._engine = engine
        self._queue = queue
        self._on_the_way: list[Letter] = []
        self._waiting: deque[Letter] = deque()
        self.retry_ms = NEVER

    def __len__(self) -> int:
        return len(self._on_the_way) + len(self._waiting)

    def entries(self) -> list[Entry]:
        """Every message held."""
        return [letter.entry for letter in (*self._on_the_way, *self._waiting)]

    def clear(self) -> None:
        """Forget them all."""
        self._on_the_way.clear()
        self._waiting.clear()
        self.retry_ms = NEVER

    def add(self, letter: Letter) -> None:
        """One more, sent at once if it is its turn."""
        if len(self._on_the_way) >= ON_THE_WAY_MAX:
            self._waiting.append(letter)
        elif not self._send(letter):
            self._on_the_way.append(letter)
            if self.retry_ms == NEVER:
                self.retry_ms = self._engine.now_ms + RETRY_MS
                self._queue.rearm()

    def wake(self, now_ms: int) -> None:
        """Time to try again, if it is."""
        if now_ms < self.retry_ms:
            return
        self._on_the_way = [letter for letter in self._on_the_way if not self._send(letter)]
        while self._waiting and len(self._on_the_way) < ON_THE_WAY_MAX:
            letter = self._waiting.popleft()
            if not self._send(letter):
                self._on_the_way.append(letter)
        self.retry_ms = now_ms + RETRY_MS if self._on_the_way else NEVER

    def _send(self, letter: Letter) -> bool:
        """Publish to every target that has not got it; whether all have it now, and there is one."""
        engine, queue = self._engine, self._queue
        dead, targets = _addressed(engine, queue, letter.entry, letter.reason)
        life = dead.life
        if not targets:
            if life is not None and not letter.delivered:
                life.append((engine.now_ms, journal.HELD, queue.name, "no dead-letter target takes it yet"))
            return False
        taken = True
        for target in targets:
            if id(target) in letter.delivered:
                continue
            if target.offer(dead, self):
                letter.delivered.add(id(target))
            else:
                taken = False
        if taken and life is not None:
            life.append(_died(engine, queue, letter.entry, letter.reason, targets))
        return taken


def bury(engine: "Engine", queue: Queue, entry: Entry, reason: str) -> None:
    """One dead message goes where its queue sends the dead."""
    exchange = queue.settings.dead_letter_exchange
    life = entry.message.life
    if exchange is None:
        if life is not None:
            life.append(
                (engine.now_ms, journal.DROPPED, f"{reason} in {queue.name}, which has no dead-letter exchange")
            )
        return
    if queue.settings.at_least_once and not queue.is_deleted:
        if queue.holding is None:
            queue.holding = Holding(engine, queue)
        queue.holding.add(Letter(entry, reason))
        return
    dead, targets = _addressed(engine, queue, entry, reason)
    if not targets and life is not None and life[-1][1] != journal.DROPPED:
        why = f"{reason} in {queue.name}, and no queue takes what dead-letter exchange {exchange or '(default)'} gets"
        life.append((engine.now_ms, journal.DROPPED, why))
    if targets and life is not None:
        life.append(_died(engine, queue, entry, reason, targets))
    for target in targets:
        if not target.offer(dead) and life is not None:
            life.append((engine.now_ms, journal.REFUSED, target.name))


def _addressed(engine: "Engine", queue: Queue, entry: Entry, reason: str) -> tuple[Message, list[Queue]]:
    """The dead message as it is sent now, and the queues it goes to: none of them in an automatic circle."""
    settings, profile = queue.settings, engine.profile
    assert settings.dead_letter_exchange is not None
    message = entry.message
    dead = record_death(
        message,
        queue=queue.name,
        reason=reason,
        exchange=settings.dead_letter_exchange,
        key=settings.dead_letter_key,
        now_ms=engine.now_ms,
        profile=profile,
    )
    if entry.failed and (profile.carries_everything or (profile.carries_failed and queue.is_quorum)):
        # Where queues count on (4.3) the entry began with what the message had; elsewhere each queue adds its own.
        before = 0 if profile.carries_everything else message.failed
        dead.failed = dead.acquired = before + entry.failed
    exchange = queue.vhost.exchanges.get(settings.dead_letter_exchange)
    if exchange is None:
        return dead, []
    if dead.hops > HOPS_AT_ONCE_MAX:
        if message.life is not None:
            why = f"died {HOPS_AT_ONCE_MAX} times within one moment; a real broker would go on for ever"
            message.life.append((engine.now_ms, journal.DROPPED, why))
        return dead, []
    targets = []
    for target in route(queue.vhost, exchange, dead):
        way = None if reason == REJECTED else is_cycle(dead, target.name, profile)
        if way is None:
            targets.append(target)
        elif message.life is not None and not settings.at_least_once:
            circle = "→".join((*reversed(way), target.name))
            message.life.append((engine.now_ms, journal.DROPPED, f"automatic cycle {circle}"))
    return dead, targets


def _died(engine: "Engine", queue: Queue, entry: Entry, reason: str, targets: list[Queue]) -> journal.RawHop:
    waited_ms = engine.now_ms - entry.since_ms
    return engine.now_ms, journal.DIED, reason, queue.name, waited_ms, tuple(target.name for target in targets)
