"""Whether a delivery may be handled now, asked before its handler runs.

    another queue's retry (shape tiered)                     Skip
    `x-redrive-not-before` is not over                       Defer
    `processAfterDelayMs` is not over (shape service)        as an answer of 425
    its consumers died with it in hand, too often            Crashed
    a consumer may have died with it in hand                 Replace: a copy that counts one more, then an ack
    the same, and one more death would be too many           Alone: its last run, with nothing else in hand

A `redelivered` flag says only "maybe": a lost connection sets it on everything that was in hand. That is why a message
is never parked for deaths it may have suffered as a neighbour: the one that would make it too many happens alone. On
queues that count deliveries themselves as attempts (`native`) the broker's count is the one that holds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from redrive.core import (
    DELAY_MS_MAX,
    Answered,
    Counter,
    Crashed,
    Defer,
    Letter,
    Publish,
    Report,
    Skip,
    count_retries,
    headers,
    own_deaths,
    read_count,
    read_deliveries,
)
from redrive.runtime.due import PROCESS_AFTER, asked_delay_ms, published_ms
from redrive.topology import QueuePlan, QueueType

TOO_EARLY = 425
ASIDE_MS_MAX = 1_000
"""How long a message that must not be in hand now stays in a wait queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replace:
    """Put a copy at the end of the queue that has been in hand so many times, and ack this one."""

    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    """Handle it with nothing else in hand."""

    deliveries: int


Verdict: TypeAlias = Skip | Defer | Answered | Crashed | _Replace | _Alone


class Admission:
    """Judges the deliveries of one queue."""

    Replace: ClassVar = _Replace
    Alone: ClassVar = _Alone

    def __init__(self, plan: QueuePlan, *, crashes_max: int | None, now_ms: Callable[[], int]) -> None:
        self._plan = plan
        self._now_ms = now_ms
        self._counts_itself = plan.counted_by is Counter.DELIVERIES
        stays = self._counts_itself or plan.queue.type == QueueType.STREAM
        self._crashes_max = None if stays else crashes_max
        # Up to 4.0 a quorum queue counts a nack. Where that count is the attempts (the literal requeue), what is given
        # back would pay for a run it never had; `native` needs 4.3, which does not count it.
        is_quorum = plan.queue.type == QueueType.QUORUM
        returns_cost = self._counts_itself and is_quorum and plan.shape_name != "native"
        self._copies_home = self._crashes_max is not None or returns_cost
        self._runs_max = plan.policy.attempts_max
        waits = () if plan.arrangement is None else plan.arrangement.waits
        self._aside_ms = min(ASIDE_MS_MAX, max((wait.delay_ms for wait in waits), default=0))
        self.early_mark = PROCESS_AFTER.encode() if plan.shape_name == "service" else None
        """What an early delivery certainly contains, None if none can be early."""

    @property
    def can_step_aside(self) -> bool:
        """Whether there is a wait queue for what must not be in hand now."""
        return self._aside_ms > 0

    def judge(self, letter: Letter, body: bytes, *, after_own_loss: bool = False) -> Verdict | None:
        """What to do instead of handling it, None if it may be handled.

        `after_own_loss`: this process has lost its own channel lately, and lives. What is redelivered now it may have
        had in hand itself: no death is counted. Else every lost connection would replace everything in hand by copies,
        and a line that breaks again before the acks are through would leave both.
        """
        if self._plan.is_foreign(letter):
            return Skip()
        now_ms = self._now_ms()
        wait_ms = _moment(letter.header(headers.NOT_BEFORE)) - now_ms
        if wait_ms > 0:
            wait_ms = min(wait_ms, DELAY_MS_MAX)
            return Defer(wait_ms=wait_ms, not_before_ms=now_ms + wait_ms)
        crashed = self._judge_crashes(letter, after_own_loss=after_own_loss)
        if crashed is not None:
            return crashed
        if self.early_mark is not None and self._is_early(letter, body, now_ms):
            return Answered(status=TOO_EARLY, detail=f"{PROCESS_AFTER} is not over")
        return None

    def home_copy(self, letter: Letter, *, deliveries: int | None, aside: bool = False) -> Publish | None:
        """A copy to the queue's own end that is as far as this one, None where a plain return does as well.

        `deliveries` goes on it; None is a fresh start. `aside`: by way of a wait queue, if there is one, out of the way
        for a moment.
        """
        has_time = published_ms(letter, now_ms=self._now_ms()) is not None
        begins_now = self.early_mark is not None and not has_time
        if not self._copies_home and not begins_now:
            return None
        report = Report(retries=count_retries(letter, self._plan.counted_by), now_ms=self._now_ms())
        wait_ms = self._aside_ms if aside else 0
        defer = Defer(wait_ms=wait_ms, not_before_ms=report.now_ms + wait_ms)
        first = self._plan.commands(defer, letter, report)[0]
        if not isinstance(first, Publish):
            return None
        written = dict(first.set_headers)
        if deliveries is not None:
            written[headers.DELIVERIES] = deliveries
        if not has_time:
            seen_ms = _moment(letter.header(headers.FIRST_SEEN))
            written[headers.FIRST_SEEN] = seen_ms if seen_ms else report.now_ms
        return replace(first, set_headers=written)

    def age_ms(self, letter: Letter) -> int | None:
        """How old it is by its timestamp, else since a consumer first saw it, as far as it says; None if it doesn't."""
        since_ms = self._since_ms(letter, self._now_ms())
        return None if since_ms is None else max(self._now_ms() - since_ms, 0)

    def _judge_crashes(self, letter: Letter, *, after_own_loss: bool) -> Verdict | None:
        if self._counts_itself:
            # Nobody has died on what the broker has not counted, however far a rule has let its copies come.
            if not read_deliveries(letter):
                return None
            deliveries = count_retries(letter, Counter.DELIVERIES)
            return Crashed(deliveries=deliveries) if deliveries >= self._runs_max else None
        if self._crashes_max is None:
            return None
        counted, rejected = read_deliveries(letter), own_deaths(letter).rejections
        # 4.0's quorum queues count a reject as a delivery and carry the count through dead-lettering: a message that
        # comes back from its wait is flagged though nobody died. A return of any kind makes the count begin anew.
        may_have_died = letter.redelivered and not after_own_loss and not 0 < counted == rejected
        deliveries = read_count(letter.header(headers.DELIVERIES)) + (1 if may_have_died else 0)
        if may_have_died and 0 < counted < rejected:
            # On 4.0 this may also be a connection we lost some rejects ago: good for a run alone, for no more.
            deliveries = min(deliveries, self._crashes_max - 1)
        if deliveries >= self._crashes_max:
            return Crashed(deliveries=deliveries)
        if may_have_died:
            return _Replace(deliveries=deliveries)
        return _Alone(deliveries=deliveries) if deliveries >= self._crashes_max - 1 else None

    def _is_early(self, letter: Letter, body: bytes, now_ms: int) -> bool:
        delay_ms = asked_delay_ms(letter, body)
        if not delay_ms:
            return False
        since_ms = self._since_ms(letter, now_ms)
        # Without a time of its own it begins now, and the copy that goes back says so.
        return since_ms is None or since_ms + delay_ms > now_ms

    def _since_ms(self, letter: Letter, now_ms: int) -> int | None:
        own_ms = published_ms(letter, now_ms=now_ms)
        return (_moment(letter.header(headers.FIRST_SEEN)) or None) if own_ms is None else own_ms


def _moment(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else 0
