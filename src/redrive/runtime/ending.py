"""What becomes of a delivery once it is known how its run ended: decided, carried out, told.

Giving back has a form of its own here. Where crashes are counted a message goes back by a copy to its queue's end: the
broker marks a returned one as redelivered, as if its consumer had died.
"""

from collections.abc import Callable
from dataclasses import replace

from redrive.client import ClientError, Delivery
from redrive.core import (
    PAUSE_MS_MAX,
    SILENT,
    Attempt,
    Command,
    Decision,
    Defer,
    Discard,
    Done,
    Exponential,
    Failure,
    Fixed,
    GiveBack,
    Linear,
    Listed,
    Observer,
    Outcome,
    Parked,
    Policy,
    Publish,
    Raised,
    Report,
    Retry,
    Signal,
    Situation,
    Undecodable,
    count_retries,
    decide,
    describe_outcome,
    headers,
    read_history,
)
from redrive.runtime.admission import Admission
from redrive.runtime.executing import Executor
from redrive.runtime.pausing import Pausing
from redrive.runtime.reporting import describe_decision
from redrive.runtime.views import DeliveryLetter
from redrive.topology import QueuePlan

_COUNTED, _DIED, _COUNTED_BEFORE = b"x-retry-count", b"x-death", b"x-redrive-attempts-before"
_OWN_FAILURE_S = 1.0
_USUAL_MAX = 1000
_DISCARD = (Discard(),)


