"""A shape's commands, executed for one delivery: copies first, settled last, nothing acked whose copy is not confirmed.

If the broker does not confirm a copy, the executor publishes it again, with growing pauses, for as long as the delivery
is ours: a requeue would run the handler again for nothing. Meanwhile the delivery counts towards the prefetch, so a
queue whose wait queue is missing stops by itself, and goes on by itself once the wait queue exists. After `HELD_S_MAX`,
well below the broker's consumer timeout, and when the app stops, the delivery is requeued.

The executor makes no copy of a delivery whose channel is gone: the broker has the message back, and every copy would be
a duplicate. The exception is a consumer that the broker cancelled. That is what a deleted queue looks like, and then
the copy is all that is left; a consumer timeout on 4.3 looks the same, so a run that fails too late is parked there,
not retried. A copy that was on its way to a deleted queue, or through it, ends with `QueueGone`, and `Settler` parks
the message instead. If that fails too, the event `runtime.lost` says so.

A copy that can never be sent is not repeated: `Unsendable` is raised at once, and `Settler` parks the message in
another way.

A copy whose outcome is not known is sent again with `x-redrive-possible-duplicate`. A duplicate can arise between the
checkpoints "published, before confirm" and "after ack written": the broker has both the copy and the original then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, assert_never

from redrive.client import Confirmed, Delivery, InDoubt, Publisher, ReconnectBackoff, Returned, StaleDelivery
from redrive.client import Outcome as PublishOutcome
from redrive.core import (
    AckDelivery,
    Command,
    Counter,
    Pause,
    PublishCopy,
    RejectDelivery,
    RequeueDelivery,
    headers,
)
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.runtime.errors import describe_publish_outcome
from redrive.runtime.process_context import ProcessContext
from redrive.runtime.settlement.isolated_publisher import IsolatedPublisher
from redrive.runtime.settlement.message_copies import properties_of_copy
from redrive.topology import QueuePlan
from redrive.wire import EncodingError, LocalProtocolError, Properties, ProtocolError, ReplyCode

Settlement: TypeAlias = AckDelivery | RejectDelivery | RequeueDelivery

HELD_S_MAX = 600.0
PUBLISH_S_MAX = 30.0
_FIRST_S, _LONGEST_S = 0.5, 30.0
ACKS_WRITTEN_S = 0.01
_ACCESS_REFUSED = "403 "
_TOO_LARGE = "406 "
_COUNT = headers.DELIVERY_COUNT.encode()


class Unsendable(Exception):
    """No copy of this message can be sent, however often it is tried. `is_body`: its body alone is larger than the
    broker allows; else its properties do not fit into a frame, or can't be encoded again."""

    def __init__(self, why: str, *, is_body: bool) -> None:
        self.why = why
        self.is_body = is_body
        super().__init__(why)


