"""Deliveries whose handlers did not end: the channel was lost, the task was cancelled, or the app stops."""

import asyncio

from redrive.client import ClientError, Delivery
from redrive.core import Observer
from redrive.runtime.settlement.settler import Settler

_REQUEUE_S = 1.0


class AbandonedDeliveries:
    """Requeues the abandoned deliveries of one queue."""

    def __init__(self, queue: str, settler: Settler, observer: Observer) -> None:
        self._queue = queue
        self._settler = settler
        self._executor = settler.executor
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._logged_session: object = None

    def note_stale(self, delivery: Delivery) -> None:
        """Logs that work was done for nothing, once for each channel: all deliveries of a lost channel end like
        this."""
        if delivery.is_stale and delivery.session is not self._logged_session:
            self._logged_session = delivery.session
            comes_again = "yes"
            if delivery.is_orphaned:
                comes_again = "no" if delivery.session.queue_is_gone else "unless its queue was deleted"
            self._observer.note(
                "runtime.stale",
                queue=self._queue,
                message_id=delivery.properties.message_id,
                comes_again=comes_again,
            )

    async def requeue_unfinished(self, delivery: Delivery) -> None:
        """Requeues a delivery whose handler has not ended and will not. When the app stops it goes back uncounted: an
        orderly stop is no crash, and three of them must not park a message that only takes long."""
        if not self._executor.is_stopping:
            self.requeue_soon(delivery)
            return
        try:
            await self._settler.requeue(delivery)
        except ClientError:  # its channel is gone, and it comes again
            pass

    def requeue_soon(self, delivery: Delivery) -> None:
        """For a task that was cancelled. If its consumer is being closed, the delivery goes back with the channel. If
        not (a handler has cancelled its own task), nobody else would settle it, so it is requeued; it counts as a
        crash."""
        if delivery.is_orphaned:
            self._executor.note_lost(delivery, "its handler was cancelled")
            return

        def requeue() -> None:
            try:
                delivery.reject(requeue=True)
            except ClientError:  # gone with its channel, or settled after all
                return
            self._observer.note("runtime.failed", queue=self._queue, error="its task was cancelled by somebody else")

        if not self._loop.is_closed():
            self._loop.call_later(_REQUEUE_S, requeue)
