"""One delivery from arrival to settling: admitted or not, decoded, handled, decided, carried out.

The plain case (a handler that returns, then an ack) is written for speed: no header is decoded, nothing is noted unless
someone listens. Whether a delivery needs a second look is asked of its raw bytes first.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redrive.client import ClientError, Delivery, StaleDelivery
from redrive.core import (
    Answered,
    Crashed,
    Observer,
    Outcome,
    Raised,
    Signal,
    Succeeded,
    TimedOut,
    Undecodable,
    headers,
)
from redrive.runtime.admission import Admission
from redrive.runtime.app import Consumption
from redrive.runtime.calling import Call
from redrive.runtime.ending import Ending
from redrive.runtime.executing import Executor
from redrive.runtime.letting_go import LettingGo
from redrive.runtime.message import Message
from redrive.runtime.outlet import Outlet
from redrive.runtime.own_losses import OwnFault, OwnLosses
from redrive.runtime.pausing import Pausing
from redrive.runtime.raising import Untouched, raise_later, read_error
from redrive.runtime.run_records import LastRun, RunRecord, RunRecords, delivery_key
from redrive.runtime.solitude import Solitude
from redrive.runtime.turns import Turns
from redrive.runtime.views import DeliveryLetter

_OURS = b"x-redrive-"
_FOREIGN = b"x-original-queue"
_OUTCOMES = (Succeeded, Raised, Answered, TimedOut, Undecodable, Crashed)
_ENDINGS = (*_OUTCOMES, Signal)
"""What a handler may return to say how it has ended. `return Park(…)` is taken for the raise it was meant to be: an ack
would lose what its author wanted to keep."""
_SETTLED_ALONE_S = 5.0
"""How long others wait for the settling of what has run alone. It may take long: its copy may find no queue."""
_ROUND_S = 0.1
"""How long a delivery is held that wants to be alone while another one is, where no queue can hold it."""


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
        own_losses: OwnLosses,
        has_dead_letters: bool = False,
        reads_deaths: bool = True,
        records: RunRecords | None = None,
        record: RunRecord | None = None,
    ) -> None:
        plan, options, signature = consumption.plan, consumption.options, consumption.signature
        self._plan = plan
        self._queue = plan.name
        self._attempts_max = consumption.policy.attempts_max
        self._read = consumption.reader
        self._call = call
        self._timeout_ms = options.timeout_ms
        self._needs_message = signature.takes_message or bool(consumption.middleware)
        # A coroutine function that takes the body alone is called without anything between.
        is_plain = signature.is_async and options.timeout_ms is None and not self._needs_message
        self._handler = consumption.handler if is_plain else None
        self._executor = executor
        self._outlet = outlet
        self._solitude = solitude
        self._pausing = pausing
        self._now_ms = now_ms
        self._observer = observer
        self._admission = Admission(plan, crashes_max=options.crashes_max, now_ms=now_ms)
        self._ending = Ending(
            plan,
            consumption.policy,
            self._admission,
            executor=executor,
            pausing=pausing,
            observer=observer,
            now_ms=now_ms,
            draw=draw,
            has_dead_letters=has_dead_letters,
            reads_deaths=reads_deaths,
        )
        self._letting_go = LettingGo(plan.name, self._ending, executor, observer)
        self._turns = Turns(concurrency)
        self._own_losses = own_losses
        self._records = records
        self._record = record
        self._begin: Callable[[Delivery], int] | None = None
        self._end_run: Callable[[int], None] | None = None
        if record is not None:
            self._begin, self._end_run = record.recorder(plan.name)
        self.lost_lately: Callable[[], bool] = lambda: False
        """Whether this process has lost its channel a moment ago; the subscription knows."""
        self._early_mark = self._admission.early_mark
        self._needs_id = options.needs_id
        self._obstructed = False
        self._look()
        self._fast = self._fast_path()

    @property
    def can_step_aside(self) -> bool:
        """Whether what must not be in hand now can go to a wait queue."""
        return self._admission.can_step_aside

    @property
    def waiting(self) -> int:
        """Deliveries that have not begun and wait for their turn."""
        return self._turns.waiting

    @property
    def held(self) -> int:
        """Deliveries whose handlers have ended and whose copies the broker does not take."""
        return self._executor.held

    @property
    def handle(self) -> Callable[[Delivery], Awaitable[None]]:
        """The client's handler: a coroutine function that never raises but when cancelled."""
        return self._fast

    async def close(self) -> None:
        """Lets go of copies that are not confirmed and that nobody waits for. Their deliveries have been given back."""
        await self._ending.close()

    def wake(self) -> None:
        """Something has changed: those who wait for their turn look again."""
        self._look()
        self._turns.wake()

    def _look(self) -> None:
        """Whether every delivery needs a second look now: turns are counted, it is paused, or one wants to be alone."""
        self._obstructed = (
            self._turns.is_limited
            or self._early_mark is not None
            or self._needs_id
            or bool(self._pausing.failures)
            or self._pausing.is_paused
            or self._solitude.is_wanted
        )

    def _fast_path(self) -> Callable[[Delivery], Awaitable[None]]:
        """What most deliveries take: read, handler, ack. A closure, because every attribute it saves counts."""
        read, call, handler = self._read, self._call, self._handler
        needs_message, timed, perf_counter = self._needs_message, self._ending.tells_acks, time.perf_counter
        plain = handler is not None
        begin, end = self._begin, self._end_run

        async def fast(delivery: Delivery) -> None:
            header = delivery.header
            if self._obstructed or delivery.redelivered or _OURS in header or _FOREIGN in header:
                await self._slow(delivery)
                return
            began_s = perf_counter() if timed else 0.0
            slot = 0 if begin is None else begin(delivery)
            try:
                body: Any = delivery.body if read is None else read(delivery.body)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - a codec may raise anything; all of it means undecodable
                if end is not None:
                    end(slot)
                rest = self._end(delivery, Undecodable(error), began_s)
                if rest is not None:
                    await rest
                return
            try:
                if plain:
                    result = await handler(body)  # type: ignore[misc]
                else:
                    result = await call(body, self._message(delivery) if needs_message else None)
            except BaseException as error:  # noqa: BLE001 - the handler boundary; what is not its own is raised again
                if end is not None:
                    end(slot)
                rest = self._end(delivery, error, began_s)
                if rest is not None:
                    await rest
                return
            if end is not None:
                end(slot)
            if result is not None and isinstance(result, _ENDINGS):
                rest = self._end(delivery, result, began_s)
                if rest is not None:
                    await rest
                return
            try:
                delivery.ack()
            except ClientError:  # stale: its channel is gone, and it comes again
                self._letting_go.note_stale(delivery)
                return
            if self._obstructed:
                self._succeeded()
            if timed:
                self._ending.tell_ack(delivery, perf_counter() - began_s)

        return fast

    async def _slow(self, delivery: Delivery) -> None:
        """The same, for a delivery that needs a second look."""
        await self._guard(delivery, self._admit_and_run(delivery))

    async def _admit_and_run(self, delivery: Delivery) -> None:
        header = delivery.header
        doubtful = delivery.redelivered or _OURS in header or _FOREIGN in header or self._may_be_early(delivery)
        if doubtful and not await self._admit(delivery):
            return
        if self._needs_id and await self._identify(delivery):
            return
        if await self._take_turn(delivery):
            await self._run_and_settle(delivery)

    def _end(self, delivery: Delivery, ended: Outcome | BaseException, began_s: float) -> Awaitable[None] | None:
        """Ends a run of the fast path that did not simply return; the rest is to be awaited, if there is any."""
        try:
            handler_s = time.perf_counter() - began_s if began_s else 0.0
            now_ms = self._now_ms()
            outcome = self._outcome(ended, now_ms) if isinstance(ended, BaseException) else ended
            rest = self._ending.settle(delivery, outcome, handler_s, now_ms=now_ms, has_run=True, detached=True)
        except BaseException as error:  # noqa: BLE001 - seen to where it can be waited for
            rest = raise_later(error)
        if rest is not None:
            return self._guard(delivery, rest)
        if self._pausing.failures or self._obstructed:
            self._look()
        return None

    async def _guard(self, delivery: Delivery, work: Awaitable[None]) -> None:
        """Awaits what a delivery needs, and sees to it if that fails. Raises what is not the handler's own."""
        try:
            await work
        except StaleDelivery:
            self._letting_go.note_stale(delivery)  # its channel is gone, and it comes again
        except Exception as error:  # noqa: BLE001 - no delivery may be left in hand for ever
            await self._ending.give_back_after(delivery, error)
        except Untouched:
            await self.hand_back(delivery)
            raise
        except BaseException:
            self._letting_go.let_go_soon(delivery)
            raise
        finally:
            if self._pausing.failures or self._obstructed:
                self._look()

    async def hand_back(self, delivery: Delivery) -> None:
        """Its handler has not ended, and won't."""
        await self._letting_go.hand_back(delivery)

    # Before the handler

    def _may_be_early(self, delivery: Delivery) -> bool:
        mark = self._early_mark
        return mark is not None and (mark in delivery.body or mark in delivery.header)

    async def _admit(self, delivery: Delivery) -> bool:
        """Whether the handler is to run now; if not, the delivery has been seen to."""
        letter = DeliveryLetter(delivery, self._plan)
        fault = self._own_losses.judge(self._queue, delivery) if delivery.redelivered and self.lost_lately() else None
        last_run = LastRun.UNSEEN
        if self._admission.had_last_chance(letter):
            last_run = await self._find_last_run(delivery, fault)
        verdict = self._admission.judge(letter, delivery.body, after_own_loss=fault is OwnFault.NONE, last_run=last_run)
        if verdict is None:
            if letter.header(headers.DELIVERIES) is not None:
                await self._solitude.wait_replaced()
            return True
        solitude = self._solitude
        match verdict:
            case Admission.Alone(deliveries=deliveries, alone=weight) if not solitude.is_wanted:
                if await self._run_alone(delivery):
                    return False
                return not delivery.is_stale and not await self._replace(
                    delivery, letter, deliveries, weight, aside=True
                )
            case Admission.Alone(deliveries=deliveries, alone=weight):
                if self._record is not None:
                    self._record.hold(delivery_key(self._queue, delivery))
                if not self.can_step_aside:
                    # Its copy comes back at once: without a pause it would go round as fast as the broker can.
                    await self._executor.pause(_ROUND_S)
                return not delivery.is_stale and not await self._replace(
                    delivery, letter, deliveries, weight, aside=True
                )
            case Admission.Replace(deliveries=deliveries, alone=weight):
                # Without a copy (nobody may publish to the queue) it can't be counted, and is handled as it is.
                return not await self._replace(delivery, letter, deliveries, weight)
            case Crashed() | Answered():
                rest = self._ending.settle(delivery, verdict, 0.0, now_ms=self._now_ms(), has_run=False)
                if rest is not None:
                    await rest
            case _:
                await self._ending.carry_out(delivery, verdict)
        return False

    async def _run_alone(self, delivery: Delivery) -> bool:
        """Runs it with nothing else in hand and settles it; False if the others did not end in time."""
        settling: asyncio.Task[None] | None = None
        with self._recorded_alone(delivery) as begin_alone:
            async with self._solitude.alone() as is_alone:
                if not delivery.is_stale and is_alone:
                    self._turns.take()
                    begin_alone()
                    ended = await self._run_in_turn(delivery)
                    self._end_alone()
                    settling = asyncio.create_task(self._finish(delivery, *ended))
                    try:
                        await asyncio.wait([settling], timeout=_SETTLED_ALONE_S)
                    except asyncio.CancelledError:
                        settling.cancel()
                        raise
        if settling is None:
            return False
        await settling
        return True

    async def _find_last_run(self, delivery: Delivery, fault: OwnFault | None) -> LastRun:
        """What is known of the run alone of a message that comes again: in this process, and on this machine."""
        key = delivery_key(self._queue, delivery)
        ran_here = self._own_losses.has_run_alone(key)
        if fault is OwnFault.ITS_OWN or (ran_here and fault is None):
            return LastRun.ITS_OWN
        if ran_here:
            return LastRun.STOPPED
        return LastRun.UNSEEN if self._records is None else await self._records.find_last_run(key)

    @contextmanager
    def _recorded_alone(self, delivery: Delivery) -> Iterator[Callable[[], None]]:
        """Writes down that a delivery waits to run alone, until it has ended; what is yielded says that it begins."""
        record, losses = self._record, self._own_losses
        key = delivery_key(self._queue, delivery)
        if record is not None:
            record.wait_alone(key)

        def begin() -> None:
            losses.begin_alone(key, delivery)
            if record is not None:
                record.begin_alone(key)

        try:
            yield begin
        finally:
            self._end_alone()

    def _end_alone(self) -> None:
        self._own_losses.alone = None
        if self._record is not None:
            self._record.end_alone()

    async def _replace(
        self, delivery: Delivery, letter: DeliveryLetter, deliveries: int, alone: int, *, aside: bool = False
    ) -> bool:
        copy = self._admission.home_copy(letter, deliveries=deliveries, alone=alone, aside=aside)
        if copy is None:
            return False
        self._solitude.replacing += 1
        try:
            return await self._executor.copy_once(delivery, copy)
        finally:
            self._solitude.replacing -= 1

    async def _identify(self, delivery: Delivery) -> bool:
        """Whether a message without an id was replaced by a copy that has one. If nobody may publish to the queue, and
        where deliveries are the attempts, it is handled as it is."""
        letter = DeliveryLetter(delivery, self._plan)
        if delivery.properties.message_id is not None or letter.header(headers.MESSAGE_ID) is not None:
            return False
        copy = self._admission.home_copy(letter, deliveries=None)
        return copy is not None and await self._executor.copy_once(delivery, copy)

    async def _take_turn(self, delivery: Delivery) -> bool:
        """Until it may begin, in the order of arrival; False if it was given back or its channel is gone."""
        turns, pausing, solitude = self._turns, self._pausing, self._solitude
        while True:
            if delivery.is_stale:
                return False
            if pausing.is_paused and not pausing.is_probing:
                await self._ending.give_back(delivery)
                return False
            if not solitude.is_wanted and turns.try_take():
                return True
            try:
                is_next = await turns.wait()
            except asyncio.CancelledError as error:
                if delivery.is_stale:  # not begun: it comes again, or went with its queue
                    raise
                raise Untouched from error
            if is_next:
                if delivery.is_stale:
                    turns.pass_on()
                elif solitude.is_wanted or (pausing.is_paused and not pausing.is_probing):
                    turns.put_back()
                else:
                    return True

    # The handler

    async def _run_and_settle(self, delivery: Delivery) -> None:
        """Runs a delivery that has its turn."""
        outcome, handler_s = await self._run_in_turn(delivery)
        await self._finish(delivery, outcome, handler_s, detached=True)

    async def _run_in_turn(self, delivery: Delivery) -> tuple[Outcome | None, float]:
        """Runs the handler and passes the turn on; how it ended, and how long it took."""
        timed = self._ending.tells_acks
        began_s = time.perf_counter() if timed else 0.0
        slot = 0 if self._begin is None else self._begin(delivery)
        try:
            outcome = await self._run(delivery)
        finally:
            if self._end_run is not None:
                self._end_run(slot)
            self._turns.pass_on()
        return outcome, time.perf_counter() - began_s if timed else 0.0

    async def _finish(
        self, delivery: Delivery, outcome: Outcome | None, handler_s: float, *, detached: bool = False
    ) -> None:
        if outcome is not None:
            now_ms = self._now_ms()
            try:
                rest = self._ending.settle(delivery, outcome, handler_s, now_ms=now_ms, has_run=True, detached=detached)
                if rest is not None:
                    await rest
            finally:
                self._look()
            return
        delivery.ack()
        self._succeeded()
        if self._ending.tells_acks:
            self._ending.tell_ack(delivery, handler_s)

    def _succeeded(self) -> None:
        if self._pausing.failures or self._pausing.is_paused:
            self._pausing.succeeded()
            self._look()

    async def _run(self, delivery: Delivery) -> Outcome | None:
        """Runs the handler; None if it simply returned."""
        read = self._read
        try:
            body: Any = delivery.body if read is None else read(delivery.body)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a codec may raise anything; all of it means undecodable
            return Undecodable(error)
        try:
            message = self._message(delivery) if self._needs_message else None
            result = await self._call(body, message)
        except BaseException as error:  # noqa: BLE001 - the handler boundary; what is not its own is raised again
            return self._outcome(error, self._now_ms())
        if isinstance(result, Signal):
            return self._outcome(result, self._now_ms())
        return result if isinstance(result, _OUTCOMES) else None

    def _outcome(self, error: BaseException, now_ms: int) -> Outcome:
        return read_error(error, now_ms=now_ms, timeout_ms=self._timeout_ms)

    def _message(self, delivery: Delivery) -> Message:
        return Message(delivery, self._plan, self._outlet, self._attempts_max)
