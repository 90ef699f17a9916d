"""One delivery from its arrival until it is settled: admitted or not, decoded, handled, decided, carried out.

Most deliveries need no admission: their handler runs at once, returns, and they are acked. That path is written
for speed: no header is decoded, and nothing is logged unless somebody observes. Whether a delivery needs admission is
first asked of its raw bytes. `run` calls the handler on every path.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from redrive.client import ClientError, Delivery, StaleDelivery
from redrive.core import Answered, Crashed, Outcome, Raised, Signal, Succeeded, TimedOut, Undecodable, headers
from redrive.runtime.admission import ReplaceByCopy, RunExclusively
from redrive.runtime.app import Consumption
from redrive.runtime.concurrency import ConcurrencyLimit
from redrive.runtime.connection_losses import LossFault
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.runtime.handler_call import HandlerCall
from redrive.runtime.handler_errors import CancelledByRuntime, raise_later, read_error
from redrive.runtime.handler_publisher import HandlerPublisher
from redrive.runtime.message import Message
from redrive.runtime.process_context import ProcessContext
from redrive.runtime.queue_pause import QueuePause
from redrive.runtime.run_records import LastRun, delivery_key
from redrive.runtime.settlement import AbandonedDeliveries, Settler

_OURS = b"x-redrive-"
_FOREIGN = b"x-original-queue"
_OUTCOMES = (Succeeded, Raised, Answered, TimedOut, Undecodable, Crashed)
_ENDINGS = (*_OUTCOMES, Signal)
"""What a handler may return to say how it ended. `return Park(…)` is taken for the raise that was meant: an ack would
lose a message that its author wanted to keep."""
_SETTLED_EXCLUSIVELY_S = 5.0
"""How long others wait until an exclusive run is settled. Settling may take long: its copy may find no queue."""
_ROUND_S = 0.1
"""How long a delivery is held that needs an exclusive run while another one has it, if there is no wait queue."""

_Result = TypeVar("_Result")


class DeliveryHandler:
    """Handles the deliveries of one queue."""

    def __init__(
        self,
        consumption: Consumption,
        call: HandlerCall,
        *,
        publisher: HandlerPublisher,
        settler: Settler,
        pause: QueuePause,
        process: ProcessContext,
        lost_lately: Callable[[], bool],
    ) -> None:
        """`lost_lately`: whether this process has lost the queue's channel a moment ago."""
        plan, options, signature = consumption.plan, consumption.options, consumption.signature
        self._plan = plan
        self._queue = plan.name
        self._attempts_max = consumption.policy.attempts_max
        self._timeout_ms = options.timeout_ms
        self._publisher = publisher
        self._admission = settler.admission
        self._settler = settler
        self._executor = settler.executor
        self._abandoned = AbandonedDeliveries(plan.name, settler, process.observer)
        self._concurrency = ConcurrencyLimit(call.concurrency)
        self._exclusive_runs = process.exclusive_runs
        self._losses = process.losses
        self._pause = pause
        self._lost_lately = lost_lately
        self._now_ms = process.now_ms
        self._records = process.records
        self._record = process.record
        self._early_mark = settler.admission.early_mark
        self._needs_id = options.needs_id
        self._needs_admission = False
        """Whether every delivery needs admission now, whatever it carries."""
        self._update_admission()
        needs_message = signature.takes_message or bool(consumption.middleware)
        # A coroutine function that takes the body alone is called without anything between.
        is_plain = signature.is_async and options.timeout_ms is None and not needs_message
        self._run = self._build_run(consumption, call, is_plain=is_plain, needs_message=needs_message)
        self.handle = self._build_handle()
        """The client's handler: a coroutine function that never raises but when cancelled."""

    @property
    def has_wait_queue(self) -> bool:
        """Whether a delivery that must not run now can go to a wait queue."""
        return self._admission.has_wait_queue

    @property
    def waiting(self) -> int:
        """Deliveries that wait for a slot; their handlers have not begun."""
        return self._concurrency.waiting

    @property
    def held(self) -> int:
        """Deliveries whose handlers have ended and whose copies the broker does not take."""
        return self._executor.held

    async def close(self) -> None:
        """Cancels copies that are not confirmed and that nobody waits for. Their deliveries were requeued."""
        await self._settler.close()

    def wake(self) -> None:
        """Something has changed: deliveries that wait for a slot check again."""
        self._update_admission()
        self._concurrency.wake()

    async def requeue_unfinished(self, delivery: Delivery) -> None:
        """Requeues a delivery whose handler has not ended and will not."""
        await self._abandoned.requeue_unfinished(delivery)

    def _update_admission(self) -> None:
        """Every delivery needs admission while concurrency is limited, the queue is paused or about to be, or a
        delivery wants an exclusive run."""
        self._needs_admission = (
            self._concurrency.is_limited
            or self._early_mark is not None
            or self._needs_id
            or bool(self._pause.failures)
            or self._pause.is_paused
            or self._exclusive_runs.is_wanted
        )

    def _build_handle(self) -> Callable[[Delivery], Awaitable[None]]:
        """A closure, because every attribute that it does not look up counts."""
        run, settler, timed = self._run, self._settler, self._settler.reports_acks
        perf_counter = time.perf_counter

        async def handle(delivery: Delivery) -> None:
            header = delivery.header
            has_slot = False
            if self._needs_admission or delivery.redelivered or _OURS in header or _FOREIGN in header:
                has_slot = bool(await self._guard(delivery, self._admit_and_take_slot(delivery)))
                if not has_slot:
                    return
            began_s = perf_counter() if timed else 0.0
            try:
                ended = await run(delivery)
            except BaseException:
                self._abandoned.requeue_soon(delivery)
                raise
            finally:
                if has_slot:
                    self._concurrency.release()
            if ended is not None:
                rest = self._settle(delivery, ended, began_s)
                if rest is not None:
                    await rest
                return
            try:
                delivery.ack()
            except ClientError:  # stale: its channel is gone, and it comes again
                self._abandoned.note_stale(delivery)
                return
            if self._needs_admission:
                self._note_success()
            if timed:
                settler.report_ack(delivery, perf_counter() - began_s)

        return handle

    def _build_run(
        self, consumption: Consumption, handler_call: HandlerCall, *, is_plain: bool, needs_message: bool
    ) -> Callable[[Delivery], Awaitable[Outcome | BaseException | None]]:
        """How a handler is run; a closure for speed, as above."""
        read, call, handler = consumption.reader, handler_call.call, consumption.handler
        begin: Callable[[Delivery], int] | None = None
        end: Callable[[int], None] | None = None
        if self._record is not None:
            begin, end = self._record.recorder(self._queue)

        async def run(delivery: Delivery) -> Outcome | BaseException | None:
            """Runs the handler once. None if it simply returned; else how it ended, as an outcome or as what it raised,
            which `_outcome` reads."""
            slot = 0 if begin is None else begin(delivery)
            try:
                body: Any = delivery.body if read is None else read(delivery.body)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - a codec may raise anything; all of it means undecodable
                if end is not None:
                    end(slot)
                return Undecodable(error)
            try:
                if is_plain:
                    result = await handler(body)
                else:
                    result = await call(body, self._message(delivery) if needs_message else None)
            except BaseException as error:  # noqa: BLE001 - the handler boundary; what is not its own is raised again
                if end is not None:
                    end(slot)
                return error
            if end is not None:
                end(slot)
            return result if result is not None and isinstance(result, _ENDINGS) else None

        return run

    def _settle(self, delivery: Delivery, ended: Outcome | BaseException, began_s: float) -> Awaitable[None] | None:
        """Settles a run that did not simply return; returns the rest to be awaited, if there is any."""
        try:
            handler_s = time.perf_counter() - began_s if began_s else 0.0
            now_ms = self._now_ms()
            outcome = self._outcome(ended, now_ms) if isinstance(ended, BaseException) else ended
            rest = self._settler.settle(delivery, outcome, handler_s, now_ms=now_ms, has_run=True, detached=True)
        except BaseException as error:  # noqa: BLE001 - handled where it can be awaited
            rest = raise_later(error)
        if rest is not None:
            return self._guard(delivery, rest)
        if self._pause.failures or self._needs_admission:
            self._update_admission()
        return None

    async def _guard(self, delivery: Delivery, work: Awaitable[_Result]) -> _Result | None:
        """Awaits the work that a delivery needs, and requeues or parks the delivery if that fails. Raises what is not
        the handler's own."""
        try:
            return await work
        except StaleDelivery:
            self._abandoned.note_stale(delivery)  # its channel is gone, and it comes again
        except Exception as error:  # noqa: BLE001 - no delivery may stay unsettled for ever
            await self._settler.requeue_after_failure(delivery, error)
        except CancelledByRuntime:
            await self.requeue_unfinished(delivery)
            raise
        except BaseException:
            self._abandoned.requeue_soon(delivery)
            raise
        finally:
            if self._pause.failures or self._needs_admission:
                self._update_admission()
        return None

    def _note_success(self) -> None:
        if self._pause.failures or self._pause.is_paused:
            self._pause.succeeded()
            self._update_admission()

    def _outcome(self, error: BaseException, now_ms: int) -> Outcome:
        return read_error(error, now_ms=now_ms, timeout_ms=self._timeout_ms)

    def _message(self, delivery: Delivery) -> Message:
        return Message(delivery, self._plan, self._publisher, self._attempts_max)

    # Admission

    async def _admit_and_take_slot(self, delivery: Delivery) -> bool:
        """Whether the handler is to run now, with a slot; if not, the delivery has been dealt with."""
        header = delivery.header
        doubtful = delivery.redelivered or _OURS in header or _FOREIGN in header or self._may_be_early(delivery)
        if doubtful and not await self._admit(delivery):
            return False
        if self._needs_id and await self._identify(delivery):
            return False
        return await self._take_slot(delivery)

    def _may_be_early(self, delivery: Delivery) -> bool:
        mark = self._early_mark
        return mark is not None and (mark in delivery.body or mark in delivery.header)

    async def _admit(self, delivery: Delivery) -> bool:
        """Whether the handler is to run now; if not, the delivery has been dealt with."""
        message = DeliveredMessage(delivery, self._plan)
        fault = self._losses.judge(self._queue, delivery) if delivery.redelivered and self._lost_lately() else None
        last_run = LastRun.UNSEEN
        if self._admission.was_due_exclusive(message):
            last_run = await self._find_last_run(delivery, fault)
        verdict = self._admission.judge(
            message, delivery.body, after_own_loss=fault is LossFault.NONE, last_run=last_run
        )
        if verdict is None:
            if message.header(headers.DELIVERIES) is not None:
                await self._exclusive_runs.wait_replaced()
            return True
        exclusive_runs = self._exclusive_runs
        match verdict:
            case RunExclusively(deliveries=deliveries, weight=weight) if not exclusive_runs.is_wanted:
                if await self._run_exclusively(delivery):
                    return False
                return not delivery.is_stale and not await self._replace(
                    delivery, message, deliveries, weight, aside=True
                )
            case RunExclusively(deliveries=deliveries, weight=weight):
                if self._record is not None:
                    self._record.hold(delivery_key(self._queue, delivery))
                if not self.has_wait_queue:
                    # Its copy comes back at once: without a pause it would go round as fast as the broker can.
                    await self._executor.pause(_ROUND_S)
                return not delivery.is_stale and not await self._replace(
                    delivery, message, deliveries, weight, aside=True
                )
            case ReplaceByCopy(deliveries=deliveries, weight=weight):
                # Without a copy (the user may not publish to the queue) it can't be counted, and is handled as it is.
                return not await self._replace(delivery, message, deliveries, weight)
            case Crashed() | Answered():
                rest = self._settler.settle(delivery, verdict, 0.0, now_ms=self._now_ms(), has_run=False)
                if rest is not None:
                    await rest
            case _:
                await self._settler.carry_out(delivery, verdict)
        return False

    async def _run_exclusively(self, delivery: Delivery) -> bool:
        """Runs it while no other handler runs, and settles it; False if the others did not end in time."""
        settling: asyncio.Task[None] | None = None
        with self._recorded_exclusively(delivery) as begin:
            async with self._exclusive_runs.exclusive() as is_exclusive:
                if not delivery.is_stale and is_exclusive:
                    self._concurrency.take()
                    begin()
                    began_s = time.perf_counter()
                    try:
                        ended = await self._run(delivery)
                        outcome = self._outcome(ended, self._now_ms()) if isinstance(ended, BaseException) else ended
                    finally:
                        self._concurrency.release()
                    handler_s = time.perf_counter() - began_s
                    self._end_exclusive()
                    settling = asyncio.create_task(self._settle_exclusive(delivery, outcome, handler_s))
                    try:
                        await asyncio.wait([settling], timeout=_SETTLED_EXCLUSIVELY_S)
                    except asyncio.CancelledError:
                        settling.cancel()
                        raise
        if settling is None:
            return False
        await settling
        return True

    async def _settle_exclusive(self, delivery: Delivery, outcome: Outcome | None, handler_s: float) -> None:
        """Settles an exclusive run. Not detached: others wait until its copy is confirmed."""
        if outcome is not None:
            now_ms = self._now_ms()
            try:
                rest = self._settler.settle(delivery, outcome, handler_s, now_ms=now_ms, has_run=True)
                if rest is not None:
                    await rest
            finally:
                self._update_admission()
            return
        delivery.ack()
        self._note_success()
        if self._settler.reports_acks:
            self._settler.report_ack(delivery, handler_s)

    async def _find_last_run(self, delivery: Delivery, fault: LossFault | None) -> LastRun:
        """What is known of the exclusive run of a message that comes again: in this process, and on this machine."""
        key = delivery_key(self._queue, delivery)
        ran_here = self._losses.has_run_exclusively(key)
        if fault is LossFault.ITS_OWN or (ran_here and fault is None):
            return LastRun.ITS_OWN
        if ran_here:
            return LastRun.STOPPED
        return LastRun.UNSEEN if self._records is None else await self._records.find_last_run(key)

    @contextmanager
    def _recorded_exclusively(self, delivery: Delivery) -> Iterator[Callable[[], None]]:
        """Records that a delivery waits for an exclusive run, until that has ended; the yielded function records that
        it begins."""
        record, losses = self._record, self._losses
        key = delivery_key(self._queue, delivery)
        if record is not None:
            record.wait_exclusive(key)

        def begin() -> None:
            losses.begin_exclusive(key, delivery)
            if record is not None:
                record.begin_exclusive(key)

        try:
            yield begin
        finally:
            self._end_exclusive()

    def _end_exclusive(self) -> None:
        self._losses.end_exclusive()
        if self._record is not None:
            self._record.end_exclusive()

    async def _replace(
        self, delivery: Delivery, message: DeliveredMessage, deliveries: int, weight: int, *, aside: bool = False
    ) -> bool:
        copy = self._admission.own_queue_copy(message, deliveries=deliveries, weight=weight, aside=aside)
        if copy is None:
            return False
        self._exclusive_runs.replacing += 1
        try:
            return await self._executor.copy_once(delivery, copy)
        finally:
            self._exclusive_runs.replacing -= 1

    async def _identify(self, delivery: Delivery) -> bool:
        """Whether a message without an id was replaced by a copy that has one. It is handled as it is if the user may
        not publish to the queue, and where the delivery count is the attempts."""
        message = DeliveredMessage(delivery, self._plan)
        if delivery.properties.message_id is not None or message.header(headers.MESSAGE_ID) is not None:
            return False
        copy = self._admission.own_queue_copy(message, deliveries=None)
        return copy is not None and await self._executor.copy_once(delivery, copy)

    async def _take_slot(self, delivery: Delivery) -> bool:
        """Waits until it may begin, in the order of arrival; False if it was requeued or its channel is gone."""
        concurrency, pause, exclusive_runs = self._concurrency, self._pause, self._exclusive_runs
        while True:
            if delivery.is_stale:
                return False
            if pause.is_paused and not pause.is_probing:
                await self._settler.requeue(delivery)
                return False
            if not exclusive_runs.is_wanted and concurrency.try_take():
                return True
            try:
                is_next = await concurrency.wait()
            except asyncio.CancelledError as error:
                if delivery.is_stale:  # not begun: it comes again, or went with its queue
                    raise
                raise CancelledByRuntime from error
            if is_next:
                if delivery.is_stale:
                    concurrency.release()
                elif exclusive_runs.is_wanted or (pause.is_paused and not pause.is_probing):
                    concurrency.put_back()
                else:
                    return True
