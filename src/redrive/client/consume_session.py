"""One channel with one consumer: deliveries that can be settled, and their acks sent together.

Settling a delivery of a channel that is gone raises `StaleDelivery`: nothing was sent, and the broker delivers the
message again.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive import wire
from redrive.client.channel_session import ChannelSession
from redrive.client.coalesced_acks import STRAGGLERS_S, CoalescedAcks
from redrive.client.errors import AlreadySettled, StaleDelivery
from redrive.client.read_pauses import PAUSE_S, SettleRate
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.connection import Connection

_ABOVE_ALL_TAGS = 1 << 64


class Delivery(wire.Delivery):
    """A delivered message. Settle it once: `ack`, `nack` or `reject`; with `no_ack` it came settled."""

    __slots__ = ()
    session: "ConsumeSession"

    @property
    def queue(self) -> str:
        """The queue it was consumed from."""
        return self.session.queue

    @property
    def is_stale(self) -> bool:
        """Whether its channel is gone: it can't be settled any more, and the broker delivers it again."""
        return not self.session.usable and not self.session.no_ack

    @property
    def comes_again(self) -> bool:
        """Whether the broker certainly has it back and delivers it again: it is stale, and not orphaned."""
        return self.is_stale and not self.is_orphaned

    @property
    def is_orphaned(self) -> bool:
        """Whether its queue is gone, or may be (the broker cancelled the consumer): this may be the only copy left.

        A consumer timeout on 4.3 looks the same, and there the broker has the message back.
        """
        session = self.session
        return (session.queue_is_gone or session.cancelled.done()) and not session.no_ack

    def ack(self, *, multiple: bool = False) -> None:
        """Done. Raises `StaleDelivery` if its channel is gone, `AlreadySettled` the second time."""
        session = self.session
        if not session.usable:
            raise StaleDelivery(self.delivery_tag, session.queue)
        acks = session.acks
        tag = self.delivery_tag
        if tag != acks.floor + 1 and acks.is_settled(tag):
            raise AlreadySettled(tag, session.queue)
        if multiple:
            acks.ack_up_to(tag)
        else:
            acks.ack(tag)
        session.acks_soon()

    def nack(self, *, requeue: bool, multiple: bool = False) -> None:
        """Requeues it, or discards it to the queue's dead-letter exchange. Raises as `ack` does."""
        self._check()
        acks = self.session.acks
        if multiple:
            acks.nack_up_to(self.delivery_tag, requeue=requeue)
        elif requeue:
            acks.requeue(self.delivery_tag, counted=False)
        else:
            acks.discard(self.delivery_tag)
        self.session.acks_soon()

    def reject(self, *, requeue: bool) -> None:
        """Like `nack` for one message; on quorum queues of 4.3 only a reject counts as a failed delivery."""
        session = self.session
        acks = session.acks
        tag = self.delivery_tag
        if not session.usable or (tag != acks.floor + 1 and acks.is_settled(tag)):
            self._check()
        if requeue:
            acks.requeue(tag, counted=True)
        else:
            acks.discard(tag)
        session.acks_soon()

    def hold(self) -> None:
        """Counts it as in progress after its handler has ended; the caller settles it and calls `release`."""
        self.session.held.count += 1

    def release(self) -> None:
        """Ends `hold`."""
        self.session.held.count -= 1

    def _check(self) -> None:
        if not self.session.usable:
            raise StaleDelivery(self.delivery_tag, self.session.queue)
        if self.session.acks.is_settled(self.delivery_tag):
            raise AlreadySettled(self.delivery_tag, self.session.queue)


class HeldCount:
    """How many deliveries are in progress although their handlers have ended (`Delivery.hold`).

    A consumer's sessions share one: a delivery that is held when its channel is lost is still in progress.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class ConsumeSession(ChannelSession):
    """A channel with one consumer."""

    def __init__(
        self,
        connection: "Connection",
        number: int,
        *,
        queue: str,
        prefetch: int,
        handle: Callable[[Delivery], None],
        no_ack: bool,
        held: HeldCount,
    ) -> None:
        super().__init__(connection, number)
        self.queue = queue
        self.no_ack = no_ack
        self._prefetch = prefetch
        self._handle = handle
        self._dirty = False
        self._loop = asyncio.get_running_loop()
        self._settle_rate = SettleRate(prefetch, self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self.acks = CoalescedAcks(connection.amqp, number)
        if no_ack:
            # An ack the broker does not wait for closes the channel, and what is on its way there is lost.
            self.acks.floor = _ABOVE_ALL_TAGS
        self.held = held
        self.cancelled: asyncio.Future[str] = self._loop.create_future()
        """Done when the broker cancelled the consumer: the queue was deleted or moved, or a consumer timeout passed."""
        self.queue_is_gone = False
        """Whether the queue was found missing after this consumer ended."""

    async def start(self, consume: methods.BasicConsume) -> str:
        """Starts the consumer; returns its consumer tag. Raises as `call` does."""
        await self.call(methods.BasicQos(prefetch_count=self._prefetch), methods.BasicQosOk)
        self.connection.amqp.set_delivery_type(self.number, Delivery, self)
        return (await self.call(consume, methods.BasicConsumeOk)).consumer_tag

    def on_delivery(self, delivery: Delivery) -> None:
        """Goes to the handler."""
        self._handle(delivery)

    def on_method(self, method: methods.Method) -> None:
        """A basic.cancel comes from the broker; anything else answers a call."""
        if isinstance(method, methods.BasicCancel):
            if not self.cancelled.done():
                self.cancelled.set_result(method.consumer_tag)
            return
        super().on_method(method)

    def on_closing(self) -> None:
        """Sends all acks: what the broker does not know to be acked when the channel closes, it delivers again."""
        self.acks.write(stragglers=True)

    def acks_soon(self) -> None:
        """Sends the acks of this turn of the event loop at its end, coalesced."""
        if not self._dirty:
            self._dirty = True
            self.connection.before_flush(self._write)

    def _write(self) -> None:
        self._dirty = False
        if not self.usable:
            return
        if self._settle_rate.is_pause_due(self.acks.floor, self._loop.time()):
            self.connection.pause_reading(PAUSE_S)
        waiting = len(self.acks.stragglers)
        # Waiting acks must not starve the prefetch: once they hold a quarter of it they go out at once.
        self.acks.write(stragglers=waiting * 4 >= self._prefetch > 0)
        if self.acks.stragglers and self._timer is None:
            self._timer = self._loop.call_later(STRAGGLERS_S, self._write_stragglers)

    def _write_stragglers(self) -> None:
        self._timer = None
        if self.usable:
            self.acks.write(stragglers=True)
            self.connection.flush_soon()
