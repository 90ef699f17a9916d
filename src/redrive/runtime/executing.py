"""Commands carried out on one delivery: copies first, settled last, and nothing acked whose copy is not confirmed.

A copy that the broker does not confirm is tried again, with growing pauses, for as long as the delivery is ours: giving
it back would run its handler again for nothing. It counts towards the prefetch meanwhile, so a queue whose wait queue
is missing stops by itself, and goes on by itself once it is there. After `HELD_S_MAX`, well below the broker's consumer
timeout, and when the app stops, the delivery is given back.

No copy is made of a delivery whose channel is gone: the broker has the message back, and every copy would be one more.
Except where the broker cancelled the consumer. That is what a deleted queue looks like, and then the copy is all there
is; a consumer timeout on 4.3 looks the same, so a run that fails too late is parked there, not retried. A copy that was
on its way to a deleted queue, or through it, ends with `QueueGone`, and `Ending` parks the message instead. If that
can't be done either, `runtime.lost` says so.

A copy that can never be sent is not insisted on: `Unsendable` says so at once, and `Ending` parks it in another way.

A copy whose outcome is not known is sent again with `x-redrive-possible-duplicate`. The windows in which a duplicate
can arise are between "published, before confirm" and "after ack written": the copy is with the broker, and so is the
original.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeAlias, assert_never

from redrive.client import Confirmed, Delivery, InDoubt, Publisher, ReconnectBackoff, Returned, StaleDelivery
from redrive.client import Outcome as PublishOutcome
from redrive.core import (
    AckDelivery,
    Command,
    Counter,
    Observer,
    Pause,
    PublishCopy,
    RejectDelivery,
    RequeueDelivery,
    headers,
)
from redrive.runtime.apart import Apart
from redrive.runtime.copies import copy_properties
from redrive.runtime.outlet import describe_publish
from redrive.runtime.views import DeliveryLetter
from redrive.topology import QueuePlan
from redrive.wire import EncodingError, LocalProtocolError, Properties, ProtocolError, ReplyCode

Checkpoint = Callable[[str], None]
"""Called between any two steps with the name of the place; tests kill the process there."""

Settlement: TypeAlias = AckDelivery | RejectDelivery | RequeueDelivery

HELD_S_MAX = 600.0
PUBLISH_S_MAX = 30.0
_FIRST_S, _LONGEST_S = 0.5, 30.0
ACKS_WRITTEN_S = 0.01
_ACCESS_REFUSED = "403 "
_TOO_LARGE = "406 "
_COUNT = headers.DELIVERY_COUNT.encode()


class Unsendable(Exception):
    """No copy of this message can be sent, however often it is tried. `is_body`: its body alone is more than the broker
    takes; else its properties are more than a frame has room for, or can't be written again."""

    def __init__(self, why: str, *, is_body: bool) -> None:
        self.why = why
        self.is_body = is_body
        super().__init__(why)


class QueueGone(Exception):
    """The queue of a delivery is gone, or may be, and the copy was to go to it or through it: what is in hand may be
    all there is of the message, and has to be parked."""


