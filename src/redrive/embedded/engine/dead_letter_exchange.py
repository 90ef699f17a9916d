"""Dead-lettering: a dead message is published to the dead-letter exchange, dropped, or held until a target takes it.

At most once (the default): a missing exchange, no route or a full target silently loses the message. At least once
(quorum queues that ask for it): the source queue holds it, sends at most 32 at a time, and tries again every 180
seconds of virtual time; a message whose only route is a cycle is held for good.
"""

from collections import deque
from typing import TYPE_CHECKING

from redrive.embedded.engine import journal
from redrive.embedded.engine.messages import Message, QueueEntry
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.routing import route
from redrive.embedded.engine.timers import NEVER
from redrive.embedded.engine.x_death import REJECTED, is_cycle, record_death

if TYPE_CHECKING:
    from redrive.embedded.engine.engine import Engine

RETRY_MS = 180_000
ON_THE_WAY_MAX = 32
HOPS_AT_ONCE_MAX = 1_000
"""3.10's order of x-death can hide a cycle from its own detection (rejected once, then full queues that dead-letter
into one another): a real broker then moves the message round without end. Here it ends."""


class HeldDeadLetter:
    """A dead message with the queues that have it already (at-least-once)."""

    __slots__ = ("delivered", "entry", "reason")

    def __init__(self, entry: QueueEntry, reason: str) -> None:
        self.entry = entry
        self.reason = reason
        self.delivered: set[int] = set()


class HeldDeadLetters:
    """The dead letters that an at-least-once queue holds until all their targets have them."""

    def __init__(self, engine: "Engine", queue: Queue) -> None:
        self._engine = engine
        self._queue = queue
        self._on_the_way: list[HeldDeadLetter] = []
        self._waiting: deque[HeldDeadLetter] = deque()
        self.retry_ms = NEVER

    def __len__(self) -> int:
        return len(self._on_the_way) + len(self._waiting)

    def entries(self) -> list[QueueEntry]:
        """Every message held."""
        return [letter.entry for letter in (*self._on_the_way, *self._waiting)]

    def clear(self) -> None:
        """Forget them all."""
        self._on_the_way.clear()
        self._waiting.clear()
        self.retry_ms = NEVER

    def add(self, letter: HeldDeadLetter) -> None:
        """Hold one more, or send it at once while fewer than 32 are on their way."""
        if len(self._on_the_way) >= ON_THE_WAY_MAX:
            self._waiting.append(letter)
        elif not self._send(letter):
            self._on_the_way.append(letter)
            if self.retry_ms == NEVER:
                self.retry_ms = self._engine.now_ms + RETRY_MS
                self._queue.rearm()

    def wake(self, now_ms: int) -> None:
        """Try again if the retry is due."""
        if now_ms < self.retry_ms:
            return
        self._on_the_way = [letter for letter in self._on_the_way if not self._send(letter)]
        while self._waiting and len(self._on_the_way) < ON_THE_WAY_MAX:
            letter = self._waiting.popleft()
            if not self._send(letter):
                self._on_the_way.append(letter)
        self.retry_ms = now_ms + RETRY_MS if self._on_the_way else NEVER

    def _send(self, letter: HeldDeadLetter) -> bool:
        """Publish to every target that does not have it; True if there is a target and all have it now."""
        engine, queue = self._engine, self._queue
        dead, targets = _addressed(engine, queue, letter.entry, letter.reason)
        history = dead.history
        if not targets:
            if history is not None and not letter.delivered:
                history.append((engine.now_ms, journal.HELD, queue.name, "no dead-letter target takes it yet"))
            return False
        taken = True
        for target in targets:
            if id(target) in letter.delivered:
                continue
            if target.enqueue(dead, self):
                letter.delivered.add(id(target))
            else:
                taken = False
        if taken and history is not None:
            history.append(_died(engine, queue, letter.entry, letter.reason, targets))
        return taken


def dead_letter(engine: "Engine", queue: Queue, entry: QueueEntry, reason: str) -> None:
    """Send one dead message where its queue's dead-letter settings say."""
    exchange = queue.settings.dead_letter_exchange
    history = entry.message.history
    if exchange is None:
        if history is not None:
            history.append(
                (engine.now_ms, journal.DROPPED, f"{reason} in {queue.name}, which has no dead-letter exchange")
            )
        return
    if queue.settings.at_least_once and not queue.is_deleted:
        if queue.held_dead_letters is None:
            queue.held_dead_letters = HeldDeadLetters(engine, queue)
        queue.held_dead_letters.add(HeldDeadLetter(entry, reason))
        return
    dead, targets = _addressed(engine, queue, entry, reason)
    if not targets and history is not None and history[-1][1] != journal.DROPPED:
        why = f"{reason} in {queue.name}, and no queue takes what dead-letter exchange {exchange or '(default)'} gets"
        history.append((engine.now_ms, journal.DROPPED, why))
    if targets and history is not None:
        history.append(_died(engine, queue, entry, reason, targets))
    for target in targets:
        if not target.enqueue(dead) and history is not None:
            history.append((engine.now_ms, journal.REFUSED, target.name))


def _addressed(engine: "Engine", queue: Queue, entry: QueueEntry, reason: str) -> tuple[Message, list[Queue]]:
    """The dead message as it is sent now, and its target queues, without those that would close an automatic cycle."""
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
        # Where queues continue the count (4.3) the entry began with the message's; elsewhere each queue adds its own.
        before = 0 if profile.carries_everything else message.failed
        dead.failed = dead.acquired = before + entry.failed
    exchange = queue.vhost.exchanges.get(settings.dead_letter_exchange)
    if exchange is None:
        return dead, []
    if dead.hops > HOPS_AT_ONCE_MAX:
        if message.history is not None:
            why = f"died {HOPS_AT_ONCE_MAX} times within one moment; a real broker would go on for ever"
            message.history.append((engine.now_ms, journal.DROPPED, why))
        return dead, []
    targets = []
    for target in route(queue.vhost, exchange, dead):
        way = None if reason == REJECTED else is_cycle(dead, target.name, profile)
        if way is None:
            targets.append(target)
        elif message.history is not None and not settings.at_least_once:
            circle = "→".join((*reversed(way), target.name))
            message.history.append((engine.now_ms, journal.DROPPED, f"automatic cycle {circle}"))
    return dead, targets


def _died(engine: "Engine", queue: Queue, entry: QueueEntry, reason: str, targets: list[Queue]) -> journal.RawHop:
    waited_ms = engine.now_ms - entry.enqueued_ms
    return engine.now_ms, journal.DIED, reason, queue.name, waited_ms, tuple(target.name for target in targets)
