"""Whether a delivery may be handled now, decided before its handler runs.

    another queue's retry (shape tiered)                     Skip
    `x-redrive-not-before` is not over                       Defer
    `processAfterDelayMs` is not over (shape service)        as an answer of 425
    its consumers crashed on it, in exclusive runs too       Crashed
    a consumer may have crashed while it handled it          ReplaceByCopy: a copy that counts one more, then an ack
    the same, and one more crash would be too many           RunExclusively: a run while nothing else runs

A `redelivered` flag says only "maybe": the broker sets it on every delivery that a lost connection had, whether its
handler had begun or not, and whatever ended the process or cut its connection. So a message is never parked for crashes
that may have been its neighbours'. From one crash before `crashes_max` on it runs exclusively, and only what happens
then weighs against it:

    what is known of its last exclusive run (`run_records`)                              weighs
    its process ended by itself during it, or it blocked the event loop                  all: it is parked
    it was stopped from outside: SIGKILL (also by a memory limit), a lost connection     2 of 6
    unseen: the process was on another machine, or left no record                        1 of 6
    it had not begun                                                                     nothing

So a message that kills its consumer is run `crashes_max` times where its process is watched, and at most
`crashes_max` + 5 times where nothing is known of it. On queues whose delivery count is the attempts (`native`) the
broker's count decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

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
from redrive.runtime.process_after import PROCESS_AFTER, asked_delay_ms, published_ms
from redrive.runtime.run_records import LastRun
from redrive.topology import QueuePlan, QueueType

TOO_EARLY = 425
EXCLUSIVE_WEIGHT_MAX = 6
"""At this weight of crashes in exclusive runs a message is parked."""
_WEIGHTS = {LastRun.ITS_OWN: EXCLUSIVE_WEIGHT_MAX, LastRun.STOPPED: 2, LastRun.UNSEEN: 1, LastRun.NOT_BEGUN: 0}
ASIDE_MS_MAX = 1_000
"""How long a message that must not run now stays in a wait queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceByCopy:
    """Publish a copy to the end of the queue that counts `deliveries`, and ack this one. `weight` is what its exclusive
    runs weigh against it."""

    deliveries: int
    weight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExclusively:
    """Handle it while no other handler of the process runs."""

    deliveries: int
    weight: int = 0


Verdict: TypeAlias = Skip | Defer | Answered | Crashed | ReplaceByCopy | RunExclusively


