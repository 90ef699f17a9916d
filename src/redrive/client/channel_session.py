"""One channel on one connection, from open to close: matches calls with their answers, and takes the channel's events.

A session lives as long as its channel and is never reused: a publisher or consumer that outlives a channel opens
another session. The broker answers the calls on a channel in order, so a queue of waiters is enough to match them.
`Channel`, `PublishSession` and `ConsumeSession` are the three kinds.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from redrive import wire
from redrive.client.errors import ChannelClosed, ConnectionClosed
from redrive.wire import methods

if TYPE_CHECKING:
    from redrive.client.connection import Connection
    from redrive.client.consume_session import Delivery

_Reply = TypeVar("_Reply", bound=methods.Method)


class ChannelSession:
    """The base of all sessions. Subclasses override the `on_…` methods of the events they need; others are ignored."""

    def __init__(self, connection: "Connection", number: int) -> None:
        self.connection = connection
        self.number = number
        self.usable = True
        """False as soon as the channel is closing or gone: nothing more can be sent on it."""
        self.closed: asyncio.Future[ChannelClosed | ConnectionClosed] = asyncio.get_running_loop().create_future()
        self._waiters: deque[tuple[tuple[type, ...], asyncio.Future[Any], Callable[[Any], None] | None]] = deque()

    @property
    def is_open(self) -> bool:
        """Whether the channel can still be used."""
        return self.usable

    async def call(self, method: methods.Method, reply: type[_Reply]) -> _Reply:
        """Sends a method and waits for its answer. Raises `ChannelClosed` or `ConnectionClosed`.

        Raises `wire.LocalProtocolError`, with nothing sent, for what AMQP can't carry.
        """
        answer = await self._ask(method, (reply,))
        assert isinstance(answer, reply)
        return answer

    async def close(self) -> None:
        """Closes the channel and waits a moment for close-ok; a channel that is gone already is fine."""
        self.abandon()
        if not self.closed.done():
            await asyncio.wait([self.closed], timeout=self.connection.close_timeout_s)
        self.end_unanswered()

    def end_unanswered(self) -> None:
        """Ends the session without waiting for close-ok.

        A broker that stopped reading (a memory alarm, a paused machine) answers later or never; the channel's number
        stays taken until then.
        """
        self.abandon()
        self.end(ChannelClosed(200, "closed by us; the broker has not answered"))

    def abandon(self) -> None:
        """Sends what is still unsent and channel.close, and waits for nothing."""
        if not self.usable:
            return
        with contextlib.suppress(ConnectionClosed, wire.LocalProtocolError):
            self.on_closing()
            self.connection.send(self.number, methods.ChannelClose(reply_code=200, reply_text="goodbye"))
        self.usable = False

    def end(self, error: ChannelClosed | ConnectionClosed) -> None:
        """The channel is gone: every waiting call ends with `error`."""
        self.usable = False
        if self.closed.done():
            return
        self.closed.set_result(error)
        while self._waiters:
            _, waiter, _ = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
        self.on_end(error)

    # Events, for subclasses

    def on_method(self, method: methods.Method) -> None:
        """A cold method: the answer to a call, unless a subclass overrides this."""
        self._answer(method)

    def on_got(self, got: wire.Got) -> None:
        """The answer to basic.get."""
        self._answer(got)

    def on_delivery(self, delivery: "Delivery") -> None:
        """A message for a consumer."""

    def on_ack(self, ack: wire.Ack) -> None:
        """The broker confirms published messages."""

    def on_nack(self, nack: wire.Nack) -> None:
        """The broker refuses published messages."""

    def on_returned(self, returned: wire.Returned) -> None:
        """A mandatory message that no queue took."""

    def on_writable(self) -> None:
        """The connection accepts publishes again: the socket has room, and the broker does not block."""

    def on_closing(self) -> None:
        """We are about to close the channel: the last chance to send something on it."""

    def on_end(self, error: ChannelClosed | ConnectionClosed) -> None:
        """The channel is gone; waiting calls have ended."""

    async def _ask(
        self,
        method: methods.Method,
        replies: tuple[type, ...],
        unclaimed: Callable[[Any], None] | None = None,
    ) -> object:
        """Sends a method and waits for one of its answers.

        `unclaimed` is called with the answer if the caller was cancelled before it came.
        """
        if not self.usable:
            # The same error ends many calls; each raise would add to its traceback.
            gone = self.closed.result() if self.closed.done() else ChannelClosed(200, "closed by us")
            raise gone.with_traceback(None)
        waiter: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.connection.send(self.number, method)
        # A cancelled caller leaves its waiter in the queue: the answer still comes, and belongs to nobody else.
        self._waiters.append((replies, waiter, unclaimed))
        try:
            return await waiter
        except asyncio.CancelledError:
            if unclaimed is not None and waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                unclaimed(waiter.result())  # it came, but the caller was cancelled before it ran again
            raise

    def _answer(self, answer: object) -> None:
        if not self._waiters or isinstance(answer, (methods.BasicCancel, methods.ChannelFlow)):
            return
        replies, waiter, unclaimed = self._waiters[0]
        if not isinstance(answer, replies):
            # Ignored, it would leave its caller waiting for ever.
            due = " or ".join(reply.__name__ for reply in replies)
            self.connection.give_up(f"the broker answered {type(answer).__name__} where {due} was due")
            return
        self._waiters.popleft()
        if not waiter.done():
            waiter.set_result(answer)
        elif unclaimed is not None:
            unclaimed(answer)
