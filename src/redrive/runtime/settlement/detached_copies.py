"""Copies that no task waits for: when the broker confirms one, its delivery is acked.

A task that waits for each confirm costs more than the copy and its ack together. So if the publish window has room the
copy is sent at once and the handler's worker goes on to the next delivery, while this one stays unsettled. When the
copy is confirmed, its delivery is acked and the decision is logged. If it is not confirmed, a task publishes it again
as `command_executor` does.
"""

import asyncio
from collections.abc import Awaitable, Callable

from redrive.client import Confirmed, Delivery, StaleDelivery
from redrive.client import Outcome as PublishOutcome
from redrive.core import AckDelivery, PublishCopy
from redrive.runtime.settlement.command_executor import ACKS_WRITTEN_S, PUBLISH_S_MAX, CommandExecutor
from redrive.wire import LocalProtocolError, Properties


class DetachedCopies:
    """The detached copies of one queue's deliveries."""

    def __init__(self, executor: CommandExecutor, on_failure: Callable[[Delivery, Exception], Awaitable[None]]) -> None:
        """`on_failure` settles a delivery if its copy or the log of its decision failed by an error of our own."""
        self._executor = executor
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self, delivery: Delivery, copy: PublishCopy, properties: Properties, log: Callable[[], None] | None
    ) -> bool:
        """Publishes a copy; once it is confirmed, acks and logs. False, and nothing was done, if it would have to wait
        or can't be sent at all: `CommandExecutor` does both."""
        executor = self._executor
        if executor.closing_exchanges and copy.exchange in executor.closing_exchanges:
            return False
        executor.reach_checkpoint("before publish")
        sink = _Detached(self, delivery, copy, properties, log)
        try:
            is_sent = executor.publisher.publish_now(
                copy.exchange, copy.routing_key, delivery.body, properties, sink, deadline_s=PUBLISH_S_MAX
            )
        except LocalProtocolError:
            return False
        if is_sent:
            delivery.hold()
            if executor.is_watched:
                self._loop.call_soon(executor.reach_checkpoint, "published, before confirm")
        return is_sent

    async def close(self) -> None:
        """Cancels the copies that are not confirmed: their deliveries are not settled, and come again."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def end(self, sink: "_Detached", outcome: PublishOutcome) -> None:
        """Called when the outcome of a copy is known."""
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
            if delivery.is_orphaned and sink.log is not None:
                sink.log()
        except Exception as error:  # noqa: BLE001 - an observer's: the connection that calls us must not break by it
            self._spawn(delivery, self._on_failure(delivery, error))
            return
        delivery.release()

    def _settle(self, sink: "_Detached") -> None:
        """Acks and logs. Raises `StaleDelivery`."""
        executor = self._executor
        executor.reach_checkpoint("after confirm, before ack")
        executor.reach_checkpoint("before settle")
        sink.delivery.ack()
        if executor.is_watched:
            self._loop.call_later(ACKS_WRITTEN_S, executor.reach_checkpoint, "after ack written")
        if sink.log is not None:
            sink.log()

    async def _insist(self, sink: "_Detached", outcome: PublishOutcome) -> None:
        executor, delivery = self._executor, sink.delivery
        try:
            is_confirmed = await executor.repeat_until_confirmed(delivery, sink.copy, sink.properties, outcome)
            is_done = is_confirmed and (await executor.execute(delivery, (AckDelivery(),)) or delivery.is_orphaned)
            if is_done and sink.log is not None:
                sink.log()
        except StaleDelivery:
            pass
        except asyncio.CancelledError:
            if delivery.is_orphaned:
                executor.note_lost(delivery, "the app stopped before a copy of it was confirmed")
            raise
        except Exception as error:  # noqa: BLE001 - no delivery may stay unsettled for ever
            await self._on_failure(delivery, error)

    def _spawn(self, delivery: Delivery, work: Awaitable[None]) -> None:
        """A task for work that has to be waited for after all; the delivery is held until it ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def ended(_: object) -> None:
            self._tasks.discard(task)
            delivery.release()

        task.add_done_callback(ended)


class _Detached:
    """What the publisher passes the outcome to."""

    __slots__ = ("_copies", "copy", "delivery", "is_done", "log", "properties")

    def __init__(
        self,
        copies: DetachedCopies,
        delivery: Delivery,
        copy: PublishCopy,
        properties: Properties,
        log: Callable[[], None] | None,
    ) -> None:
        self._copies = copies
        self.delivery = delivery
        self.copy = copy
        self.properties = properties
        self.log = log
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def set_result(self, outcome: PublishOutcome, /) -> None:
        self.is_done = True
        self._copies.end(self, outcome)