class Admission:
    """Judges the deliveries of one queue."""

    def __init__(self, plan: QueuePlan, *, crashes_max: int | None, now_ms: Callable[[], int]) -> None:
        self._plan = plan
        self._now_ms = now_ms
        self._counts_itself = plan.counted_by is Counter.DELIVERIES
        stays = self._counts_itself or plan.queue.type == QueueType.STREAM
        self._crashes_max = None if stays else crashes_max
        # Up to 4.0 a quorum queue counts a nack. Where that count is the attempts (the literal requeue), a requeued
        # message would lose a run that it never had.
        self._copies_home = self._crashes_max is not None or plan.requeue_costs_attempt
        self._runs_max = plan.policy.attempts_max
        waits = () if plan.routes is None else plan.routes.waits
        self._aside_ms = min(ASIDE_MS_MAX, max((wait.delay_ms for wait in waits), default=0))
        self.early_mark = PROCESS_AFTER.encode() if plan.traits.honours_process_after else None
        """The bytes that every early delivery contains, None if no delivery can be early."""

    @property
    def has_wait_queue(self) -> bool:
        """Whether there is a wait queue for messages that must not run now."""
        return self._aside_ms > 0

    def was_due_exclusive(self, message: ReceivedMessage) -> bool:
        """Whether it was to run exclusively when its consumer crashed or lost its connection."""
        limit = self._crashes_max
        return limit is not None and message.redelivered and read_count(message.header(headers.DELIVERIES)) >= limit - 1

    def judge(
        self, message: ReceivedMessage, body: bytes, *, after_own_loss: bool = False, last_run: LastRun = LastRun.UNSEEN
    ) -> Verdict | None:
        """What to do instead of handling it, None if it may be handled. `last_run` is what is known of its exclusive
        run.

        `after_own_loss`: this process has lost its own channel lately, and lives. A message that is redelivered now may
        have been its own: no crash is counted. Otherwise every lost connection would replace every unsettled delivery
        by a copy, and a connection that breaks again before the acks arrive would leave both.
        """
        if self._plan.is_foreign(message):
            return Skip()
        now_ms = self._now_ms()
        wait_ms = _moment(message.header(headers.NOT_BEFORE)) - now_ms
        if wait_ms > 0:
            wait_ms = min(wait_ms, DELAY_MS_MAX)
            return Defer(wait_ms=wait_ms, not_before_ms=now_ms + wait_ms)
        crashed = self._judge_crashes(message, after_own_loss=after_own_loss, last_run=last_run)
        if crashed is not None:
            return crashed
        if self.early_mark is not None and self._is_early(message, body, now_ms):
            return Answered(status=TOO_EARLY, detail=f"{PROCESS_AFTER} is not over")
        return None

    def own_queue_copy(
        self, message: ReceivedMessage, *, deliveries: int | None, weight: int = 0, aside: bool = False
    ) -> PublishCopy | None:
        """A copy to the queue's own end with the same count of attempts, None where a plain requeue does as well.

        `deliveries` and `weight` are written on it; None is a fresh start. `aside`: through a wait queue, if there is
        one, out of the way for a moment.
        """
        has_time = published_ms(message, now_ms=self._now_ms()) is not None
        begins_now = self.early_mark is not None and not has_time
        # 4.3 leaves a publisher's own x-delivery-count on a message after a nack, and it would be the attempts.
        would_count = self._counts_itself and brings_deliveries(message)
        if not (self._copies_home or begins_now or would_count):
            return None
        report = Report(retries=count_retries(message, self._plan.counted_by), now_ms=self._now_ms())
        wait_ms = self._aside_ms if aside else 0
        defer = Defer(wait_ms=wait_ms, not_before_ms=report.now_ms + wait_ms)
        first = self._plan.commands(defer, message, report)[0]
        if not isinstance(first, PublishCopy):
            return None
        written = dict(first.set_headers)
        if deliveries is not None:
            written[headers.DELIVERIES] = deliveries
            if weight:
                written[headers.DEATHS_ALONE] = weight
        if not has_time:
            seen_ms = _moment(message.header(headers.FIRST_SEEN))
            written[headers.FIRST_SEEN] = seen_ms if seen_ms else report.now_ms
        return replace(first, set_headers=written)

    def age_ms(self, message: ReceivedMessage) -> int | None:
        """Its age by its timestamp, else since a consumer first received it, if a header says so; else None."""
        since_ms = self._since_ms(message, self._now_ms())
        return None if since_ms is None else max(self._now_ms() - since_ms, 0)

    def _judge_crashes(self, message: ReceivedMessage, *, after_own_loss: bool, last_run: LastRun) -> Verdict | None:
        if self._counts_itself:
            # No consumer has crashed on a message that the broker has not counted, however many runs a rule allows.
            if not read_deliveries(message):
                return None
            deliveries = count_retries(message, Counter.DELIVERIES)
            return Crashed(deliveries=deliveries) if deliveries >= self._runs_max else None
        if self._crashes_max is None:
            return None
        counted, rejected = read_deliveries(message), own_deaths(message).rejections
        # 4.0's quorum queues count a reject as a delivery and carry the count through dead-lettering: a message that
        # comes back from its wait is flagged though no consumer crashed. Any requeue makes the count begin anew.
        may_have_crashed = message.redelivered and not after_own_loss and not 0 < counted == rejected
        deliveries = read_count(message.header(headers.DELIVERIES))
        weight = read_count(message.header(headers.DEATHS_ALONE))
        is_exclusive = deliveries >= self._crashes_max - 1
        if not may_have_crashed:
            return RunExclusively(deliveries=deliveries, weight=weight) if is_exclusive else None
        if not is_exclusive:
            return ReplaceByCopy(deliveries=deliveries + 1)
        added = _WEIGHTS[last_run]
        if last_run is LastRun.UNSEEN and 0 < counted < rejected:
            added = 0  # on 4.0 this may also be a connection that we lost some rejects ago
        if not added:
            return ReplaceByCopy(deliveries=deliveries, weight=weight)
        if weight + added >= EXCLUSIVE_WEIGHT_MAX:
            return Crashed(deliveries=deliveries + 1)
        return ReplaceByCopy(deliveries=deliveries + 1, weight=weight + added)

    def _is_early(self, message: ReceivedMessage, body: bytes, now_ms: int) -> bool:
        delay_ms = asked_delay_ms(message, body)
        if not delay_ms:
            return False
        since_ms = self._since_ms(message, now_ms)
        # Without a timestamp its delay begins now, and the copy that is requeued says so.
        return since_ms is None or since_ms + delay_ms > now_ms

    def _since_ms(self, message: ReceivedMessage, now_ms: int) -> int | None:
        own_ms = published_ms(message, now_ms=now_ms)
        return (_moment(message.header(headers.FIRST_SEEN)) or None) if own_ms is None else own_ms


def _moment(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else 0
