"""Confirms on one channel: which publish a broker's ack, nack or return is about.

The broker numbers publishes on a channel from 1; so do we. A return carries no number, only the message itself. It
comes before the confirm of its message, and returns come in the order of the publishes; so a return belongs to the
first publish after the last one returned that is still unconfirmed and equal to the byte. Message ids play no part: two
copies of one message in flight are two publishes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from redrive import wire
from redrive.client.errors import ChannelClosed, ConnectionClosed
from redrive.client.outcomes import CONFIRMED, NACKED, InDoubt, Outcome, Returned
from redrive.client.session import ChannelSession


class Batch:
    """The outcomes of many publishes, and one future for all of them."""

    __slots__ = ("done", "missing", "outcomes")

    def __init__(self, size: int) -> None:
        self.outcomes: list[Outcome | None] = [None] * size
        self.missing = size
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if size == 0:
            self.done.set_result(None)

    def put(self, slot: int, outcome: Outcome) -> None:
        """The outcome of one of them."""
        self.outcomes[slot] = outcome
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)


# sink, slot, exchange, routing key, header, body; a sink is a Batch, or a Future with slot -1. A plain tuple: it is
# made for every publish.
_Pending = tuple[Any, int, str, str, bytes, bytes]


class PublishSession(ChannelSession):
    """A channel in confirm mode with a bounded number of publishes in flight."""

    def __init__(self, window: int, on_room: Callable[[], None]) -> None:
        super().__init__()
        self._window = window
        self._on_room = on_room
        self._pending: dict[int, _Pending] = {}
        self._next = 1
        self._lowest = 1
        self._after_return = 1
        self._returned: dict[int, Returned] = {}
        self.waiting_for_room = False

    @property
    def room(self) -> int:
        """How many publishes may be sent now."""
        if self.closed.done() or not self.connection.writable:
            return 0
        return self._window - len(self._pending)

    @property
    def in_flight(self) -> int:
        """How many publishes wait for their outcome."""
        return len(self._pending)

    def publish(
        self,
        exchange: str,
        routing_key: str,
        header: bytes,
        body: bytes,
        mandatory: bool,
        sink: "Batch | asyncio.Future[Outcome]",
        slot: int = -1,
    ) -> None:
        """Sends one message; its outcome goes to `sink`. Raises `wire.LocalProtocolError` and has sent nothing then."""
        connection = self.connection
        connection.amqp.publish(self.number, exchange, routing_key, header, body, mandatory)
        number = self._next
        self._next = number + 1
        self._pending[number] = (sink, slot, exchange, routing_key, header, body)
        connection.flush_soon()

    def on_confirm(self, confirm: wire.Ack) -> None:
        """Everything up to the number, or the number alone."""
        number = confirm.delivery_tag
        pending = self._pending
        if confirm.multiple:
            # 0 is "all so far" in AMQP.
            for one in range(self._lowest, (number or self._next - 1) + 1):
                record = pending.pop(one, None)
                if record is not None:
                    self._settle(one, record, CONFIRMED)
            self._lowest = max(self._lowest, (number or self._next - 1) + 1)
        else:
            record = pending.pop(number, None)
            if record is not None:
                self._settle(number, record, CONFIRMED)
        if self.waiting_for_room:
            self._on_room()

    def on_refusal(self, refusal: wire.Nack) -> None:
        """The broker could not take these."""
        first = self._lowest if refusal.multiple else refusal.delivery_tag
        for one in range(first, refusal.delivery_tag + 1):
            record = self._pending.pop(one, None)
            if record is not None:
                self._settle(one, record, NACKED)
        if self.waiting_for_room:
            self._on_room()

    def on_returned(self, returned: wire.Returned) -> None:
        """Finds the publish it is about; its confirm will settle it."""
        wanted = (returned.exchange, returned.routing_key, returned.header, returned.body)
        for one in range(self._after_return, self._next):
            record = self._pending.get(one)
            if record is not None and record[2:] == wanted:
                self._returned[one] = Returned(returned.reply_code, returned.reply_text)
                self._after_return = one + 1
                return

    def on_end(self, error: ChannelClosed | ConnectionClosed) -> None:
        """Whatever was in flight is in doubt, but for what was returned: that the broker certainly has not kept."""
        pending, self._pending = self._pending, {}
        doubt = InDoubt(str(error))
        for number, record in pending.items():
            self._settle(number, record, doubt)
        self._on_room()

    def _settle(self, number: int, record: _Pending, outcome: Outcome) -> None:
        if self._returned:
            outcome = self._returned.pop(number, outcome)
        sink, slot = record[0], record[1]
        if slot >= 0:
            sink.put(slot, outcome)
        elif not sink.done():
            sink.set_result(outcome)


class RoomQueue:
    """Publishers that wait their turn, first come first served."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self) -> None:
        """Until someone lets the next ones go."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(1)  # our turn had come, and someone else can use it
            raise

    def release(self, count: int) -> None:
        """Lets so many go."""
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
