"""What a delivery's headers say about its earlier attempts, read once for all deliveries with the same headers.

When a dependency is down thousands of messages fail in the same second. Most of them have the same headers, to the
byte: one is read, and the others are looked up by these bytes and their route. If each has a header of its own (a trace
id), messages with the same x-death and no header of ours still share a state.
"""

from typing import NamedTuple

from redrive import core
from redrive.client import Delivery
from redrive.core import Counter, count_retries, headers, own_deaths
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.topology import QueuePlan
from redrive.wire import cut_headers

_KEPT_MAX, _BYTES_MAX = 256, 4096
_ORIGINAL = b"x-original-"
WRITTEN = ("x-redrive", "x-retry-", "x-final-", _ORIGINAL.decode())
"""How the headers that we write on copies begin."""
_MARKS = (*(each.encode() for each in WRITTEN), b"\x02CC", b"\x03BCC")
"""One of these is in the raw bytes if the message may have a header that we write, or one that must be kept elsewhere.
In a field table the length of a key comes before it."""


class RetryState(NamedTuple):
    """The earlier attempts of a message, by its headers.

    `must_be_copied`: it has headers that a reject must not carry on. `route`: the exchange and key it first came to the
    queue with, if its x-death says so. `routing_key`: the key it was first published with. `is_marked`: it may have
    headers that a copy has to replace or to strip. `has_odd_deaths`: no broker wrote its x-death.
    """

    retries: int
    must_be_copied: bool
    route: tuple[str, str] | None
    routing_key: str
    is_marked: bool
    has_odd_deaths: bool = False


class RetryStates:
    """The retry states of the deliveries of one queue."""

    def __init__(self, plan: QueuePlan) -> None:
        self._plan = plan
        self._counter = plan.counted_by
        # A delivery with a header that is read below, other than x-death, does not share its state by x-death.
        self._mark = _ORIGINAL if self._counter is Counter.REJECTIONS else self._counter.value.encode()
        self._by_headers = _Kept()
        self._by_deaths = _Kept()

    def of(self, delivery: Delivery) -> RetryState:
        """The retry state of one delivery."""
        message = DeliveredMessage(delivery, self._plan)
        # The state depends on nothing else. Whether the headers are believed depends on the body too, hence `trust`.
        key = (delivery.route, delivery.redelivered, message.trust, cut_headers(delivery.header))
        state = self._by_headers.get(key)
        if state is None:
            state = self._by_headers.keep(key, self._look_up(message, key[3] or b""))
        return state

    def _look_up(self, message: DeliveredMessage, table: bytes) -> RetryState:
        is_marked = any(mark in table for mark in _MARKS)
        if is_marked or self._mark in table:
            return self._read(message, is_marked)
        # Without a header of ours there is nothing to believe.
        count = message.header(headers.DELIVERY_COUNT)
        key = (
            message.delivery.route,
            message.redelivered,
            count if isinstance(count, int) else 0,
            message.raw_deaths(),
        )
        state = self._by_deaths.get(key)
        if state is None:
            state = self._by_deaths.keep(key, self._read(message, is_marked))
        return state

    def _read(self, message: DeliveredMessage, is_marked: bool) -> RetryState:
        has_odd_deaths = core.has_odd_deaths(message.header(headers.DEATHS))
        return RetryState(
            retries=count_retries(message, self._counter),
            must_be_copied=self._plan.must_be_copied(message),
            route=own_deaths(message).route,
            routing_key=self._plan.handler_routing_key(message),
            is_marked=is_marked or has_odd_deaths,
            has_odd_deaths=has_odd_deaths,
        )


class _Kept(dict[tuple[tuple[str, str], bool, object, bytes | None], RetryState]):
    """Retry states by route and raw headers; bounded in number and size."""

    def keep(self, key: tuple[tuple[str, str], bool, object, bytes | None], state: RetryState) -> RetryState:
        """Keeps a state and returns it."""
        raw = key[3]
        if raw is None or len(raw) <= _BYTES_MAX:
            if len(self) >= _KEPT_MAX:
                self.clear()
            self[key] = state
        return state
