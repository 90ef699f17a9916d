"""One channel's worth of consuming: deliveries that can be settled, and their acks said together.

Settling a delivery of a channel that is gone raises `StaleDelivery`: nothing was sent, and the message comes again.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive import wire
from redrive.client.errors import AlreadySettled, StaleDelivery
from redrive.client.resting import REST_S, Pace
from redrive.client.session import ChannelSession
from redrive.client.settling import STRAGGLERS_S, Settling
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.connection import Connection

_ABOVE_ALL_TAGS = 1 << 64


class Delivery(wire.Delivery):
    """A message in hand. Settle it once: `ack`, `nack` or `reject`; with `no_ack` it came settled."""

    __slots__ = ("session",)
    session: "ConsumeSession"

    @property
    def queue(self) -> str:
        """The queue it was consumed from."""
        return self.session.queue

    @property
    def is_stale(self) -> bool:
        """Whether its channel is gone, so that it can't be settled any more and comes again."""
        return not self.session.usable and not self.session.no_ack

    @property
    def comes_again(self) -> bool:
        """Whether the broker has it back for certain. Not where it is orphaned."""
        return self.is_stale and not self.is_orphaned

    @property
    def is_orphaned(self) -> bool:
        """Whether its queue is gone, or the broker cancelled its consumer, so that it may be: then this is all there is
        of the message. A consumer timeout on 4.3 looks the same, and there the broker has it back."""
        session = self.session
        return (session.queue_is_gone or session.cancelled.done()) and not session.no_ack

    def ack(self, *, multiple: bool = False) -> None:
        """Done. Raises `StaleDelivery` if its channel is gone, `AlreadySettled` the second time."""
        session = self.session
        if not session.usable:
            raise StaleDelivery(self.delivery_tag, session.queue)
        settling = session.settling
        tag = self.delivery_tag
        if tag != settling.floor + 1 and settling.is_settled(tag):
            raise AlreadySettled(tag, session.queue)
        if multiple:
            settling.ack_up_to(tag)
        else:
            settling.ack(tag)
        session.acks_soon()

    def nack(self, *, requeue: bool, multiple: bool = False) -> None:
        """Back to the queue, or to its dead-letter exchange. Raises as `ack` does."""
        self._check()
        settling = self.session.settling
        if multiple:
            settling.nack_up_to(self.delivery_tag, requeue=requeue)
        elif requeue:
            settling.give_back(self.delivery_tag, counted=False)
        else:
            settling.discard(self.delivery_tag)
        self.session.acks_soon()

    def reject(self, *, requeue: bool) -> None:
        """Like `nack` for one message; on quorum queues of 4.3 only a reject counts as a failed delivery."""
        session = self.session
        settling = session.settling
        tag = self.delivery_tag
        if not session.usable or (tag != settling.floor + 1 and settling.is_settled(tag)):
            self._check()
        if requeue:
            settling.give_back(tag, counted=True)
        else:
            settling.discard(tag)
        session.acks_soon()

    def hold(self) -> None:
        """Counts it as in hand although its handler is about to end; whoever says so settles it, and says `release`."""
        self.session.held.count += 1

    def release(self) -> None:
        """It is not held any longer."""
        self.session.held.count -= 1

    def _check(self) -> None:
        if not self.session.usable:
            raise StaleDelivery(self.delivery_tag, self.session.queue)
        if self.session.settling.is_settled(self.delivery_tag):
            raise AlreadySettled(self.delivery_tag, self.session.queue)


class Held:
    """How many deliveries are in hand although their handlers have ended.

    A consumer's sessions share one: what was held when a channel went is still somebody's work.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class ConsumeSession(ChannelSession):
    """A channel with one consumer."""

    def __init__(
        self,
        queue: str,
        prefetch: int,
        handle: Callable[[Delivery], None],
        *,
        no_ack: bool,
        held: Held,
    ) -> None:
        super().__init__()
        self.queue = queue
        self.no_ack = no_ack
        self._prefetch = prefetch
        self._handle = handle
        self._dirty = False
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(prefetch, self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self.settling: Settling
        self.held = held
        self.cancelled: asyncio.Future[str] = self._loop.create_future()
        """The broker stopped us: the queue was deleted, moved, or a consumer timeout passed."""
        self.queue_is_gone = False
        """Whether the queue was seen to be missing since we consumed from it."""

    def attach(self, connection: "Connection", number: int) -> None:
        """As soon as there is a number, there is something to settle on."""
        super().attach(connection, number)
        self.settling = Settling(connection.amqp, number)
        if self.no_ack:
            # An ack the broker does not wait for closes the channel, and what is on its way there is lost.
            self.settling.floor = _ABOVE_ALL_TAGS

    def on_delivery(self, delivery: wire.Delivery) -> None:
        """To the handler it goes."""
        assert isinstance(delivery, Delivery)
        delivery.session = self
        self._handle(delivery)

    def on_method(self, method: methods.Method) -> None:
        """basic.cancel is the broker's own; anything else answers a call."""
        if isinstance(method, methods.BasicCancel):
            if not self.cancelled.done():
                self.cancelled.set_result(method.consumer_tag)
            return
        super().on_method(method)

    def on_closing(self) -> None:
        """What was acked must be known to the broker before the channel goes, or it delivers it again."""
        self.settling.write(stragglers=True)

    def acks_soon(self) -> None:
        """The acks of this turn of the event loop go out at its end, in one frame where they are in a row."""
        if not self._dirty:
            self._dirty = True
            self.connection.before_flush(self._write)

    def _write(self) -> None:
        self._dirty = False
        if not self.usable:
            return
        if self._pace.is_rest_due(self.settling.floor, self._loop.time()):
            self.connection.rest(REST_S)
        waiting = len(self.settling.stragglers)
        # Waiting acks must not starve the prefetch: once they hold a quarter of it they go out at once.
        self.settling.write(stragglers=waiting * 4 >= self._prefetch > 0)
        if self.settling.stragglers and self._timer is None:
            self._timer = self._loop.call_later(STRAGGLERS_S, self._write_stragglers)

    def _write_stragglers(self) -> None:
        self._timer = None
        if self.usable:
            self.settling.write(stragglers=True)
            self.connection.flush_soon()