class Ending:
    """Ends the deliveries of one queue."""

    def __init__(
        self,
        plan: QueuePlan,
        policy: Policy,
        admission: Admission,
        *,
        executor: Executor,
        pausing: Pausing,
        observer: Observer,
        now_ms: Callable[[], int],
        draw: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._queue = plan.name
        self._counted_by = plan.counted_by
        self._policy = policy
        self._admission = admission
        self._executor = executor
        self._pausing = pausing
        self._observer = observer
        self._now_ms = now_ms
        self._draw = draw
        self._asks_age = policy.age_ms_max is not None or policy.own is not None
        plain = isinstance(policy.backoff, Fixed | Listed | Linear | Exponential) and not policy.jitter
        self._usual: dict[int, Decision] | None = {} if plain and not policy.rules and not self._asks_age else None
        """What an ordinary error leads to, by the retries before it, where neither chance, age, rules nor an author's
        own function have a say: then it is the same for every message."""
        self._acked: Callable[[str, float, int], None] | None = getattr(observer, "acked", None)
        self._notes_acks = observer is not SILENT and (self._acked is None or bool(getattr(observer, "logs_acks", 0)))
        self.tells_acks = self._notes_acks or self._acked is not None
        """Whether `tell_ack` has anyone to tell, and handlers need to be timed."""

    async def settle(self, delivery: Delivery, outcome: Outcome, handler_s: float, *, has_run: bool) -> None:
        """Decides and carries out. Raises `StaleDelivery`: then the message comes again."""
        letter = DeliveryLetter(delivery, self._queue)
        retries = count_retries(letter, self._counted_by)
        now_ms = self._now_ms()
        decision = self._decide(outcome, letter, retries, now_ms)
        if has_run and self._pausing.judge(outcome, decision):
            decision = GiveBack(pause_ms=0)
        # A stack is only wanted on a dead letter, and costs more than everything else here.
        failure = describe_outcome(outcome, stack=isinstance(decision, Parked))
        attempts: tuple[Attempt, ...] = ()
        has_begun = not isinstance(outcome, Undecodable)
        timed_s = handler_s if has_run and has_begun else None
        if type(decision) is Retry and self._plan.rejects(decision, letter):
            # The commonest retry of the reject loops: no copy is made, so nothing needs to be written down.
            if await self._executor.execute(delivery, _DISCARD):
                self._tell(decision, letter, failure, attempt=retries + 1, handler_s=timed_s)
            return
        if has_run and failure is not None and has_begun:
            attempts = (Attempt(number=retries + 1, at_ms=now_ms, error=failure.text),)
        report = Report(retries=retries, now_ms=now_ms, failure=failure, history=(*read_history(letter), *attempts))
        await self._carry_out(letter, decision, report, handler_s=timed_s, is_attempt=has_begun)

    def _decide(self, outcome: Outcome, letter: DeliveryLetter, retries: int, now_ms: int) -> Decision:
        usual = self._usual
        is_usual = usual is not None and type(outcome) is Raised and not isinstance(outcome.error, Signal)
        decision = usual.get(retries) if usual is not None and is_usual else None
        if decision is None:
            age_ms = self._admission.age_ms(letter) if self._asks_age else None
            situation = Situation(retries=retries, now_ms=now_ms, age_ms=age_ms, draw=self._draw())
            decision = decide(outcome, situation, self._policy)
            if usual is not None and is_usual and len(usual) < _USUAL_MAX:
                usual[retries] = decision
        elif type(decision) is Retry:
            decision = Retry(delay_ms=decision.delay_ms, not_before_ms=now_ms + decision.delay_ms)
        return decision

    async def carry_out(self, delivery: Delivery, decision: Decision) -> None:
        """Carries out what was decided without a run. Raises `StaleDelivery`."""
        letter = DeliveryLetter(delivery, self._queue)
        report = Report(
            retries=count_retries(letter, self._plan.counted_by), now_ms=self._now_ms(), history=read_history(letter)
        )
        await self._carry_out(letter, decision, report)

    async def _carry_out(
        self,
        letter: DeliveryLetter,
        decision: Decision,
        report: Report,
        *,
        handler_s: float | None = None,
        is_attempt: bool = True,
    ) -> None:
        """Carries a decision out, and tells of it if it came to that."""
        if isinstance(decision, GiveBack):
            done = await self.give_back(letter.delivery, pause_ms=decision.pause_ms)
        else:
            commands = self._plan.commands(decision, letter, report)
            if isinstance(decision, Defer):
                commands = _with_deaths(commands, letter)
            done = await self._executor.execute(letter.delivery, self._dated(commands, letter, report.now_ms))
        if done:
            attempt = report.retries + 1 if is_attempt else None
            self._tell(decision, letter, report.failure, attempt=attempt, handler_s=handler_s)

    async def give_back(self, delivery: Delivery, *, pause_ms: int = 0) -> bool:
        """Back to the queue after a pause, uncounted; whether it came to that. Raises `StaleDelivery`."""
        letter = DeliveryLetter(delivery, self._queue)
        copy = self._admission.home_copy(letter, deliveries=None)
        if copy is not None:
            await self._executor.pause(min(pause_ms, PAUSE_MS_MAX) / 1000)
            if delivery.is_stale:
                return False
            if await self._executor.copy_once(delivery, copy):
                return True
            pause_ms = 0
        report = Report(retries=count_retries(letter, self._plan.counted_by), now_ms=self._now_ms())
        commands = self._plan.commands(GiveBack(pause_ms=pause_ms), letter, report)
        return await self._executor.execute(delivery, commands)

    async def give_back_after(self, delivery: Delivery, error: Exception) -> None:
        """Something of ours has failed: say so, wait a moment so that it is no hot loop, and give the message back."""
        self._observer.note("runtime.failed", queue=self._queue, error=f"{type(error).__name__}: {error}")
        await self._executor.pause(_OWN_FAILURE_S)
        if not delivery.is_stale:
            try:
                delivery.nack(requeue=True)
            except ClientError:
                pass

    def tell_ack(self, delivery: Delivery, handler_s: float) -> None:
        """A handler returned and its delivery was acked."""
        header = delivery.header
        attempt = 1
        if delivery.redelivered or _COUNTED in header or _DIED in header or _COUNTED_BEFORE in header:
            attempt = count_retries(DeliveryLetter(delivery, self._queue), self._plan.counted_by) + 1
        if self._notes_acks:
            self._tell(Done(), DeliveryLetter(delivery, self._queue), None, attempt=attempt, handler_s=handler_s)
        elif self._acked is not None:
            self._acked(self._queue, handler_s, attempt)

    def _tell(
        self,
        decision: Decision,
        letter: DeliveryLetter,
        failure: Failure | None,
        *,
        attempt: int | None,
        handler_s: float | None,
    ) -> None:
        if self._observer is SILENT:
            return
        fields = describe_decision(
            decision,
            letter,
            plan=self._plan,
            failure=failure,
            attempt=attempt,
            attempts_max=self._policy.attempts_max,
            handler_s=handler_s,
        )
        self._observer.note("runtime.decided", **fields)

    def _dated(self, commands: tuple[Command, ...], letter: DeliveryLetter, now_ms: int) -> tuple[Command, ...]:
        """With an age budget a message that has no time of its own gets one, with its first copy."""
        if self._policy.age_ms_max is None or self._admission.age_ms(letter) is not None:
            return commands
        seen = {headers.FIRST_SEEN: now_ms}
        return tuple(
            replace(one, set_headers={**one.set_headers, **seen}) if isinstance(one, Publish) else one
            for one in commands
        )


def _with_deaths(commands: tuple[Command, ...], letter: DeliveryLetter) -> tuple[Command, ...]:
    """What has not run yet keeps the count of the consumers that may have died on it."""
    deaths = letter.header(headers.DELIVERIES)
    if deaths is None:
        return commands
    return tuple(
        replace(one, set_headers={**one.set_headers, headers.DELIVERIES: deaths}) if isinstance(one, Publish) else one
        for one in commands
    )
