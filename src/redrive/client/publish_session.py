"""One channel in confirm mode: matches each ack, nack and return of the broker with its publish.

The broker numbers publishes on a channel from 1; so do we. A return carries no number, only the message itself. It
comes before the ack of its message, and returns come in the order of the publishes. So a return belongs to a mandatory
publish after the last returned one that is still unconfirmed and equal to the byte; message ids play no part. Of
several equal ones it is the one acked first: the broker acks a returned message at once, a routed one later. If that
guess is wrong, each of two equal messages gets the other's outcome: still one of them is in a queue and one is not.

The broker may return a message altered (it takes the BCC header out, an interceptor of 4.x puts headers in). Then the
most similar publish is the returned one, and every other that it could have been is in doubt: a returned message must
never be reported as confirmed.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from redrive import wire
from redrive.client.channel_session import ChannelSession
from redrive.client.errors import ChannelClosed, ConnectionClosed
from redrive.client.publish_outcomes import CONFIRMED, NACKED, InDoubt, Outcome, Returned
from redrive.client.publish_window import PublishWindow

if TYPE_CHECKING:
    from redrive.client.connection import Connection

_LARGE_BODY_BYTES = 65_536
_AMBIGUOUS_RETURN = InDoubt("a message was returned that can't be told apart from this one")


class PublishBatch:
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


class OutcomeSink(Protocol):
    """Receives the outcome of one publish, and must not raise. An `asyncio.Future` is one."""

    def done(self) -> bool:
        """Whether it has the outcome, or was cancelled."""

    def set_result(self, outcome: Outcome, /) -> None:
        """Called once with the outcome: `InDoubt` with a `late` outcome if the deadline has passed."""


# sink, slot, exchange, routing key, header, body, mandatory, deadline; the sink is a PublishBatch, or an OutcomeSink
# with slot -1. A plain tuple: it is made for every publish.
_Pending = tuple[Any, int, str, str, bytes, bytes, bool, float]
NO_DEADLINE = float("inf")


class PublishSession(ChannelSession):
    """A channel in confirm mode with a bounded number of publishes in flight."""

    def __init__(self, connection: "Connection", number: int, *, in_flight_max: int, window: PublishWindow) -> None:
        super().__init__(connection, number)
        self._in_flight_max = in_flight_max
        self._window = window
        self._accepting = True
        self._pending: dict[int, _Pending] = {}
        self._next = 1
        self._after_return = 1
        self._returned: dict[tuple[Any, ...], list[Returned]] = {}
        self._suspected: dict[int, Returned | InDoubt] = {}
        self._settled: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        """One timer, for the earliest deadline: a timer for each publish would cost more than its confirm."""
        self.nacked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the broker has nacked something; see `Publisher` for why that matters."""

    @property
    def free_slots(self) -> int:
        """How many publishes may be sent now."""
        if not self._accepting or not self.connection.writable:
            return 0
        return self._in_flight_max - len(self._pending)

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
        sink: PublishBatch | OutcomeSink,
        slot: int = -1,
        until_s: float = NO_DEADLINE,
    ) -> None:
        """Sends one message; its outcome goes to `sink`. Raises `wire.LocalProtocolError`, with nothing sent.

        At `until_s` by the loop's clock a sink that is no batch gets `InDoubt`; the real outcome goes to its `late`.
        """
        connection = self.connection
        connection.amqp.publish(self.number, exchange, routing_key, header, body, mandatory)
        number = self._next
        self._next = number + 1
        self._pending[number] = (sink, slot, exchange, routing_key, header, body, mandatory, until_s)
        if until_s is not NO_DEADLINE and (self._timer is None or until_s < self._timer.when()):
            self._set_timer(until_s)
        if len(body) < _LARGE_BODY_BYTES:
            connection.flush_soon()
        else:
            # Sent at once, so that the socket says when it is full before the next one is copied.
            connection.flush()

    async def wait_settled(self) -> bool:
        """Takes no more publishes and waits a moment for the outcomes of those in flight; whether all have come."""
        self._accepting = False
        if self._settled is not None and self._settled.done():
            self._settled = None
        if self._settled is None:
            self._settled = asyncio.get_running_loop().create_future()
        if self._pending:
            await asyncio.wait([self._settled], timeout=self.connection.close_timeout_s)
        return not self._pending

    def resume(self) -> None:
        """Takes publishes again, after `wait_settled`."""
        self._accepting = self.usable
        self._window.release()

    def on_ack(self, ack: wire.Ack) -> None:
        """Confirms one publish, or with `multiple` every one up to it."""
        if ack.multiple:
            self._settle_up_to(ack.delivery_tag, CONFIRMED)
        else:
            record = self._pending.pop(ack.delivery_tag, None)
            if record is not None:
                self._settle(ack.delivery_tag, record, CONFIRMED)
        self._after_settling()

    def on_nack(self, nack: wire.Nack) -> None:
        """The broker refuses one publish, or with `multiple` every one up to it."""
        if not self.nacked.done():
            self.nacked.set_result(None)
        if nack.multiple:
            self._settle_up_to(nack.delivery_tag, NACKED)
        else:
            record = self._pending.pop(nack.delivery_tag, None)
            if record is not None:
                self._settle(nack.delivery_tag, record, NACKED)
        self._after_settling()

    def on_returned(self, returned: wire.Returned) -> None:
        """Finds the publish that was returned; its ack will settle it."""
        wanted = (returned.exchange, returned.routing_key, returned.header, returned.body)
        outcome = Returned(returned.reply_code, returned.reply_text)
        number = next(self._unreturned(lambda record: record[2:6] == wanted), None)
        if number is not None:
            self._returned.setdefault(wanted, []).append(outcome)
            self._after_return = number + 1
        else:
            self._suspect(outcome, returned.route, returned.body)

    def on_writable(self) -> None:
        """Slots are free again, perhaps without any confirm to come."""
        self._window.release()

    def on_closing(self) -> None:
        """No more publishes."""
        self._accepting = False

    def on_end(self, error: ChannelClosed | ConnectionClosed) -> None:
        """What is in flight ends in doubt, except what was returned: the broker certainly has not kept that."""
        self._accepting = False
        pending, self._pending = self._pending, {}
        doubt = InDoubt(str(error))
        for number, record in pending.items():
            self._settle(number, record, doubt)
        self._after_settling()

    def _settle_up_to(self, number: int, outcome: Outcome) -> None:
        pending = self._pending
        last = self._next - 1
        if number == 0 or number > last:  # 0 is "all so far" in AMQP
            number = last
        for one in range(next(iter(pending), last + 1), number + 1):
            record = pending.pop(one, None)
            if record is not None:
                self._settle(one, record, outcome)

    def _settle(self, number: int, record: _Pending, outcome: Outcome) -> None:
        if self._returned or self._suspected:
            outcome = self._decide(number, record, outcome)
        sink, slot = record[0], record[1]
        if slot >= 0:
            sink.put(slot, outcome)
        elif not sink.done():
            sink.set_result(outcome)

    def _set_timer(self, until_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(until_s, self._expire, until_s)

    def _expire(self, now_s: float) -> None:
        """Ends the wait for what is not confirmed by `now_s`. It stays in flight: its outcome may still come."""
        self._timer = None
        earliest_s = NO_DEADLINE
        for number, record in self._pending.items():
            sink, until_s = record[0], record[7]
            if until_s > now_s:
                earliest_s = min(earliest_s, until_s)
            elif not sink.done():
                late: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
                self._pending[number] = (late, *record[1:7], NO_DEADLINE)
                sink.set_result(InDoubt("no outcome before its deadline", late=late))
        if earliest_s < NO_DEADLINE:
            self._set_timer(earliest_s)

    def _decide(self, number: int, record: _Pending, outcome: Outcome) -> Outcome:
        """The outcome, given the returns so far. A nack stays one: what the broker nacks it has not returned."""
        suspicion = self._suspected.pop(number, None)
        if outcome is NACKED or not record[6]:
            return outcome
        if isinstance(suspicion, Returned):
            return suspicion
        returns = self._returned.get(record[2:6])
        if returns is None:
            return outcome if suspicion is None or outcome is not CONFIRMED else suspicion
        found = returns.pop(0)
        if not returns:
            del self._returned[record[2:6]]
        return found

    def _suspect(self, outcome: Returned, route: tuple[str, str], body: bytes) -> None:
        """No publish equals what was returned: take the most similar, and put every other as similar in doubt."""
        degrees: tuple[Callable[[_Pending], bool], ...] = (
            lambda record: record[2:4] == route and record[5] == body,
            lambda record: record[2:4] == route,
            lambda record: True,
        )
        for is_similar in degrees:
            candidates = list(self._unreturned(is_similar))
            if candidates:
                break
        for number in candidates[1:]:
            self._suspected.setdefault(number, _AMBIGUOUS_RETURN)
        for number in candidates[:1]:
            self._suspected[number] = outcome
            self._after_return = number + 1

    def _unreturned(self, is_wanted: Callable[[_Pending], bool]) -> Iterator[int]:
        pending = self._pending
        for number in range(max(self._after_return, next(iter(pending), self._next)), self._next):
            record = pending.get(number)
            if record is not None and record[6] and is_wanted(record):
                yield number

    def _after_settling(self) -> None:
        if self._timer is not None and not self._pending:
            self._timer.cancel()
            self._timer = None
        if self._window.waiting:
            self._window.release()
        if self._settled is not None and not self._pending and not self._settled.done():
            self._settled.set_result(None)
