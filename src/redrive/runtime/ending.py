"""What becomes of a delivery once it is known how its run ended: decided, carried out, told.

Giving back has a form of its own here. Where crashes are counted a message goes back by a copy to its queue's end: the
broker marks a returned one as redelivered, as if its consumer had died.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from redrive.client import ClientError, Delivery, StaleDelivery
from redrive.core import (
    PAUSE_MS_MAX,
    SILENT,
    AckDelivery,
    Attempt,
    Command,
    Decision,
    Defer,
    Done,
    Exponential,
    Failure,
    Fixed,
    Linear,
    Listed,
    Observer,
    Outcome,
    Parked,
    ParkReason,
    PlainMessage,
    PublishCopy,
    Raised,
    RejectDelivery,
    Report,
    Requeued,
    Retry,
    RetryPolicy,
    Signal,
    Situation,
    Skip,
    Undecodable,
    decide,
    describe_error,
    describe_outcome,
    headers,
    read_history,
)
from redrive.runtime.admission import Admission
from redrive.runtime.detached import DetachedCopies
from redrive.runtime.envelopes import SIZES, envelope_of, unread_envelope_of
from redrive.runtime.executing import Executor, QueueGone, Unsendable
from redrive.runtime.moulds import Kind, Mould, Moulds, can_be_cast
from redrive.runtime.own_failures import OwnFailures
from redrive.runtime.pasts import Past, Pasts
from redrive.runtime.pausing import Pausing
from redrive.runtime.raising import begin_stack_at_handler
from redrive.runtime.reporting import Reporter
from redrive.runtime.views import DeliveryLetter
from redrive.topology import MoveBy, QueuePlan, QueueType
from redrive.wire import Properties

_COUNTED, _DIED, _COUNTED_BEFORE = b"x-retry-count", b"x-death", b"x-redrive-attempts-before"
_OWN_FAILURE_S = 1.0
_USUAL_MAX = 1000
_UNSENDABLE_S = 10.0
"""How long a message is held that can neither be copied nor parked, before it is given back."""


class Ending:
    """Ends the deliveries of one queue."""

    def __init__(
        self,
        plan: QueuePlan,
        policy: RetryPolicy,
        admission: Admission,
        *,
        executor: Executor,
        pausing: Pausing,
        observer: Observer,
        now_ms: Callable[[], int],
        draw: Callable[[], float],
        has_dead_letters: bool,
        reads_deaths: bool,
    ) -> None:
        """`has_dead_letters`: whether the queue was seen to have the dead-letter settings that are declared.
        `reads_deaths`: whether the broker goes on in an x-death that a message brings, and may crash on it (before 4.0)
        """
        self._reads_deaths = reads_deaths
        self._plan = plan
        # In a reject loop a reject is a retry.
        loops = plan.routes is not None and plan.routes.retry_by is MoveBy.REJECT
        self._rejects_to_parking = has_dead_letters and not loops
        self._queue = plan.name
        self._pasts = Pasts(plan)
        self._moulds = Moulds()
        self._policy = policy
        self._admission = admission
        self._executor = executor
        self._own_failures = OwnFailures()
        self._detached = DetachedCopies(executor, self.give_back_after)
        executor.give_back = self.give_back
        self._pausing = pausing
        self._observer = observer
        self._now_ms = now_ms
        self._draw = draw
        self._asks_age = policy.age_ms_max is not None or policy.own is not None
        plain = isinstance(policy.backoff, Fixed | Listed | Linear | Exponential) and not policy.jitter
        is_plain = plain and not policy.rules and not self._asks_age
        self._usual: dict[tuple[int, bool], tuple[Decision, bool]] | None = {} if is_plain else None
        """What an ordinary error leads to, by the past, and whether by a reject alone, where neither chance, age, rules
        nor an author's own function have a say: then it is the same for every message."""
        self._is_heard = observer is not SILENT
        self._reporter = Reporter(observer, plan, attempts_max=policy.attempts_max)
        self._acked: Callable[[str, float, int], None] | None = getattr(observer, "acked", None)
        self._notes_acks = self._is_heard and (self._acked is None or bool(getattr(observer, "logs_acks", 0)))
        self.tells_acks = self._notes_acks or self._acked is not None
        """Whether `tell_ack` has anyone to tell, and handlers need to be timed."""

    def settle(
        self,
        delivery: Delivery,
        outcome: Outcome,
        handler_s: float,
        *,
        now_ms: int,
        has_run: bool,
        detached: bool = False,
    ) -> Awaitable[None] | None:
        """Decides, and carries out what can be done at once; the rest is to be awaited, if there is any.

        With `detached` nobody has to wait for a copy that was sent: it is acked when it is confirmed. Raises
        `StaleDelivery`, and so may the rest: then the message comes again.
        """
        session = delivery.session
        is_late = not session.usable or session.queue_is_gone or session.cancelled.done()
        if is_late and delivery.comes_again:
            # Decided now it would leave a copy beside the message itself, which is with the broker again: where a
            # handler outlasts the broker's patience, one more with every run.
            raise StaleDelivery(delivery.delivery_tag, self._queue)
        past = self._pasts.of(delivery)
        decision, by_reject = self._decide(outcome, delivery, past, now_ms)
        if has_run and self._pausing.judge(outcome, decision):
            decision, by_reject = Requeued(pause_ms=0), False
        has_begun = type(outcome) is not Undecodable
        timed_s = handler_s if has_run and has_begun else None
        if is_late:
            decision = self._decide_orphaned(decision, delivery)
            by_reject = False
        if by_reject and not self._executor.is_watched:
            # The commonest retry of the reject loops: no copy is made, so nothing needs to be written down.
            delivery.reject(requeue=False)
            if self._is_heard:
                letter, failure = DeliveryLetter(delivery, self._plan), describe_outcome(outcome, stack=False)
                self._tell(decision, letter, past, failure, handler_s=timed_s)
            return None
        letter = DeliveryLetter(delivery, self._plan)
        # A stack is only wanted on a dead letter, and costs more than everything else here.
        is_last = type(decision) is Parked
        if is_last and has_begun:
            begin_stack_at_handler(outcome)
        failure = describe_outcome(outcome, stack=is_last)
        failed_run = failure if has_run and has_begun else None
        mould = None
        if type(decision) is Parked and not is_late:
            mould = self._mould(decision, letter, past, failure, failed_run, now_ms)
        if mould is None:
            report = _report(letter, past, failure, failed_run, now_ms)
            return self._carry_out(letter, past, decision, report, handler_s=timed_s, is_attempt=has_begun)
        properties = mould.cast(letter, now_ms, self._executor.new_id)
        tell: Callable[[], None] | None = None
        if self._is_heard:
            tell = partial(self._tell, decision, letter, past, failure, handler_s=timed_s, is_attempt=has_begun)
        # In a task that is being cancelled nobody is left to hear of it: its channel is about to close.
        if detached and not _is_cancelled() and self._detached.send(delivery, mould.copy, properties, tell):
            return None
        report = _report(letter, past, failure, failed_run, now_ms)
        return self._copy(letter, past, decision, report, mould.copy, properties, tell)

    def _decide_orphaned(self, decision: Decision, delivery: Delivery) -> Decision:
        """The broker cancelled the consumer while this ran. With the queue its message may be gone, so a copy has to be
        left; or it took longer than 4.3 waits, the message runs again, and a copy that did too would make two of it
        with every run. Where the queue is known to be gone a retry may wait for its return, if nothing drops it."""
        if isinstance(decision, Done | Skip | Parked):
            return decision
        is_gone = delivery.session.queue_is_gone
        if is_gone and isinstance(decision, Retry) and decision.delay_ms > 0 and self._plan.retries_survive_deletion:
            return decision
        return self._orphans_end(delivery)

    def _orphans_end(self, delivery: Delivery) -> Parked:
        is_gone = delivery.session.queue_is_gone
        return Parked(reason=ParkReason.QUEUE_GONE if is_gone else ParkReason.CRASHES)

    async def _park_orphaned(self, letter: DeliveryLetter, past: Past, decision: Parked, report: Report) -> bool:
        """A delivery that can't be settled any more, and may be all there is of its message: parked by a copy. Whether
        it came to that; else its loss was told."""
        delivery = letter.delivery
        copy = self._plan.parking_copy(decision, letter, report)
        if copy is None:
            if self._plan.queue.type != QueueType.STREAM:  # a stream's consumers take nothing from it
                self._executor.note_lost(delivery, "there is no dead-letter exchange to park it in")
            return False
        try:
            return await self._executor.execute(delivery, self._dated((copy, AckDelivery()), letter, report.now_ms))
        except Unsendable as error:
            return await self._park_unsendable(letter, past, decision, report, error)

    async def _copy(
        self,
        letter: DeliveryLetter,
        past: Past,
        decision: Decision,
        report: Report,
        copy: PublishCopy,
        properties: Properties,
        tell: Callable[[], None] | None,
    ) -> None:
        try:
            is_done = await self._executor.execute_copy(letter.delivery, copy, properties)
        except Unsendable as error:
            is_done = await self._park_unsendable(letter, past, decision, report, error)
        if is_done and tell is not None:
            tell()

    async def close(self) -> None:
        """Lets go of copies that are not confirmed and that nobody waits for."""
        await self._detached.close()

    def _mould(
        self,
        decision: Parked,
        letter: DeliveryLetter,
        past: Past,
        failure: Failure | None,
        failed_run: Failure | None,
        now_ms: int,
    ) -> Mould | None:
        """What its parked copy is cast from; None if it has to be made by itself."""
        if self._asks_age or not can_be_cast(letter.delivery, past):
            return None
        kind = Kind(letter.delivery.route, past, decision.reason.value, failure, failed_run is not None)
        mould = self._moulds.find(kind)
        if mould is None:
            report = _report(letter, past, failure, failed_run, now_ms)
            mould = self._moulds.make(kind, self._plan.commands(decision, letter, report), now_ms)
        return mould

    def _decide(self, outcome: Outcome, delivery: Delivery, past: Past, now_ms: int) -> tuple[Decision, bool]:
        """What becomes of it, and whether that is a reject and nothing else."""
        usual = self._usual
        if usual is None or type(outcome) is not Raised or isinstance(outcome.error, Signal):
            return self._decide_anew(outcome, delivery, past, now_ms)
        key = (past.retries, past.must_be_copied)
        known = usual.get(key)
        if known is None:
            known = self._decide_anew(outcome, delivery, past, now_ms)
            if len(usual) < _USUAL_MAX:
                usual[key] = known
        decision, by_reject = known
        if type(decision) is Retry and not by_reject:
            decision = Retry(delay_ms=decision.delay_ms, not_before_ms=now_ms + decision.delay_ms)
        return decision, by_reject

    def _decide_anew(self, outcome: Outcome, delivery: Delivery, past: Past, now_ms: int) -> tuple[Decision, bool]:
        letter = DeliveryLetter(delivery, self._plan)
        age_ms = self._admission.age_ms(letter) if self._asks_age else None
        situation = Situation(retries=past.retries, now_ms=now_ms, age_ms=age_ms, draw=self._draw())
        decision = decide(outcome, situation, self._policy)
        return decision, isinstance(decision, Retry) and self._plan.rejects(decision, letter)

    async def carry_out(self, delivery: Delivery, decision: Decision) -> None:
        """Carries out what was decided without a run. Raises `StaleDelivery`."""
        letter = DeliveryLetter(delivery, self._plan)
        past = self._pasts.of(delivery)
        report = Report(retries=past.retries, now_ms=self._now_ms(), history=read_history(letter))
        await self._carry_out(letter, past, decision, report)

    async def _carry_out(
        self,
        letter: DeliveryLetter,
        past: Past,
        decision: Decision,
        report: Report,
        *,
        handler_s: float | None = None,
        is_attempt: bool = True,
    ) -> None:
        """Carries a decision out, and tells of it if it came to that."""
        if isinstance(decision, Requeued):
            done = await self.give_back(letter.delivery, pause_ms=decision.pause_ms)
        elif isinstance(decision, Parked) and letter.delivery.is_orphaned:
            done = await self._park_orphaned(letter, past, decision, report)
        else:
            commands = self._plan.commands(decision, letter, report)
            if isinstance(decision, Defer):
                commands = _with_deaths(commands, letter)
            try:
                if self._is_rejected_cleaned(decision, past) and isinstance(commands[0], PublishCopy):
                    if self._reads_deaths:
                        await self._clean(letter, commands[0])
                        return
                    commands = (RejectDelivery(),)
                done = await self._executor.execute(letter.delivery, self._dated(commands, letter, report.now_ms))
            except Unsendable as error:
                decision = decision if isinstance(decision, Parked) else Parked(reason=ParkReason.OVERSIZED)
                done = await self._park_unsendable(letter, past, decision, report, error)
            except QueueGone:
                decision = self._orphans_end(letter.delivery)
                done = await self._park_orphaned(letter, past, decision, report)
        if done and self._is_heard:
            self._tell(decision, letter, past, report.failure, handler_s=handler_s, is_attempt=is_attempt)

    def _is_rejected_cleaned(self, decision: Decision, past: Past) -> bool:
        """Whether it is to be rejected with nothing else to do (`retry: false`), but has an x-death of nobody's."""
        plan = self._plan
        is_rejected = plan.routes is None and plan.dead_letters and isinstance(decision, Retry | Parked)
        return is_rejected and past.has_odd_deaths

    async def _clean(self, letter: DeliveryLetter, copy: PublishCopy) -> None:
        """Puts a copy to the queue's end that can be rejected when it has failed too. A consumer that only rejects may
        have no right to publish; then the message stays, since the broker might not survive the reject."""
        delivery = letter.delivery
        is_copied = await self._executor.copy_once(delivery, copy, minds_gone=True)
        how = "replaced by a copy without it" if is_copied else "given back: it can't be copied"
        self._observer.note("runtime.odd_deaths", queue=self._queue, message_id=letter.message_id, how=how)
        if not is_copied:
            await self._executor.pause(_UNSENDABLE_S)
            if not delivery.is_stale:
                self._executor.send_back(delivery)

    async def _park_unsendable(
        self, letter: DeliveryLetter, past: Past, decision: Decision, report: Report, error: Unsendable
    ) -> bool:
        """No copy of it can ever be sent: parked in another way at once, or it would hold its place for nothing.
        Whether it came to that; where there is no other way it is given back after a pause."""
        delivery = letter.delivery
        note = partial(self._observer.note, queue=self._queue, message_id=letter.message_id, why=error.why)
        commands = self._plan.commands(decision, letter, report)
        copy: Command | None = commands[0]
        if delivery.is_orphaned and isinstance(decision, Parked):
            copy = self._plan.parking_copy(decision, letter, report)
        if self._plan.routes is not None and isinstance(copy, PublishCopy) and not error.is_body:
            for header_bytes_max in SIZES:
                made = envelope_of(letter, copy, header_bytes_max=header_bytes_max, new_id=self._executor.new_id)
                try:
                    done = await self._executor.execute_copy(delivery, copy, made.properties, body=made.body)
                except Unsendable as again:
                    error = again
                    continue
                note("runtime.oversized", how="parked in an envelope")
                return done
        if delivery.is_orphaned:
            self._executor.note_lost(delivery, f"no copy of it can be sent: {error.why}")
            return False
        if self._rejects_to_parking and not past.has_odd_deaths:
            note("runtime.oversized", how="rejected to the queue's dead-letter exchange")
            return await self._executor.execute(delivery, (RejectDelivery(),))
        note("runtime.oversized", how="given back: there is nowhere else to keep it")
        await self._executor.pause(_UNSENDABLE_S)
        if not delivery.is_stale:
            self._executor.send_back(delivery)
        return False

    async def give_back(self, delivery: Delivery, *, pause_ms: int = 0) -> bool:
        """Back to the queue after a pause, uncounted; whether it came to that. Raises `StaleDelivery`. What may have no
        queue any more is parked."""
        if delivery.is_orphaned:
            await self._park_given_back(delivery)
            return False
        try:
            return await self._give_back(delivery, pause_ms)
        except QueueGone:
            await self._park_given_back(delivery)
            return False

    async def _park_given_back(self, delivery: Delivery) -> None:
        letter, past = DeliveryLetter(delivery, self._plan), self._pasts.of(delivery)
        report = Report(retries=past.retries, now_ms=self._now_ms(), history=read_history(letter))
        await self._carry_out(letter, past, self._orphans_end(delivery), report)

    async def _give_back(self, delivery: Delivery, pause_ms: int) -> bool:
        letter = DeliveryLetter(delivery, self._plan)
        copy = self._admission.home_copy(letter, deliveries=None)
        if copy is not None:
            await self._executor.pause(min(pause_ms, PAUSE_MS_MAX) / 1000)
            if delivery.is_stale:
                return False
            if await self._executor.copy_once(delivery, copy, minds_gone=True):
                return True
            pause_ms = 0
        report = Report(retries=self._pasts.of(delivery).retries, now_ms=self._now_ms())
        commands = self._plan.commands(Requeued(pause_ms=pause_ms), letter, report)
        return await self._executor.execute(delivery, commands)

    async def give_back_after(self, delivery: Delivery, error: Exception) -> None:
        """Something of ours has failed: say so, wait a moment so that it is no hot loop, and give the message back; one
        that we fail over again and again is parked unread. What can never be sent is parked in another way."""
        if isinstance(error, QueueGone):
            await self._park_given_back(delivery)
            return
        if isinstance(error, Unsendable) and (not delivery.is_stale or delivery.is_orphaned):
            letter, past = DeliveryLetter(delivery, self._plan), self._pasts.of(delivery)
            decision = Parked(reason=ParkReason.OVERSIZED)
            report = Report(retries=past.retries, now_ms=self._now_ms(), history=read_history(letter))
            try:
                if await self._park_unsendable(letter, past, decision, report, error):
                    self._tell(decision, letter, past, None, handler_s=None)
            except ClientError:  # its channel is gone, and it comes again
                pass
            return
        if delivery.is_orphaned:
            self._note_failed(error, how="parked: its queue is gone")
            try:
                await self._park_given_back(delivery)
            except Exception as again:  # noqa: BLE001 - what has failed once may fail again
                if not await self._park_unread(delivery, again):
                    self._executor.note_lost(delivery, f"parking it failed: {type(again).__name__}: {again}")
            return
        is_parked = self._own_failures.is_last(delivery, error) and await self._park_unread(delivery, error)
        self._note_failed(error, how="parked unread" if is_parked else "given back")
        if is_parked:
            return
        await self._executor.pause(_OWN_FAILURE_S)
        if not delivery.is_stale:
            try:
                self._executor.send_back(delivery)
            except ClientError:
                pass

    def _note_failed(self, error: Exception, *, how: str) -> None:
        self._observer.note("runtime.failed", queue=self._queue, error=f"{type(error).__name__}: {error}", how=how)

    async def _park_unread(self, delivery: Delivery, error: Exception) -> bool:
        """Parks a message that we fail over again and again, in an envelope, without reading anything of it; whether it
        came to that."""
        exchange, routing_key = delivery.route
        unread = PlainMessage(queue=self._queue, exchange=exchange, routing_key=routing_key)
        decision, failure = Parked(reason=ParkReason.UNDECODABLE), describe_error(error)
        report = Report(retries=0, now_ms=self._now_ms(), failure=failure)
        copy = self._plan.parking_copy(decision, unread, report)
        try:
            if self._plan.routes is not None and copy is not None:
                made = unread_envelope_of(delivery, copy, new_id=self._executor.new_id)
                is_done = await self._executor.execute_copy(delivery, copy, made.properties, body=made.body)
            elif self._plan.routes is None and self._plan.dead_letters and _DIED not in delivery.header:
                is_done = await self._executor.execute(delivery, (RejectDelivery(),))
            else:
                return False
        except (Unsendable, QueueGone, ClientError):
            return False
        if is_done and self._is_heard:
            self._reporter.tell_unread(decision, delivery, failure)
        return is_done

    def tell_ack(self, delivery: Delivery, handler_s: float) -> None:
        """A handler returned and its delivery was acked."""
        if self._notes_acks:
            letter = DeliveryLetter(delivery, self._plan)
            self._tell(Done(), letter, self._pasts.of(delivery), None, handler_s=handler_s)
        elif self._acked is not None:
            header = delivery.header
            attempt = 1
            if delivery.redelivered or _COUNTED in header or _DIED in header or _COUNTED_BEFORE in header:
                attempt = self._pasts.of(delivery).retries + 1
            self._acked(self._queue, handler_s, attempt)

    def _tell(
        self,
        decision: Decision,
        letter: DeliveryLetter,
        past: Past,
        failure: Failure | None,
        *,
        handler_s: float | None,
        is_attempt: bool = True,
    ) -> None:
        attempt = past.retries + 1 if is_attempt else None
        self._reporter.tell(decision, letter, failure, past.routing_key, attempt, handler_s)

    def _dated(self, commands: tuple[Command, ...], letter: DeliveryLetter, now_ms: int) -> tuple[Command, ...]:
        """With an age budget a message that has no time of its own gets one, with its first copy."""
        if self._policy.age_ms_max is None or self._admission.age_ms(letter) is not None:
            return commands
        seen = {headers.FIRST_SEEN: now_ms}
        return tuple(
            replace(one, set_headers={**one.set_headers, **seen}) if isinstance(one, PublishCopy) else one
            for one in commands
        )


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _report(
    letter: DeliveryLetter, past: Past, failure: Failure | None, failed_run: Failure | None, now_ms: int
) -> Report:
    """What is known now; a run that has failed just now is one attempt more in the history."""
    history = read_history(letter)
    if failed_run is not None:
        history = (*history, Attempt(number=past.retries + 1, at_ms=now_ms, error=failed_run.text))
    return Report(retries=past.retries, now_ms=now_ms, failure=failure, history=history)


def _with_deaths(commands: tuple[Command, ...], letter: DeliveryLetter) -> tuple[Command, ...]:
    """What has not run yet keeps the count of the consumers that may have died on it."""
    counts = {name: letter.header(name) for name in (headers.DELIVERIES, headers.DEATHS_ALONE)}
    deaths = {name: count for name, count in counts.items() if count is not None}
    if not deaths:
        return commands
    return tuple(
        replace(one, set_headers={**one.set_headers, **deaths}) if isinstance(one, PublishCopy) else one
        for one in commands
    )
