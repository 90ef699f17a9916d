"""The settler decides what happens to a delivery after its handler ended, carries it out at the broker and logs it.

Where crashes are counted, a message is requeued by a copy to its queue's end: the broker marks a delivery that it gets
back as redelivered, as if its consumer had crashed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from redrive.client import ClientError, Delivery, StaleDelivery
from redrive.core import (
    NULL_OBSERVER,
    PAUSE_MS_MAX,
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
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.runtime.handler_errors import begin_stack_at_handler
from redrive.runtime.process_context import ProcessContext
from redrive.runtime.queue_pause import QueuePause
from redrive.runtime.settlement.command_executor import CommandExecutor, CopyPublishers, QueueGone, Unsendable
from redrive.runtime.settlement.decision_log import DecisionLog
from redrive.runtime.settlement.detached_copies import DetachedCopies
from redrive.runtime.settlement.internal_failures import InternalFailures
from redrive.runtime.settlement.message_copies import ENVELOPE_HEADER_SIZES, envelope_of, unread_envelope_of
from redrive.runtime.settlement.park_templates import ParkKind, ParkTemplate, ParkTemplates, can_use_template
from redrive.runtime.settlement.retry_state import RetryState, RetryStates
from redrive.topology import MoveBy, QueuePlan, QueueType
from redrive.wire import Properties

_COUNTED, _DIED, _COUNTED_BEFORE = b"x-retry-count", b"x-death", b"x-redrive-attempts-before"
_INTERNAL_FAILURE_S = 1.0
_USUAL_MAX = 1000
_UNSENDABLE_S = 10.0
"""How long a message that can neither be copied nor parked is held before it is requeued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What was found out about a queue and its broker before consuming.

    `has_dead_lettering`: the queue has the dead-letter settings that are declared. `reads_deaths`: the broker continues
    an x-death that a message brings, and may crash on it (before 4.0).
    """

    has_dead_lettering: bool
    reads_deaths: bool


class Settler:
    """Settles the deliveries of one queue."""

    def __init__(
        self,
        plan: QueuePlan,
        policy: RetryPolicy,
        admission: Admission,
        *,
        publishers: CopyPublishers,
        pause: QueuePause,
        broker: BrokerFacts,
        process: ProcessContext,
    ) -> None:
        self.executor = CommandExecutor(plan, publishers, process, requeue=self.requeue)
        self._reads_deaths = broker.reads_deaths
        self._plan = plan
        # In a reject loop a reject is a retry.
        loops = plan.routes is not None and plan.routes.retry_by is MoveBy.REJECT
        self._rejects_to_parking = broker.has_dead_lettering and not loops
        self._queue = plan.name
        self._retry_states = RetryStates(plan)
        self._park_templates = ParkTemplates()
        self._policy = policy
        self.admission = admission
        self._internal_failures = InternalFailures()
        self._detached = DetachedCopies(self.executor, self.requeue_after_failure)
        self._pause = pause
        self._observer = observer = process.observer
        self._now_ms = process.now_ms
        self._draw = process.draw
        self._asks_age = policy.age_ms_max is not None or policy.own is not None
        plain = isinstance(policy.backoff, Fixed | Listed | Linear | Exponential) and not policy.jitter
        is_plain = plain and not policy.rules and not self._asks_age
        self._usual_decisions: dict[tuple[int, bool], tuple[Decision, bool]] | None = {} if is_plain else None
        """The decision for an ordinary error by the retry state, and whether it is a plain reject. None where
        randomness, age, rules or the author's own function matter; without these it is the same for every message."""
        self._is_observed = observer is not NULL_OBSERVER
        self._decision_log = DecisionLog(observer, plan, attempts_max=policy.attempts_max)
        self._acked: Callable[[str, float, int], None] | None = getattr(observer, "acked", None)
        self._logs_acks = self._is_observed and (self._acked is None or bool(getattr(observer, "logs_acks", 0)))
        self.reports_acks = self._logs_acks or self._acked is not None
        """Whether `report_ack` has an effect, so that handlers need to be timed."""

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
        """Decides, and carries out at once what needs no waiting; returns the rest to be awaited, if there is any.

        With `detached` nobody waits for a copy that was sent: its delivery is acked when the broker confirms the copy.
        Raises `StaleDelivery`, and so may the rest: then the message comes again.
        """
        session = delivery.session
        is_late = not session.usable or session.queue_is_gone or session.cancelled.done()
        if is_late and delivery.comes_again:
            # The broker has the message again, so a decision now would leave a copy beside it: one more with every run
            # where a handler takes longer than the consumer timeout.
            raise StaleDelivery(delivery.delivery_tag, self._queue)
        state = self._retry_states.of(delivery)
        decision, by_reject = self._decide(outcome, delivery, state, now_ms)
        if has_run and self._pause.judge(outcome, decision):
            decision, by_reject = Requeued(pause_ms=0), False
        has_begun = type(outcome) is not Undecodable
        timed_s = handler_s if has_run and has_begun else None
        if is_late:
            decision = self._decide_orphan(decision, delivery)
            by_reject = False
        if by_reject and not self.executor.is_watched:
            # The most frequent retry of reject loops: no copy is made, so no headers need to be built.
            delivery.reject(requeue=False)
            if self._is_observed:
                message, failure = DeliveredMessage(delivery, self._plan), describe_outcome(outcome, stack=False)
                self._log(decision, message, state, failure, handler_s=timed_s)
            return None
        message = DeliveredMessage(delivery, self._plan)
        # Only a dead letter carries a stack, and building it costs more than everything else here.
        is_last = type(decision) is Parked
        if is_last and has_begun:
            begin_stack_at_handler(outcome)
        failure = describe_outcome(outcome, stack=is_last)
        failed_run = failure if has_run and has_begun else None
        template = None
        if type(decision) is Parked and not is_late:
            template = self._template(decision, message, state, failure, failed_run, now_ms)
        if template is None:
            report = _report(message, state, failure, failed_run, now_ms)
            return self._carry_out(message, state, decision, report, handler_s=timed_s, is_attempt=has_begun)
        properties = template.fill(message, now_ms, self.executor.new_id)
        log: Callable[[], None] | None = None
        if self._is_observed:
            log = partial(self._log, decision, message, state, failure, handler_s=timed_s, is_attempt=has_begun)
        # Not in a task that is being cancelled: its channel is about to close, so nobody would get the confirm.
        if detached and not _is_cancelled() and self._detached.send(delivery, template.copy, properties, log):
            return None
        report = _report(message, state, failure, failed_run, now_ms)
        return self._copy(message, state, decision, report, template.copy, properties, log)

    def _decide_orphan(self, decision: Decision, delivery: Delivery) -> Decision:
        """The broker cancelled the consumer while the handler ran. Either the queue was deleted and the message with
        it: then a copy has to remain. Or the run took longer than 4.3's consumer timeout: then the message runs again,
        and a retry copy would double it with every run. If the queue is known to be gone, a retry may wait until the
        queue exists again, provided that nothing drops it meanwhile."""
        if isinstance(decision, Done | Skip | Parked):
            return decision
        is_gone = delivery.session.queue_is_gone
        if is_gone and isinstance(decision, Retry) and decision.delay_ms > 0 and self._plan.retries_survive_deletion:
            return decision
        return self._orphan_parked(delivery)

    def _orphan_parked(self, delivery: Delivery) -> Parked:
        is_gone = delivery.session.queue_is_gone
        return Parked(reason=ParkReason.QUEUE_GONE if is_gone else ParkReason.CRASHES)

    async def _park_orphan(
        self, message: DeliveredMessage, state: RetryState, decision: Parked, report: Report
    ) -> bool:
        """Parks a delivery by a copy that can't be settled any more and may be all that is left of its message. False:
        its loss was logged."""
        delivery = message.delivery
        copy = self._plan.parking_copy(decision, message, report)
        if copy is None:
            if self._plan.queue.type != QueueType.STREAM:  # a stream's consumers take nothing from it
                self.executor.note_lost(delivery, "there is no dead-letter exchange to park it in")
            return False
        try:
            return await self.executor.execute(
                delivery, self._with_first_seen((copy, AckDelivery()), message, report.now_ms)
            )
        except Unsendable as error:
            return await self._park_unsendable(message, state, decision, report, error)

    async def _copy(
        self,
        message: DeliveredMessage,
        state: RetryState,
        decision: Decision,
        report: Report,
        copy: PublishCopy,
        properties: Properties,
        log: Callable[[], None] | None,
    ) -> None:
        try:
            is_done = await self.executor.execute_copy(message.delivery, copy, properties)
        except Unsendable as error:
            is_done = await self._park_unsendable(message, state, decision, report, error)
        if is_done and log is not None:
            log()

    async def close(self) -> None:
        """Cancels detached copies that are not confirmed; their deliveries come again."""
        await self._detached.close()

    def _template(
        self,
        decision: Parked,
        message: DeliveredMessage,
        state: RetryState,
        failure: Failure | None,
        failed_run: Failure | None,
        now_ms: int,
    ) -> ParkTemplate | None:
        """The template for its parked copy; None if its copy has to be built by itself."""
        if self._asks_age or not can_use_template(message.delivery, state):
            return None
        kind = ParkKind(message.delivery.route, state, decision.reason.value, failure, failed_run is not None)
        template = self._park_templates.find(kind)
        if template is None:
            report = _report(message, state, failure, failed_run, now_ms)
            template = self._park_templates.make(kind, self._plan.commands(decision, message, report), now_ms)
        return template

    def _decide(self, outcome: Outcome, delivery: Delivery, state: RetryState, now_ms: int) -> tuple[Decision, bool]:
        """The decision, and whether it is a reject and nothing else."""
        usual = self._usual_decisions
        if usual is None or type(outcome) is not Raised or isinstance(outcome.error, Signal):
            return self._decide_anew(outcome, delivery, state, now_ms)
        key = (state.retries, state.must_be_copied)
        known = usual.get(key)
        if known is None:
            known = self._decide_anew(outcome, delivery, state, now_ms)
            if len(usual) < _USUAL_MAX:
                usual[key] = known
        decision, by_reject = known
        if type(decision) is Retry and not by_reject:
            decision = Retry(delay_ms=decision.delay_ms, not_before_ms=now_ms + decision.delay_ms)
        return decision, by_reject

    def _decide_anew(
        self, outcome: Outcome, delivery: Delivery, state: RetryState, now_ms: int
    ) -> tuple[Decision, bool]:
        message = DeliveredMessage(delivery, self._plan)
        age_ms = self.admission.age_ms(message) if self._asks_age else None
        situation = Situation(retries=state.retries, now_ms=now_ms, age_ms=age_ms, draw=self._draw())
        decision = decide(outcome, situation, self._policy)
        return decision, isinstance(decision, Retry) and self._plan.rejects(decision, message)

    async def carry_out(self, delivery: Delivery, decision: Decision) -> None:
        """Carries out a decision that was made without a run. Raises `StaleDelivery`."""
        message = DeliveredMessage(delivery, self._plan)
        state = self._retry_states.of(delivery)
        report = Report(retries=state.retries, now_ms=self._now_ms(), history=read_history(message))
        await self._carry_out(message, state, decision, report)

    async def _carry_out(
        self,
        message: DeliveredMessage,
        state: RetryState,
        decision: Decision,
        report: Report,
        *,
        handler_s: float | None = None,
        is_attempt: bool = True,
    ) -> None:
        """Carries a decision out, and logs it if that succeeded."""
        if isinstance(decision, Requeued):
            done = await self.requeue(message.delivery, pause_ms=decision.pause_ms)
        elif isinstance(decision, Parked) and message.delivery.is_orphaned:
            done = await self._park_orphan(message, state, decision, report)
        else:
            commands = self._plan.commands(decision, message, report)
            if isinstance(decision, Defer):
                commands = _with_crash_counts(commands, message)
            try:
                if self._must_replace_odd_x_death(decision, state) and isinstance(commands[0], PublishCopy):
                    if self._reads_deaths:
                        await self._replace_odd_x_death(message, commands[0])
                        return
                    commands = (RejectDelivery(),)
                done = await self.executor.execute(
                    message.delivery, self._with_first_seen(commands, message, report.now_ms)
                )
            except Unsendable as error:
                decision = decision if isinstance(decision, Parked) else Parked(reason=ParkReason.OVERSIZED)
                done = await self._park_unsendable(message, state, decision, report, error)
            except QueueGone:
                decision = self._orphan_parked(message.delivery)
                done = await self._park_orphan(message, state, decision, report)
        if done and self._is_observed:
            self._log(decision, message, state, report.failure, handler_s=handler_s, is_attempt=is_attempt)

    def _must_replace_odd_x_death(self, decision: Decision, state: RetryState) -> bool:
        """Whether it is to be rejected and nothing else (`retry: false`), but has an x-death that no broker wrote."""
        plan = self._plan
        is_rejected = plan.routes is None and plan.dead_letters and isinstance(decision, Retry | Parked)
        return is_rejected and state.has_odd_deaths

    async def _replace_odd_x_death(self, message: DeliveredMessage, copy: PublishCopy) -> None:
        """Replaces the message by a copy at the queue's end that can be rejected safely once it has failed too. A
        consumer that only rejects may have no right to publish. Then the message is requeued, because the reject might
        crash the broker."""
        delivery = message.delivery
        is_copied = await self.executor.copy_once(delivery, copy, raise_if_gone=True)
        how = "replaced by a copy without it" if is_copied else "requeued: it can't be copied"
        self._observer.note("runtime.odd_deaths", queue=self._queue, message_id=message.message_id, how=how)
        if not is_copied:
            await self.executor.pause(_UNSENDABLE_S)
            if not delivery.is_stale:
                self.executor.requeue_plainly(delivery)

    async def _park_unsendable(
        self, message: DeliveredMessage, state: RetryState, decision: Decision, report: Report, error: Unsendable
    ) -> bool:
        """No copy of it can ever be sent, so it is parked in another way at once: in an envelope, or by a reject.
        False: its loss was logged, or there is no other way and it was requeued after a pause."""
        delivery = message.delivery
        note = partial(self._observer.note, queue=self._queue, message_id=message.message_id, why=error.why)
        commands = self._plan.commands(decision, message, report)
        copy: Command | None = commands[0]
        if delivery.is_orphaned and isinstance(decision, Parked):
            copy = self._plan.parking_copy(decision, message, report)
        if self._plan.routes is not None and isinstance(copy, PublishCopy) and not error.is_body:
            for header_bytes_max in ENVELOPE_HEADER_SIZES:
                made = envelope_of(message, copy, header_bytes_max=header_bytes_max, new_id=self.executor.new_id)
                try:
                    done = await self.executor.execute_copy(delivery, copy, made.properties, body=made.body)
                except Unsendable as again:
                    error = again
                    continue
                note("runtime.oversized", how="parked in an envelope")
                return done
        if delivery.is_orphaned:
            self.executor.note_lost(delivery, f"no copy of it can be sent: {error.why}")
            return False
        if self._rejects_to_parking and not state.has_odd_deaths:
            note("runtime.oversized", how="rejected to the queue's dead-letter exchange")
            return await self.executor.execute(delivery, (RejectDelivery(),))
        note("runtime.oversized", how="requeued: there is nowhere else to keep it")
        await self.executor.pause(_UNSENDABLE_S)
        if not delivery.is_stale:
            self.executor.requeue_plainly(delivery)
        return False

    async def requeue(self, delivery: Delivery, *, pause_ms: int = 0) -> bool:
        """Requeues the delivery after a pause, not counted; True if it was. Raises `StaleDelivery`. A delivery whose
        queue may be gone is parked instead."""
        if delivery.is_orphaned:
            await self._park_instead_of_requeue(delivery)
            return False
        try:
            return await self._requeue(delivery, pause_ms)
        except QueueGone:
            await self._park_instead_of_requeue(delivery)
            return False

    async def _park_instead_of_requeue(self, delivery: Delivery) -> None:
        message, state = DeliveredMessage(delivery, self._plan), self._retry_states.of(delivery)
        report = Report(retries=state.retries, now_ms=self._now_ms(), history=read_history(message))
        await self._carry_out(message, state, self._orphan_parked(delivery), report)

    async def _requeue(self, delivery: Delivery, pause_ms: int) -> bool:
        message = DeliveredMessage(delivery, self._plan)
        copy = self.admission.own_queue_copy(message, deliveries=None)
        if copy is not None:
            await self.executor.pause(min(pause_ms, PAUSE_MS_MAX) / 1000)
            if delivery.is_stale:
                return False
            if await self.executor.copy_once(delivery, copy, raise_if_gone=True):
                return True
            pause_ms = 0
        report = Report(retries=self._retry_states.of(delivery).retries, now_ms=self._now_ms())
        commands = self._plan.commands(Requeued(pause_ms=pause_ms), message, report)
        return await self.executor.execute(delivery, commands)

    async def requeue_after_failure(self, delivery: Delivery, error: Exception) -> None:
        """After an error of our own: logs it, waits a moment so that it is no hot loop, and requeues the message. One
        that we fail over again and again is parked unread. One that can never be sent is parked in another way."""
        if isinstance(error, QueueGone):
            await self._park_instead_of_requeue(delivery)
            return
        if isinstance(error, Unsendable) and (not delivery.is_stale or delivery.is_orphaned):
            message, state = DeliveredMessage(delivery, self._plan), self._retry_states.of(delivery)
            decision = Parked(reason=ParkReason.OVERSIZED)
            report = Report(retries=state.retries, now_ms=self._now_ms(), history=read_history(message))
            try:
                if await self._park_unsendable(message, state, decision, report, error):
                    self._log(decision, message, state, None, handler_s=None)
            except ClientError:  # its channel is gone, and it comes again
                pass
            return
        if delivery.is_orphaned:
            self._note_failed(error, how="parked: its queue is gone")
            try:
                await self._park_instead_of_requeue(delivery)
            except Exception as again:  # noqa: BLE001 - what has failed once may fail again
                if not await self._park_unread(delivery, again):
                    self.executor.note_lost(delivery, f"parking it failed: {type(again).__name__}: {again}")
            return
        is_parked = self._internal_failures.is_last(delivery, error) and await self._park_unread(delivery, error)
        self._note_failed(error, how="parked unread" if is_parked else "requeued")
        if is_parked:
            return
        await self.executor.pause(_INTERNAL_FAILURE_S)
        if not delivery.is_stale:
            try:
                self.executor.requeue_plainly(delivery)
            except ClientError:
                pass

    def _note_failed(self, error: Exception, *, how: str) -> None:
        self._observer.note("runtime.failed", queue=self._queue, error=f"{type(error).__name__}: {error}", how=how)

    async def _park_unread(self, delivery: Delivery, error: Exception) -> bool:
        """Parks a message that we fail over again and again, in an envelope, without reading anything of it; True if it
        was parked."""
        exchange, routing_key = delivery.route
        unread = PlainMessage(queue=self._queue, exchange=exchange, routing_key=routing_key)
        decision, failure = Parked(reason=ParkReason.UNDECODABLE), describe_error(error)
        report = Report(retries=0, now_ms=self._now_ms(), failure=failure)
        copy = self._plan.parking_copy(decision, unread, report)
        try:
            if self._plan.routes is not None and copy is not None:
                made = unread_envelope_of(delivery, copy, new_id=self.executor.new_id)
                is_done = await self.executor.execute_copy(delivery, copy, made.properties, body=made.body)
            elif self._plan.routes is None and self._plan.dead_letters and _DIED not in delivery.header:
                is_done = await self.executor.execute(delivery, (RejectDelivery(),))
            else:
                return False
        except (Unsendable, QueueGone, ClientError):
            return False
        if is_done and self._is_observed:
            self._decision_log.note_unread(decision, delivery, failure)
        return is_done

    def report_ack(self, delivery: Delivery, handler_s: float) -> None:
        """Reports that a handler returned and its delivery was acked."""
        if self._logs_acks:
            message = DeliveredMessage(delivery, self._plan)
            self._log(Done(), message, self._retry_states.of(delivery), None, handler_s=handler_s)
        elif self._acked is not None:
            header = delivery.header
            attempt = 1
            if delivery.redelivered or _COUNTED in header or _DIED in header or _COUNTED_BEFORE in header:
                attempt = self._retry_states.of(delivery).retries + 1
            self._acked(self._queue, handler_s, attempt)

    def _log(
        self,
        decision: Decision,
        message: DeliveredMessage,
        state: RetryState,
        failure: Failure | None,
        *,
        handler_s: float | None,
        is_attempt: bool = True,
    ) -> None:
        attempt = state.retries + 1 if is_attempt else None
        self._decision_log.note(decision, message, failure, state.routing_key, attempt, handler_s)

    def _with_first_seen(
        self, commands: tuple[Command, ...], message: DeliveredMessage, now_ms: int
    ) -> tuple[Command, ...]:
        """Where `age_ms_max` is set, a message without a timestamp gets the time on its first copy."""
        if self._policy.age_ms_max is None or self.admission.age_ms(message) is not None:
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
    message: DeliveredMessage, state: RetryState, failure: Failure | None, failed_run: Failure | None, now_ms: int
) -> Report:
    """The report on a delivery; a run that has just failed is one more attempt in the history."""
    history = read_history(message)
    if failed_run is not None:
        history = (*history, Attempt(number=state.retries + 1, at_ms=now_ms, error=failed_run.text))
    return Report(retries=state.retries, now_ms=now_ms, failure=failure, history=history)


def _with_crash_counts(commands: tuple[Command, ...], message: DeliveredMessage) -> tuple[Command, ...]:
    """A message that has not run yet keeps the count of the consumers that may have crashed on it."""
    counts = {name: message.header(name) for name in (headers.DELIVERIES, headers.DEATHS_ALONE)}
    deaths = {name: count for name, count in counts.items() if count is not None}
    if not deaths:
        return commands
    return tuple(
        replace(one, set_headers={**one.set_headers, **deaths}) if isinstance(one, PublishCopy) else one
        for one in commands
    )
