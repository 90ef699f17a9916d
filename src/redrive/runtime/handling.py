"""One delivery from arrival to settling: admitted or not, decoded, handled, decided, carried out.

The plain case (a handler that returns, then an ack) is written for speed: no header is decoded, nothing is noted unless
someone listens. Whether a delivery needs a second look is asked of its raw bytes first.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from redrive.client import ClientError, Delivery, StaleDelivery
from redrive.core import (
    SILENT,
    Answered,
    Attempt,
    Crashed,
    Decision,
    Done,
    GiveBack,
    Observer,
    Outcome,
    Raised,
    Report,
    Returned,
    TimedOut,
    Undecodable,
    count_retries,
    decide,
    describe_outcome,
    outcome_of,
    read_history,
)
from redrive.core import Situation as DecisionSituation
from redrive.runtime.admission import Admission
from redrive.runtime.app import Consumption
from redrive.runtime.calling import Call, OutOfTime
from redrive.runtime.executing import Executor
from redrive.runtime.message import Message
from redrive.runtime.outlet import Outlet
from redrive.runtime.pausing import Pausing
from redrive.runtime.reporting import describe_decision
from redrive.runtime.solitude import Solitude
from redrive.runtime.views import DeliveryLetter

_OURS = b"x-redrive-"
_FOREIGN = b"x-original-queue"
_COUNTED, _DIED, _COUNTED_BEFORE = b"x-retry-count", b"x-death", b"x-redrive-attempts-before"
_OUTCOMES = (Returned, Raised, Answered, TimedOut, Undecodable, Crashed)
_UNLIMITED = 1 << 60
_OWN_FAILURE_S = 1.0


class Handling:
    """Handles the deliveries of one queue."""

    def __init__(
        self,
        consumption: Consumption,
        call: Call,
        *,
        concurrency: int | None,
        executor: Executor,
        outlet: Outlet,
        observer: Observer,
        solitude: Solitude,
        pausing: Pausing,
        now_ms: Callable[[], int],
        draw: Callable[[], float],
    ) -> None:
        self._plan = consumption.plan
        self._queue = consumption.plan.name
        self._policy = consumption.policy
        self._read = consumption.reader
        self._call = call
        self._timeout_ms = consumption.options.timeout_ms
        self._needs_message = consumption.signature.takes_message or bool(consumption.middleware)
        self._executor = executor
        self._outlet = outlet
        self._observer = observer
        self._solitude = solitude
        self._pausing = pausing
        self._now_ms = now_ms
        self._draw = draw
        self._admission = Admission(consumption.plan, crashes_max=consumption.options.crashes_max, now_ms=now_ms)
        self._early_mark = self._admission.early_mark
        self._free = _UNLIMITED if concurrency is None else concurrency
        self._is_limited = concurrency is not None or self._early_mark is not None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._acked: Callable[[str, float, int], None] | None = getattr(observer, "acked", None)
        self._notes_acks = observer is not SILENT and (self._acked is None or bool(getattr(observer, "logs_acks", 0)))
        self._timed = self._notes_acks or self._acked is not None
        self.waiting = 0
        """Deliveries that have not begun and wait for their turn."""
        # A coroutine function that takes the body alone is called without anything between.
        signature, wrapped = consumption.signature, bool(consumption.middleware) or self._timeout_ms is not None
        self._handler = None if wrapped or signature.takes_message or not signature.is_async else consumption.handler
        self._obstructed = self._is_limited
        self._fast = self._fast_path()

    @property
    def handle(self) -> Callable[[Delivery], Awaitable[None]]:
        """The client's handler: a coroutine function that never raises but when cancelled."""
        return self._fast

    def look(self) -> None:
        """Whether every delivery needs a second look now: one waits, is counted or paused, or wants to be alone."""
        self._obstructed = (
            self._is_limited
            or bool(self._pausing.failures)
            or self._pausing.is_paused
            or self._solitude.is_wanted
            or bool(self._waiters)
        )

    def _fast_path(self) -> Callable[[Delivery], Awaitable[None]]:
        """What most deliveries take: read, handler, ack. A closure, because every attribute it saves counts."""
        read, call, handler = self._read, self._call, self._handler
        needs_message, timed, perf_counter = self._needs_message, self._timed, time.perf_counter
        plain = handler is not None

        async def fast(delivery: Delivery) -> None:
            header = delivery.header
            if self._obstructed or delivery.redelivered or _OURS in header or _FOREIGN in header:
                await self._slow(delivery)
                return
            began_s = perf_counter() if timed else 0.0
            try:
                body: Any = delivery.body if read is None else read(delivery.body)
            except Exception as error:  # noqa: BLE001 - a codec may raise anything; all of it means undecodable
                await self._end(delivery, Undecodable(error), began_s)
                return
            try:
                if plain:
                    result = await handler(body)  # type: ignore[misc]
                else:
                    result = await call(body, self._message(delivery) if needs_message else None)
            except BaseException as error:  # noqa: BLE001 - the handler boundary; what is not its own is raised again
                await self._end(delivery, self._outcome(error), began_s)
                return
            if result is not None and isinstance(result, _OUTCOMES):
                await self._end(delivery, result, began_s)
                return
            try:
                delivery.ack()
            except ClientError:  # stale: its channel is gone, and it comes again
                return
            if timed:
                self._tell_ack(delivery, perf_counter() - began_s)

        return fast

    async def _slow(self, delivery: Delivery) -> None:
        """The same, for a delivery that needs a second look."""
        try:
            header = delivery.header
            doubtful = delivery.redelivered or _OURS in header or _FOREIGN in header or self._may_be_early(delivery)
            if doubtful and not await self._admit(delivery):
                return
            if self._is_free or await self._wait_turn(delivery):
                await self._run_and_settle(delivery)
        except StaleDelivery:
            pass  # its channel is gone, and it comes again
        except Exception as error:  # noqa: BLE001 - no delivery may be left in hand for ever
            await self._give_back_after(delivery, error)

    async def _end(self, delivery: Delivery, outcome: Outcome, began_s: float) -> None:
        try:
            await self._settle(delivery, outcome, time.perf_counter() - began_s if began_s else 0.0, has_run=True)
        except StaleDelivery:
            pass
        except Exception as error:  # noqa: BLE001 - no delivery may be left in hand for ever
            await self._give_back_after(delivery, error)

    def wake(self) -> None:
        """Something has changed: those who wait for their turn look again."""
        self.look()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # Before the handler

    @property
    def _is_free(self) -> bool:
        return self._free > 0 and not (self._waiters or self._solitude.is_wanted or self._pausing.is_paused)

    def _may_be_early(self, delivery: Delivery) -> bool:
        mark = self._early_mark
        return mark is not None and (mark in delivery.body or mark in delivery.header)

    async def _admit(self, delivery: Delivery) -> bool:
        """Whether the handler is to run now; if not, the delivery has been seen to."""
        letter = DeliveryLetter(delivery, self._queue)
        verdict = self._admission.judge(letter, delivery.body)
        if verdict is None:
            return True
        solitude = self._solitude
        match verdict:
            case Admission.Alone(deliveries=deliveries) if not solitude.is_wanted:
                async with solitude.alone() as is_alone:
                    if not delivery.is_stale and is_alone:
                        await self._run_and_settle(delivery)
                        return False
                await self._replace(delivery, letter, deliveries)
            case Admission.Alone(deliveries=deliveries) | Admission.Replace(deliveries=deliveries):
                # Without a copy (nobody may publish to the queue) it can't be counted, and is handled as it is.
                return not await self._replace(delivery, letter, deliveries)
            case Crashed() | Answered():
                await self._settle(delivery, verdict, 0.0, has_run=False)
            case _:
                await self._carry_out(delivery, letter, verdict, None, 0.0, retries=None, attempts=())
        return False

    async def _replace(self, delivery: Delivery, letter: DeliveryLetter, deliveries: int | None) -> bool:
        copy = self._admission.home_copy(letter, deliveries=deliveries)
        return copy is not None and await self._executor.copy_once(delivery, copy)

    async def _wait_turn(self, delivery: Delivery) -> bool:
        """Until it may begin, in the order of arrival; False if it was given back or its channel is gone."""
        while True:
            if delivery.is_stale:
                return False
            if self._pausing.is_paused and not self._pausing.is_probing:
                await self._give_back(delivery)
                return False
            if self._free > 0 and not self._solitude.is_wanted:
                return True
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self.look()
            self.waiting += 1
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._let_next()
                raise
            finally:
                self.waiting -= 1
                self.look()

    def _let_next(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # The handler

    async def _run_and_settle(self, delivery: Delivery) -> None:
        began_s = time.perf_counter() if self._timed else 0.0
        self._free -= 1
        try:
            outcome = await self._run(delivery)
        finally:
            self._free += 1
            if self._waiters:
                self._let_next()
        handler_s = time.perf_counter() - began_s if self._timed else 0.0
        if outcome is not None:
            await self._settle(delivery, outcome, handler_s, has_run=True)
            return
        delivery.ack()
        if self._pausing.failures or self._pausing.is_paused:
            self._pausing.succeeded()
            self.look()
        if self._timed:
            self._tell_ack(delivery, handler_s)

    async def _run(self, delivery: Delivery) -> Outcome | None:
        """Runs the handler; None if it simply returned."""
        read = self._read
        try:
            body: Any = delivery.body if read is None else read(delivery.body)
        except Exception as error:  # noqa: BLE001 - a codec may raise anything; all of it means undecodable
            return Undecodable(error)
        try:
            message = self._message(delivery) if self._needs_message else None
            result = await self._call(body, message)
        except BaseException as error:  # noqa: BLE001 - the handler boundary; what is not its own is raised again
            return self._outcome(error)
        return result if isinstance(result, _OUTCOMES) else None

    def _outcome(self, error: BaseException) -> Outcome:
        """How a handler that raised has ended. Raises it again if it is not the handler's."""
        match error:
            case Exception():
                _begin_stack_at_handler(error)
                return outcome_of(error, now_ms=self._now_ms())
            case OutOfTime():
                return TimedOut(after_ms=self._timeout_ms or 0)
            case SystemExit():  # a library that gives up on one message must not take the others with it
                return Raised(error)
            case asyncio.CancelledError():
                task = asyncio.current_task()
                if task is None or not task.cancelling():  # else it is we who are ended, and the delivery goes back
                    return Raised(error)
        raise error

    def _message(self, delivery: Delivery) -> Message:
        return Message(delivery, self._plan, self._outlet, self._policy.attempts_max)

    # After the handler

    async def _settle(self, delivery: Delivery, outcome: Outcome, handler_s: float, *, has_run: bool) -> None:
        letter = DeliveryLetter(delivery, self._queue)
        retries = count_retries(letter, self._plan.counted_by)
        now_ms = self._now_ms()
        situation = DecisionSituation(
            retries=retries, now_ms=now_ms, age_ms=self._admission.age_ms(letter), draw=self._draw()
        )
        decision = decide(outcome, situation, self._policy)
        if has_run:
            if self._pausing.judge(outcome, decision):
                decision = GiveBack(pause_ms=0)
            self.look()
        failure = describe_outcome(outcome)
        attempts: tuple[Attempt, ...] = ()
        if has_run and failure is not None and not isinstance(outcome, Undecodable):
            attempts = (Attempt(number=retries + 1, at_ms=now_ms, error=failure.text),)
        await self._carry_out(delivery, letter, decision, outcome, handler_s, retries=retries, attempts=attempts)

    async def _carry_out(
        self,
        delivery: Delivery,
        letter: DeliveryLetter,
        decision: Decision,
        outcome: Outcome | None,
        handler_s: float,
        *,
        retries: int | None,
        attempts: tuple[Attempt, ...],
    ) -> None:
        if retries is None:
            retries = count_retries(letter, self._plan.counted_by)
        failure = None if outcome is None else describe_outcome(outcome)
        report = Report(
            retries=retries,
            now_ms=self._now_ms(),
            failure=failure,
            history=(*read_history(letter), *attempts) if attempts else read_history(letter),
        )
        if isinstance(decision, GiveBack):
            done = await self._give_back(delivery, pause_ms=decision.pause_ms, report=report)
        else:
            done = await self._executor.execute(delivery, self._plan.commands(decision, letter, report))
        if done:
            self._observer.note(
                "runtime.decided",
                **describe_decision(
                    decision,
                    letter,
                    plan=self._plan,
                    failure=failure,
                    attempt=retries + 1,
                    attempts_max=self._policy.attempts_max,
                    handler_s=handler_s,
                ),
            )

    async def _give_back(self, delivery: Delivery, *, pause_ms: int = 0, report: Report | None = None) -> bool:
        """Back to the queue, uncounted. Where crashes are counted a copy goes, because a return would look like one."""
        letter = DeliveryLetter(delivery, self._queue)
        copy = self._admission.home_copy(letter, deliveries=None)
        if copy is not None:
            await self._executor.pause(pause_ms / 1000)
            if delivery.is_stale:
                return False
            if await self._executor.copy_once(delivery, copy):
                return True
            pause_ms = 0
        if report is None:
            report = Report(retries=count_retries(letter, self._plan.counted_by), now_ms=self._now_ms())
        commands = self._plan.commands(GiveBack(pause_ms=pause_ms), letter, report)
        return await self._executor.execute(delivery, commands)

    async def _give_back_after(self, delivery: Delivery, error: Exception) -> None:
        """Something of ours has failed: say so, wait a moment so that it is no hot loop, and give the message back."""
        self._observer.note("runtime.failed", queue=self._queue, error=f"{type(error).__name__}: {error}")
        await self._executor.pause(_OWN_FAILURE_S)
        if not delivery.is_stale:
            try:
                delivery.nack(requeue=True)
            except ClientError:
                pass

    def _tell_ack(self, delivery: Delivery, handler_s: float) -> None:
        header = delivery.header
        attempt = 1
        letter = None
        if delivery.redelivered or _COUNTED in header or _DIED in header or _COUNTED_BEFORE in header:
            letter = DeliveryLetter(delivery, self._queue)
            attempt = count_retries(letter, self._plan.counted_by) + 1
        if self._notes_acks:
            fields = describe_decision(
                Done(),
                letter or DeliveryLetter(delivery, self._queue),
                plan=self._plan,
                failure=None,
                attempt=attempt,
                attempts_max=self._policy.attempts_max,
                handler_s=handler_s,
            )
            self._observer.note("runtime.decided", **fields)
        elif self._acked is not None:
            self._acked(self._queue, handler_s, attempt)


def _begin_stack_at_handler(error: BaseException) -> None:
    """Leaves our own frames out of what is kept of the stack: its first line is the handler's."""
    frame = error.__traceback__
    while frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith("redrive.runtime."):
        frame = frame.tb_next
    if frame is not None:
        error.__traceback__ = frame
