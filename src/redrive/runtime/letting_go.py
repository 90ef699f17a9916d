"""Deliveries whose runs come to nothing: the channel went before the end, the task was cancelled, the app stops."""

import asyncio

from redrive.client import ClientError, Delivery
from redrive.core import Observer
from redrive.runtime.ending import Ending
from redrive.runtime.executing import Executor

_LET_GO_S = 1.0


class LettingGo:
    """Lets go of the deliveries of one queue."""

    def __init__(self, queue: str, ending: Ending, executor: Executor, observer: Observer) -> None:
        self._queue = queue
        self._ending = ending
        self._executor = executor
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._told: object = None

    def note_stale(self, delivery: Delivery) -> None:
        """Says once for each channel that work was done for nothing: as many as were in hand may end like this."""
        if delivery.is_stale and delivery.session is not self._told:
            self._told = delivery.session
            comes_again = "yes"
            if delivery.is_orphaned:
                comes_again = "no" if delivery.session.queue_is_gone else "unless its queue was deleted"
            self._observer.note(
                "runtime.stale",
                queue=self._queue,
                message_id=delivery.properties.message_id,
                comes_again=comes_again,
            )

    async def hand_back(self, delivery: Delivery) -> None:
        """Its handler has not ended, and won't. When the app stops it goes back as it was: an orderly stop is no death,
        and three of them must not park a message that only takes long."""
        if not self._executor.is_stopping:
            self.let_go_soon(delivery)
            return
        try:
            await self._ending.give_back(delivery)
        except ClientError:  # its channel is gone, and it comes again
            pass

    def let_go_soon(self, delivery: Delivery) -> None:
        """Our task was cancelled. If its consumer is being closed, the delivery goes back with the channel. If not (a
        handler has cancelled its own task), nobody else would ever settle it; it comes again, as after a crash."""

        if delivery.is_orphaned:
            self._executor.note_lost(delivery, "its handler was cancelled")
            return

        def let_go() -> None:
            try:
                delivery.reject(requeue=True)
            except ClientError:  # gone with its channel, or settled after all
                return
            self._observer.note("runtime.failed", queue=self._queue, error="its task was cancelled by somebody else")

        if not self._loop.is_closed():
            self._loop.call_later(_LET_GO_S, let_go)