class QueueGone(Exception):
    """The queue of a delivery is gone, or may be, and the copy was to go to it or through it. The delivery may be all
    that is left of the message, so it has to be parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPublishers:
    """How the copies of one queue's messages are published.

    `copies` sends most of them. `own_queue` sends copies to the queue's own end: least privilege may not allow these,
    and a refusal closes the channel, so they have one of their own. `new` makes one more, for copies to exchanges that
    close channels. `is_queue_deleted` asks the broker whether a queue is gone.
    """

    copies: Publisher
    own_queue: Publisher
    new: Callable[[], Awaitable[Publisher]]
    is_queue_deleted: Callable[[str], Awaitable[bool]]


class CommandExecutor:
    """Executes commands for the deliveries of one queue."""

    def __init__(
        self,
        plan: QueuePlan,
        publishers: CopyPublishers,
        process: ProcessContext,
        *,
        requeue: Callable[[Delivery], Awaitable[object]],
    ) -> None:
        """`requeue` requeues a delivery so that nobody takes it for a crash; the settler knows how."""
        self._plan = plan
        self._queue = plan.name
        self.publisher = publishers.copies
        self._own_queue = publishers.own_queue
        self._refused: set[str] = set()
        self._is_queue_deleted = publishers.is_queue_deleted
        self._isolated = IsolatedPublisher(publishers.new)
        self.closing_exchanges = self._isolated.exchanges
        """Exchanges that are known to close the channel on a publish."""
        self._observer = process.observer
        self._stopping = process.stopping
        self.new_id = process.new_id
        self._draw = process.draw
        self._checkpoint = process.checkpoint
        self._now_ms = process.now_ms
        self._requeue = requeue
        self._confirmed: Callable[[str], None] | None = getattr(process.observer, "confirmed", None)
        self._loop = asyncio.get_running_loop()
        self.is_watched = process.checkpoint is not None
        """Whether a test wants to know of every step."""
        self.held = 0
        """Deliveries that are held because their copy is not confirmed."""

    async def execute(self, delivery: Delivery, commands: Iterable[Command]) -> bool:
        """Executes them in order; True if all were executed. If not, the delivery comes again, or its loss was logged.
        Raises `Unsendable` and `QueueGone`."""
        rest_ms = 0
        is_copied = False
        try:
            for command in commands:
                match command:
                    case PublishCopy():
                        if not await self._publish_until_confirmed(delivery, self._due_after(rest_ms, command)):
                            return False
                        is_copied = True
                    case Pause(pause_ms=pause_ms):
                        began_s = self._loop.time()
                        await self.pause(pause_ms / 1000)
                        rest_ms = pause_ms - round((self._loop.time() - began_s) * 1000)
                    case _ if self.is_watched:
                        await self._settle_watched(delivery, command)
                    case _:
                        settle(delivery, command)
        except StaleDelivery:
            return is_copied and delivery.is_orphaned
        return True

    async def execute_copy(
        self, delivery: Delivery, copy: PublishCopy, properties: Properties, *, body: bytes | None = None
    ) -> bool:
        """Publishes a copy whose properties are built already, then acks; returns and raises as `execute` does. `body`
        replaces the delivery's own."""
        if delivery.comes_again:
            return False
        is_copied = False
        try:
            outcome = await self._publish(copy, delivery.body if body is None else body, properties)
            if not isinstance(outcome, Confirmed) and not await self.repeat_until_confirmed(
                delivery, copy, properties, outcome, body=body
            ):
                return False
            is_copied = True
            if self.is_watched:
                await self._settle_watched(delivery, AckDelivery())
            else:
                delivery.ack()
        except StaleDelivery:
            return is_copied and delivery.is_orphaned
        return True

    async def copy_once(self, delivery: Delivery, copy: PublishCopy, *, raise_if_gone: bool = False) -> bool:
        """Publishes a copy to the queue's own end, once, and acks if it is confirmed; else leaves the delivery as it
        is. Raises `StaleDelivery`, and `QueueGone` with `raise_if_gone`."""
        if delivery.is_stale:
            raise StaleDelivery(delivery.delivery_tag, self._queue)
        if copy.exchange in self._refused:
            return False
        outcome: PublishOutcome
        try:
            properties = self._properties(delivery, copy)
            outcome = await self._publish(copy, delivery.body, properties, by=self._own_queue)
        except Unsendable as error:
            outcome = InDoubt(error.why, sent=False)
        if not isinstance(outcome, Confirmed):
            self._isolated.learn(copy.exchange, outcome)
            if isinstance(outcome, InDoubt) and outcome.reason.startswith(_ACCESS_REFUSED):
                self._refused.add(copy.exchange)  # or every message would close the channel again
            self.note_failure(copy, outcome, retry_in_ms=None)
            if raise_if_gone and await self._is_queue_gone(delivery, copy, outcome):
                raise QueueGone
            return False
        await self.execute(delivery, (AckDelivery(),))
        return True

    def count_confirmed(self) -> None:
        """Reports a confirmed copy to the observer, if it counts them."""
        if self._confirmed is not None:
            self._confirmed(self._queue)

    @property
    def is_stopping(self) -> bool:
        """Whether the app is stopping."""
        return self._stopping.is_set()

    async def pause(self, seconds: float) -> None:
        """Waits so long, or until the app stops."""
        if seconds <= 0 or self._stopping.is_set():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def repeat_until_confirmed(
        self,
        delivery: Delivery,
        copy: PublishCopy,
        properties: Properties,
        outcome: PublishOutcome,
        *,
        body: bytes | None = None,
    ) -> bool:
        """After a copy that was not confirmed: publishes it until one is. False: the delivery comes again, or its loss
        was logged. Raises `Unsendable` and `QueueGone`."""
        _check_size(outcome)
        pauses = ReconnectBackoff(first_s=_FIRST_S, longest_s=_LONGEST_S, random=self._draw)
        deadline_s = self._loop.time() + HELD_S_MAX
        self.held += 1
        try:
            while not isinstance(outcome, Confirmed):
                late = outcome.late if isinstance(outcome, InDoubt) else None
                self._isolated.learn(copy.exchange, outcome)
                if late is None and isinstance(outcome, InDoubt) and outcome.sent:
                    properties = _marked(properties)
                if late is None and await self._is_queue_gone(delivery, copy, outcome):
                    self.note_failure(copy, outcome, retry_in_ms=None)
                    raise QueueGone
                pause_s = pauses.next_s()
                # If its queue is gone it can't be requeued: then it is held for as long as the app runs.
                is_too_long = self._loop.time() + pause_s > deadline_s and not delivery.is_orphaned
                give_up = self._stopping.is_set() or is_too_long
                self.note_failure(copy, outcome, retry_in_ms=None if give_up else round(pause_s * 1000))
                if not give_up and late is None:
                    await self.pause(pause_s)
                if delivery.comes_again:
                    return False
                if give_up and delivery.is_orphaned:
                    self.note_lost(delivery, f"no copy of it could be parked: {describe_publish_outcome(outcome)}")
                    return False
                if give_up:
                    await self._give_up(delivery, is_answered=late is None)
                    return False
                # A copy that the broker has and has not answered yet is waited for. Publishing it again would add one
                # more copy with every try, and all of them would be delivered once the broker recovers.
                if late is None:
                    outcome = await self._publish(copy, delivery.body if body is None else body, properties)
                else:
                    outcome = await _answer(late)
                _check_size(outcome)
            return True
        finally:
            self.held -= 1

    async def _give_up(self, delivery: Delivery, *, is_answered: bool) -> None:
        """Requeues by a copy, because a plain requeue looks like a crash. If the broker does not answer any more it is
        a plain requeue all the same: one more copy would be one more in doubt."""
        if is_answered:
            await self._requeue(delivery)
        else:
            self.requeue_plainly(delivery)

    def requeue_plainly(self, delivery: Delivery) -> None:
        """Requeues a delivery without reading its headers. Not counted, except where the queue's own count must replace
        one that the publisher wrote (see `read_deliveries` in core). Raises `StaleDelivery`."""
        may_bring_count = not delivery.redelivered and _COUNT in delivery.header
        settle(delivery, RequeueDelivery(counted=may_bring_count and self._plan.counted_by is Counter.DELIVERIES))

    def note_failure(self, copy: PublishCopy, outcome: PublishOutcome, *, retry_in_ms: int | None) -> None:
        """Logs that a copy was not confirmed, and when it is published again, if it is."""
        self._observer.note(
            "runtime.publish_failed",
            queue=self._queue,
            outcome=type(outcome).__name__.lower(),
            why=describe_publish_outcome(outcome),
            exchange=copy.exchange,
            routing_key=copy.routing_key,
            retry_in_ms=retry_in_ms,
        )

    def note_lost(self, delivery: Delivery, why: str) -> None:
        """Logs that a message is lost, or may be: its queue is gone, and so is this delivery."""
        message = DeliveredMessage(delivery, self._plan)
        self._observer.note(
            "runtime.lost",
            queue=self._queue,
            message_id=message.message_id,
            exchange=message.exchange,
            routing_key=message.routing_key,
            why=why,
            certain=delivery.session.queue_is_gone,
        )

    async def _is_queue_gone(self, delivery: Delivery, copy: PublishCopy, outcome: PublishOutcome) -> bool:
        """Whether a copy that failed was to go to a queue that is gone, or through it."""
        if delivery.comes_again or self._plan.is_parking(copy):
            return False
        # The default exchange returns a copy for a queue that was deleted, and then the delivery went with the queue.
        # Or the queue's node is down: then the delivery comes again.
        is_suspect = isinstance(outcome, Returned) and self._plan.is_queue_end(copy) and not delivery.is_orphaned
        if is_suspect and await self._is_queue_deleted(self._queue):
            delivery.session.queue_is_gone = True
        return delivery.is_orphaned

    def reach_checkpoint(self, place: str) -> None:
        """Calls the checkpoint, if there is one."""
        if self._checkpoint is not None:
            self._checkpoint(place)

    def _due_after(self, rest_ms: int, copy: PublishCopy) -> PublishCopy:
        """A copy whose pause was cut short because the app stops: its next consumer waits for the rest."""
        if rest_ms <= 0 or headers.NOT_BEFORE in copy.set_headers:
            return copy
        return replace(copy, set_headers={**copy.set_headers, headers.NOT_BEFORE: self._now_ms() + rest_ms})

    async def _publish_until_confirmed(self, delivery: Delivery, copy: PublishCopy) -> bool:
        if delivery.comes_again:
            return False
        properties = self._properties(delivery, copy)
        outcome = await self._publish(copy, delivery.body, properties)
        return isinstance(outcome, Confirmed) or await self.repeat_until_confirmed(delivery, copy, properties, outcome)

    def _properties(self, delivery: Delivery, copy: PublishCopy) -> Properties:
        try:
            return properties_of_copy(DeliveredMessage(delivery, self._plan), copy, new_id=self.new_id)
        except ProtocolError as error:
            raise Unsendable(f"its properties can't be copied: {error}", is_body=False) from None

    async def _publish(
        self, copy: PublishCopy, body: bytes, properties: Properties, *, by: Publisher | None = None
    ) -> PublishOutcome:
        publisher: Publisher | IsolatedPublisher = self.publisher if by is None else by
        if self.closing_exchanges and copy.exchange in self.closing_exchanges:
            publisher = self._isolated
        publishing = publisher.publish(copy.exchange, copy.routing_key, body, properties, deadline_s=PUBLISH_S_MAX)
        try:
            outcome = await (self._watched(publishing) if self.is_watched else publishing)
        except LocalProtocolError as error:
            if isinstance(error, EncodingError) or error.reply_code == ReplyCode.FRAME_ERROR:
                raise Unsendable(str(error), is_body=False) from None
            return InDoubt(str(error), sent=False)
        if isinstance(outcome, Confirmed):
            self.count_confirmed()
        return outcome

    async def _watched(self, publishing: Coroutine[Any, Any, PublishOutcome]) -> PublishOutcome:
        """Publishes, with checkpoints."""
        try:
            self.reach_checkpoint("before publish")
        except BaseException:
            publishing.close()
            raise
        task = asyncio.ensure_future(publishing)
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is written at the end of the event loop's turn
        self.reach_checkpoint("published, before confirm")
        outcome = await task
        if isinstance(outcome, Confirmed):
            self.reach_checkpoint("after confirm, before ack")
        return outcome

    async def _settle_watched(self, delivery: Delivery, command: Settlement) -> None:
        """Settles, with checkpoints. Raises `StaleDelivery`."""
        self.reach_checkpoint("before settle")
        settle(delivery, command)
        # Acks are written at the end of the event loop's turn, or a few milliseconds later.
        await asyncio.sleep(ACKS_WRITTEN_S)
        self.reach_checkpoint("after ack written" if isinstance(command, AckDelivery) else "after settle written")


