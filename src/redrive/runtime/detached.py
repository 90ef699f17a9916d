"""Copies on their way with no task waiting for them: acked when they are confirmed, by whoever hears the confirm.

A task that waits for each confirm costs more than the copy and its ack together. So where there is room the copy is
sent at once and the handler's worker goes on to the next delivery, while this one is held in hand. Confirmed, it is
acked and told; what is not confirmed gets a task after all, and is insisted on as in `executing`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from redrive.client import Confirmed, Delivery, StaleDelivery
from redrive.client import Outcome as PublishOutcome
from redrive.core import AckDelivery, PublishCopy
from redrive.runtime.executing import ACKS_WRITTEN_S, PUBLISH_S_MAX, Executor
from redrive.wire import LocalProtocolError, Properties


class DetachedCopies:
    """The copies of one queue's deliveries that nobody waits for."""

    def __init__(self, executor: Executor, on_failure: Callable[[Delivery, Exception], Awaitable[None]]) -> None:
        """`on_failure` sees to a delivery whose copy, or whose telling, has failed for a reason of ours."""
        self._executor = executor
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self, delivery: Delivery, copy: PublishCopy, properties: Properties, tell: Callable[[], None] | None
    ) -> bool:
        """Publishes a copy, acks when it is confirmed, and tells. False, and nothing was done, if it would have to
        wait, or if it can't be sent at all: `Executor` knows how to do both."""
        executor = self._executor
        if executor.closing_exchanges and copy.exchange in executor.closing_exchanges:
            return False
        executor.reach("before publish")
        sink = _Detached(self, delivery, copy, properties, tell)
        try:
            is_sent = executor.publisher.publish_now(
                copy.exchange, copy.routing_key, delivery.body, properties, sink, deadline_s=PUBLISH_S_MAX
            )
        except LocalProtocolError:
            return False
        if is_sent:
            delivery.hold()
            if executor.is_watched:
                self._loop.call_soon(executor.reach, "published, before confirm")
        return is_sent

    async def close(self) -> None:
        """Lets go of what is not confirmed: its deliveries are not settled, and come again."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def end(self, sink: "_Detached", outcome: PublishOutcome) -> None:
        """The outcome of one of them is known."""
        delivery = sink.delivery
        try:
            if isinstance(outcome, Confirmed):
                self._executor.count_confirmed()
                self._settle(sink)
            elif delivery.comes_again:
                self._executor.note_failure(sink.copy, outcome, retry_in_ms=None)
            else:
                self._spawn(delivery, self._insist(sink, outcome))
                return
        except StaleDelivery:
            if delivery.is_orphaned and sink.tell is not None:
                sink.tell()
        except Exception as error:  # noqa: BLE001 - an observer's: the connection that told us must not break by it
            self._spawn(delivery, self._on_failure(delivery, error))
            return
        delivery.release()

    def _settle(self, sink: "_Detached") -> None:
        """Acks and tells. Raises `StaleDelivery`."""
        executor = self._executor
        executor.reach("after confirm, before ack")
        executor.reach("before settle")
        sink.delivery.ack()
        if executor.is_watched:
            self._loop.call_later(ACKS_WRITTEN_S, executor.reach, "after ack written")
        if sink.tell is not None:
            sink.tell()

    async def _insist(self, sink: "_Detached", outcome: PublishOutcome) -> None:
        executor, delivery = self._executor, sink.delivery
        try:
            is_confirmed = await executor.insist(delivery, sink.copy, sink.properties, outcome)
            is_done = is_confirmed and (await executor.execute(delivery, (AckDelivery(),)) or delivery.is_orphaned)
            if is_done and sink.tell is not None:
                sink.tell()
        except StaleDelivery:
            pass
        except asyncio.CancelledError:
            if delivery.is_orphaned:
                executor.note_lost(delivery, "the app stopped before a copy of it was confirmed")
            raise
        except Exception as error:  # noqa: BLE001 - no delivery may be left in hand for ever
            await self._on_failure(delivery, error)

    def _spawn(self, delivery: Delivery, work: Awaitable[None]) -> None:
        """A task for what has to be waited for after all; its delivery is held until it ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def ended(_: object) -> None:
            self._tasks.discard(task)
            delivery.release()

        task.add_done_callback(ended)


class _Detached:
    """What the publisher tells the outcome to."""

    __slots__ = ("_copies", "copy", "delivery", "is_done", "properties", "tell")

    def __init__(
        self,
        copies: DetachedCopies,
        delivery: Delivery,
        copy: PublishCopy,
        properties: Properties,
        tell: Callable[[], None] | None,
    ) -> None:
        self._copies = copies
        self.delivery = delivery
        self.copy = copy
        self.properties = properties
        self.tell = tell
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def set_result(self, outcome: PublishOutcome, /) -> None:
        self.is_done = True
        self._copies.end(self, outcome)
