"""Whether a delivery may be handled now, asked before its handler runs.

    another queue's retry (shape tiered)                     Skip
    `x-redrive-not-before` is not over                       Defer
    `processAfterDelayMs` is not over (shape service)        as an answer of 425
    its consumers died with it in hand, and in runs alone    Crashed
    a consumer may have died with it in hand                 Replace: a copy that counts one more, then an ack
    the same, and one more death would be too many           Alone: a run with nothing else in hand

A `redelivered` flag says only "maybe": it is set on everything that was in hand, begun or not, whoever ended the
process or cut its connection. That is why a message is never parked for deaths it may have suffered as a neighbour.
From one death before `crashes_max` on it runs alone, and only what happens then weighs against it:

    what is known of its last run alone (`run_records`)                                weighs
    its process ended by itself in it, or it held up the event loop                    all: it is parked
    it was stopped from outside: SIGKILL (also that of a memory limit), a lost line    2 of 6
    unseen: the process was on another machine, or left no record                      1 of 6
    it had not begun                                                                   nothing

So a message that kills is run `crashes_max` times where its process is watched, and at most `crashes_max` + 5 times
where nothing is known of it. On queues that count deliveries themselves as attempts (`native`) the broker's count is
the one that holds.
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
    PublishCopy,
    ReceivedMessage,
    Report,
    Skip,
    brings_deliveries,
    count_retries,
    headers,
    own_deaths,
    read_count,
    read_deliveries,
)
from redrive.runtime.due import PROCESS_AFTER, asked_delay_ms, published_ms
from redrive.runtime.run_records import LastRun
from redrive.topology import QueuePlan, QueueType

TOO_EARLY = 425
ALONE_MAX = 6
"""At this weight of deaths in runs alone a message is parked."""
_WEIGHTS = {LastRun.ITS_OWN: ALONE_MAX, LastRun.STOPPED: 2, LastRun.UNSEEN: 1, LastRun.NOT_BEGUN: 0}
ASIDE_MS_MAX = 1_000
"""How long a message that must not be in hand now stays in a wait queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replace:
    """Put a copy at the end of the queue that has been in hand so many times, and ack this one. `alone` weighs against
    it from its runs alone."""

    deliveries: int
    alone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    """Handle it with nothing else in hand."""

    deliveries: int
    alone: int = 0


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
        # back would pay for a run it never had.
        self._copies_home = self._crashes_max is not None or plan.requeue_costs_attempt
        self._runs_max = plan.policy.attempts_max
        waits = () if plan.routes is None else plan.routes.waits
        self._aside_ms = min(ASIDE_MS_MAX, max((wait.delay_ms for wait in waits), default=0))
        self.early_mark = PROCESS_AFTER.encode() if plan.traits.honours_process_after else None
        """What an early delivery certainly contains, None if none can be early."""

    @property
    def can_step_aside(self) -> bool:
        """Whether there is a wait queue for what must not be in hand now."""
        return self._aside_ms > 0

    def had_last_chance(self, letter: ReceivedMessage) -> bool:
        """Whether it was to run alone when its consumer died or lost its connection."""
        limit = self._crashes_max
        return limit is not None and letter.redelivered and read_count(letter.header(headers.DELIVERIES)) >= limit - 1

    def judge(
        self, letter: ReceivedMessage, body: bytes, *, after_own_loss: bool = False, last_run: LastRun = LastRun.UNSEEN
    ) -> Verdict | None:
        """What to do instead of handling it, None if it may be handled. `last_run` is what is known of its run alone.

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
        crashed = self._judge_crashes(letter, after_own_loss=after_own_loss, last_run=last_run)
        if crashed is not None:
            return crashed
        if self.early_mark is not None and self._is_early(letter, body, now_ms):
            return Answered(status=TOO_EARLY, detail=f"{PROCESS_AFTER} is not over")
        return None

    def home_copy(
        self, letter: ReceivedMessage, *, deliveries: int | None, alone: int = 0, aside: bool = False
    ) -> PublishCopy | None:
        """A copy to the queue's own end that is as far as this one, None where a plain return does as well.

        `deliveries` goes on it, and `alone`; None is a fresh start. `aside`: by way of a wait queue, if there is one,
        out of the way for a moment.
        """
        has_time = published_ms(letter, now_ms=self._now_ms()) is not None
        begins_now = self.early_mark is not None and not has_time
        # 4.3 leaves a publisher's own x-delivery-count on what comes back by a nack, and it would be the attempts.
        would_count = self._counts_itself and brings_deliveries(letter)
        if not (self._copies_home or begins_now or would_count):
            return None
        report = Report(retries=count_retries(letter, self._plan.counted_by), now_ms=self._now_ms())
        wait_ms = self._aside_ms if aside else 0
        defer = Defer(wait_ms=wait_ms, not_before_ms=report.now_ms + wait_ms)
        first = self._plan.commands(defer, letter, report)[0]
        if not isinstance(first, PublishCopy):
            return None
        written = dict(first.set_headers)
        if deliveries is not None:
            written[headers.DELIVERIES] = deliveries
            if alone:
                written[headers.DEATHS_ALONE] = alone
        if not has_time:
            seen_ms = _moment(letter.header(headers.FIRST_SEEN))
            written[headers.FIRST_SEEN] = seen_ms if seen_ms else report.now_ms
        return replace(first, set_headers=written)

    def age_ms(self, letter: ReceivedMessage) -> int | None:
        """How old it is by its timestamp, else since a consumer first saw it, as far as it says; None if it doesn't."""
        since_ms = self._since_ms(letter, self._now_ms())
        return None if since_ms is None else max(self._now_ms() - since_ms, 0)

    def _judge_crashes(self, letter: ReceivedMessage, *, after_own_loss: bool, last_run: LastRun) -> Verdict | None:
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
        deliveries = read_count(letter.header(headers.DELIVERIES))
        alone = read_count(letter.header(headers.DEATHS_ALONE))
        is_alone = deliveries >= self._crashes_max - 1
        if not may_have_died:
            return _Alone(deliveries=deliveries, alone=alone) if is_alone else None
        if not is_alone:
            return _Replace(deliveries=deliveries + 1)
        weight = _WEIGHTS[last_run]
        if last_run is LastRun.UNSEEN and 0 < counted < rejected:
            weight = 0  # on 4.0 this may also be a connection we lost some rejects ago
        if not weight:
            return _Replace(deliveries=deliveries, alone=alone)
        if alone + weight >= ALONE_MAX:
            return Crashed(deliveries=deliveries + 1)
        return _Replace(deliveries=deliveries + 1, alone=alone + weight)

    def _is_early(self, letter: ReceivedMessage, body: bytes, now_ms: int) -> bool:
        delay_ms = asked_delay_ms(letter, body)
        if not delay_ms:
            return False
        since_ms = self._since_ms(letter, now_ms)
        # Without a time of its own it begins now, and the copy that goes back says so.
        return since_ms is None or since_ms + delay_ms > now_ms

    def _since_ms(self, letter: ReceivedMessage, now_ms: int) -> int | None:
        own_ms = published_ms(letter, now_ms=now_ms)
        return (_moment(letter.header(headers.FIRST_SEEN)) or None) if own_ms is None else own_ms


def _moment(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else 0