def settle(delivery: Delivery, command: Settlement) -> None:
    """Settles the delivery. Raises `StaleDelivery`: then the message comes again."""
    match command:
        case AckDelivery():
            delivery.ack()
        case RejectDelivery():
            delivery.reject(requeue=False)
        case RequeueDelivery(counted=True):
            delivery.reject(requeue=True)
        case RequeueDelivery():
            delivery.nack(requeue=True)
        case _:
            assert_never(command)


def _marked(properties: Properties) -> Properties:
    """For a copy that is sent although an earlier one may have arrived. Its digest does not depend on it."""
    try:
        return properties.edit(headers={headers.POSSIBLE_DUPLICATE: True})
    except ProtocolError:  # it can be sent as it is
        return properties


def _check_size(outcome: PublishOutcome) -> None:
    """Raises `Unsendable` for a body that is larger than the broker allows: 3.10 to 4.3 close the channel every
    time."""
    if isinstance(outcome, InDoubt) and outcome.reason.startswith(_TOO_LARGE) and "max size" in outcome.reason:
        raise Unsendable(outcome.reason, is_body=True)


async def _answer(late: "asyncio.Future[PublishOutcome]") -> PublishOutcome:
    """The broker's answer to a publish that was sent before, if it comes in time."""
    await asyncio.wait([late], timeout=PUBLISH_S_MAX)
    return late.result() if late.done() else InDoubt("still no answer from the broker", late=late)