class Executor:
    """Carries out commands for one queue."""

    def __init__(
        self,
        plan: QueuePlan,
        publisher: Publisher,
        home: Publisher,
        *,
        observer: Observer,
        stopping: asyncio.Event,
        new_id: Callable[[], str],
        draw: Callable[[], float],
        new_publisher: Callable[[], Awaitable[Publisher]],
        is_queue_deleted: Callable[[str], Awaitable[bool]],
        checkpoint: Checkpoint | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """`home` is for copies to the queue's own end. Least privilege may not allow them, and a refusal closes the
        channel: on one of its own it leaves the others in peace. `new_publisher` makes one more, for `Apart`;
        `is_queue_deleted` asks the broker."""
        self._plan = plan
        self._queue = plan.name
        self.publisher = publisher
        self._home = home
        self._refused: set[str] = set()
        self._is_queue_deleted = is_queue_deleted
        self._apart = Apart(new_publisher)
        self.closing_exchanges = self._apart.exchanges
        """Exchanges that close the channel of whoever publishes to them."""
        self._observer = observer
        self._stopping = stopping
        self.new_id = new_id
        self._draw = draw
        self._checkpoint = checkpoint
        self._now_ms = now_ms
        self._confirmed: Callable[[str], None] | None = getattr(observer, "confirmed", None)
        self._loop = asyncio.get_running_loop()
        self.is_watched = checkpoint is not None
        """Whether somebody wants to know of every step."""
        self.held = 0
        """Deliveries that are held because a copy of theirs was not confirmed."""
        self.give_back: Callable[[Delivery], Awaitable[object]] | None = None
        """Gives a delivery back so that it is not taken for a death; `Ending` knows how."""

    async def execute(self, delivery: Delivery, commands: Iterable[Command]) -> bool:
        """Does them in order; whether it came to the end. If not, the delivery comes again, or its loss was told.
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
        """A copy whose properties are made already, then an ack; whether it came to the end, as `execute` says it.
        `body` instead of the delivery's own. Raises as that does."""
        if delivery.comes_again:
            return False
        is_copied = False
        try:
            outcome = await self._publish(copy, delivery.body if body is None else body, properties)
            if not isinstance(outcome, Confirmed) and not await self.insist(
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

    async def copy_once(self, delivery: Delivery, copy: PublishCopy, *, minds_gone: bool = False) -> bool:
        """Publishes a copy to the queue's own end, and acks if it is confirmed; else leaves the delivery as it is. One
        try. Raises `StaleDelivery`, and `QueueGone` with `minds_gone`."""
        if delivery.is_stale:
            raise StaleDelivery(delivery.delivery_tag, self._queue)
        if copy.exchange in self._refused:
            return False
        outcome: PublishOutcome
        try:
            properties = self._properties(delivery, copy)
            outcome = await self._publish(copy, delivery.body, properties, by=self._home)
        except Unsendable as error:
            outcome = InDoubt(error.why, sent=False)
        if not isinstance(outcome, Confirmed):
            self._apart.learn(copy.exchange, outcome)
            if isinstance(outcome, InDoubt) and outcome.reason.startswith(_ACCESS_REFUSED):
                self._refused.add(copy.exchange)  # or every message would close the channel again
            self.note_failure(copy, outcome, retry_in_ms=None)
            if minds_gone and await self._is_queue_gone(delivery, copy, outcome):
                raise QueueGone
            return False
        await self.execute(delivery, (AckDelivery(),))
        return True

    def count_confirmed(self) -> None:
        """A copy was confirmed; whoever counts them is told."""
        if self._confirmed is not None:
            self._confirmed(self._queue)

    @property
    def is_stopping(self) -> bool:
        """Whether the app has been told to stop."""
        return self._stopping.is_set()

    async def pause(self, seconds: float) -> None:
        """Waits, or until the app stops."""
        if seconds <= 0 or self._stopping.is_set():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def insist(
        self,
        delivery: Delivery,
        copy: PublishCopy,
        properties: Properties,
        outcome: PublishOutcome,
        *,
        body: bytes | None = None,
    ) -> bool:
        """After a copy that was not confirmed: again and again, until one is. False: the delivery comes again, or its
        loss was told. Raises `Unsendable` and `QueueGone`."""
        _check_size(outcome)
        pauses = ReconnectBackoff(first_s=_FIRST_S, longest_s=_LONGEST_S, random=self._draw)
        deadline_s = self._loop.time() + HELD_S_MAX
        self.held += 1
        try:
            while not isinstance(outcome, Confirmed):
                late = outcome.late if isinstance(outcome, InDoubt) else None
                self._apart.learn(copy.exchange, outcome)
                if late is None and isinstance(outcome, InDoubt) and outcome.sent:
                    properties = _marked(properties)
                if late is None and await self._is_queue_gone(delivery, copy, outcome):
                    self.note_failure(copy, outcome, retry_in_ms=None)
                    raise QueueGone
                pause_s = pauses.next_s()
                # With its queue gone there is nothing it could be given back to: as long as the app runs.
                is_too_long = self._loop.time() + pause_s > deadline_s and not delivery.is_orphaned
                give_up = self._stopping.is_set() or is_too_long
                self.note_failure(copy, outcome, retry_in_ms=None if give_up else round(pause_s * 1000))
                if not give_up and late is None:
                    await self.pause(pause_s)
                if delivery.comes_again:
                    return False
                if give_up and delivery.is_orphaned:
                    self.note_lost(delivery, f"no copy of it could be parked: {describe_publish(outcome)}")
                    return False
                if give_up:
                    await self._give_up(delivery, is_answered=late is None)
                    return False
                # What is with the broker and not answered yet is waited for. To publish it again would put one copy
                # more into the queue with every round, all of which come alive once the broker is itself again.
                if late is None:
                    outcome = await self._publish(copy, delivery.body if body is None else body, properties)
                else:
                    outcome = await _answer(late)
                _check_size(outcome)
            return True
        finally:
            self.held -= 1

    async def _give_up(self, delivery: Delivery, *, is_answered: bool) -> None:
        """Nobody has died, so a plain return, which looks as if, is for a broker that answers nothing any more: there
        one more copy would be one more in doubt."""
        if is_answered and self.give_back is not None:
            await self.give_back(delivery)
        else:
            self.send_back(delivery)

    def send_back(self, delivery: Delivery) -> None:
        """A plain return of what may not be read, uncounted but where the queue's own count must go over a publisher's
        (see `carrying.give_back`). Raises `StaleDelivery`."""
        may_bring_count = not delivery.redelivered and _COUNT in delivery.header
        settle(delivery, RequeueDelivery(counted=may_bring_count and self._plan.counted_by is Counter.DELIVERIES))

    def note_failure(self, copy: PublishCopy, outcome: PublishOutcome, *, retry_in_ms: int | None) -> None:
        """Says that a copy was not confirmed, and when it is tried again, if it is."""
        self._observer.note(
            "runtime.publish_failed",
            queue=self._queue,
            outcome=type(outcome).__name__.lower(),
            why=describe_publish(outcome),
            exchange=copy.exchange,
            routing_key=copy.routing_key,
            retry_in_ms=retry_in_ms,
        )

    def note_lost(self, delivery: Delivery, why: str) -> None:
        """Says that nothing is left of a message, or may be: its queue is gone, and so is this delivery."""
        letter = DeliveryLetter(delivery, self._plan)
        self._observer.note(
            "runtime.lost",
            queue=self._queue,
            message_id=letter.message_id,
            exchange=letter.exchange,
            routing_key=letter.routing_key,
            why=why,
            certain=delivery.session.queue_is_gone,
        )

    async def _is_queue_gone(self, delivery: Delivery, copy: PublishCopy, outcome: PublishOutcome) -> bool:
        """Whether a copy that failed was to go to a queue that is gone, or through it."""
        if delivery.comes_again or self._plan.is_parking(copy):
            return False
        # The default exchange returns what is for a queue by its name if that was deleted, and then what is in hand
        # went with it. Or its node is down: then it comes again.
        is_suspect = isinstance(outcome, Returned) and self._plan.is_queue_end(copy) and not delivery.is_orphaned
        if is_suspect and await self._is_queue_deleted(self._queue):
            delivery.session.queue_is_gone = True
        return delivery.is_orphaned

    def reach(self, place: str) -> None:
        """Says where it is, if somebody wants to know."""
        if self._checkpoint is not None:
            self._checkpoint(place)

    def _due_after(self, rest_ms: int, copy: PublishCopy) -> PublishCopy:
        """A copy whose pause was cut short, because the app stops: whoever gets it next waits for the rest."""
        if rest_ms <= 0 or self._now_ms is None or headers.NOT_BEFORE in copy.set_headers:
            return copy
        return replace(copy, set_headers={**copy.set_headers, headers.NOT_BEFORE: self._now_ms() + rest_ms})

    async def _publish_until_confirmed(self, delivery: Delivery, copy: PublishCopy) -> bool:
        if delivery.comes_again:
            return False
        properties = self._properties(delivery, copy)
        outcome = await self._publish(copy, delivery.body, properties)
        return isinstance(outcome, Confirmed) or await self.insist(delivery, copy, properties, outcome)

    def _properties(self, delivery: Delivery, copy: PublishCopy) -> Properties:
        try:
            return copy_properties(DeliveryLetter(delivery, self._plan), copy, new_id=self.new_id)
        except ProtocolError as error:
            raise Unsendable(f"its properties can't be copied: {error}", is_body=False) from None

    async def _publish(
        self, copy: PublishCopy, body: bytes, properties: Properties, *, by: Publisher | None = None
    ) -> PublishOutcome:
        publisher: Publisher | Apart = self.publisher if by is None else by
        if self.closing_exchanges and copy.exchange in self.closing_exchanges:
            publisher = self._apart
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
        """Publishes, and says where it is."""
        try:
            self.reach("before publish")
        except BaseException:
            publishing.close()
            raise
        task = asyncio.ensure_future(publishing)
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is written at the end of the loop's turn
        self.reach("published, before confirm")
        outcome = await task
        if isinstance(outcome, Confirmed):
            self.reach("after confirm, before ack")
        return outcome

    async def _settle_watched(self, delivery: Delivery, command: Settlement) -> None:
        """Settles, and says where it is. Raises `StaleDelivery`."""
        self.reach("before settle")
        settle(delivery, command)
        # Acks are said at the end of the event loop's turn, or a few milliseconds later.
        await asyncio.sleep(ACKS_WRITTEN_S)
        self.reach("after ack written" if isinstance(command, AckDelivery) else "after settle written")


def settle(delivery: Delivery, command: Settlement) -> None:
    """Raises `StaleDelivery`: then the message comes again."""
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
    """Raises `Unsendable` for what the broker takes from nobody: 3.10 to 4.3 close the channel so, every time."""
    if isinstance(outcome, InDoubt) and outcome.reason.startswith(_TOO_LARGE) and "max size" in outcome.reason:
        raise Unsendable(outcome.reason, is_body=True)


async def _answer(late: "asyncio.Future[PublishOutcome]") -> PublishOutcome:
    """The answer to a publish that was sent before, if it comes now."""
    await asyncio.wait([late], timeout=PUBLISH_S_MAX)
    return late.result() if late.done() else InDoubt("still no answer from the broker", late=late)
