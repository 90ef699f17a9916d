"""What a delivery's headers say about its past, worked out once for all deliveries that are alike in them.

When a dependency is down thousands of messages fail in the same second. They have died alike, and most have the same
headers, to the byte: one of them is read, and the others are looked up by these bytes and the way they came. Where each
has a header of its own (a trace), those that have the same x-death and no header of ours are still alike.
"""

from typing import NamedTuple

from redrive import core
from redrive.client import Delivery
from redrive.core import Counter, count_retries, headers, own_deaths
from redrive.runtime.views import DeliveryLetter
from redrive.topology import QueuePlan
from redrive.wire import cut_headers

_KEPT_MAX, _BYTES_MAX = 256, 4096
_ORIGINAL = b"x-original-"
WRITTEN = ("x-redrive", "x-retry-", "x-final-", _ORIGINAL.decode())
"""How the headers begin that are written on copies."""
_MARKS = (*(each.encode() for each in WRITTEN), b"\x02CC", b"\x03BCC")
"""What the raw bytes contain where a message may have a header that is written, or one that must be kept elsewhere; a
key of a table has its length before it."""


class Past(NamedTuple):
    """How often a message was retried, whether it brings what a reject must not take along, how it first came to the
    queue as far as its deaths tell, the key it was first published with, whether its headers may have one among them
    that a copy has to replace or to strip, and whether its x-death is one that no broker wrote."""

    retries: int
    must_be_copied: bool
    route: tuple[str, str] | None
    routing_key: str
    is_marked: bool
    has_odd_deaths: bool = False


class Pasts:
    """The pasts of the deliveries of one queue."""

    def __init__(self, plan: QueuePlan) -> None:
        self._plan = plan
        self._counter = plan.counted_by
        # A header that is read below and is not x-death makes a delivery one of its own.
        self._mark = _ORIGINAL if self._counter is Counter.REJECTIONS else self._counter.value.encode()
        self._by_headers = _Kept()
        self._by_deaths = _Kept()

    def of(self, delivery: Delivery) -> Past:
        """The past of one delivery."""
        letter = DeliveryLetter(delivery, self._plan)
        # Nothing else is read for it: what its headers are worth is told by its body too.
        key = (delivery.route, delivery.redelivered, letter.belief, cut_headers(delivery.header))
        past = self._by_headers.get(key)
        if past is None:
            past = self._by_headers.keep(key, self._look_up(letter, key[3] or b""))
        return past

    def _look_up(self, letter: DeliveryLetter, table: bytes) -> Past:
        is_marked = any(mark in table for mark in _MARKS)
        if is_marked or self._mark in table:
            return self._read(letter, is_marked)
        # Without a mark of ours there is nothing to believe.
        count = letter.header(headers.DELIVERY_COUNT)
        key = (letter.delivery.route, letter.redelivered, count if isinstance(count, int) else 0, letter.raw_deaths())
        past = self._by_deaths.get(key)
        if past is None:
            past = self._by_deaths.keep(key, self._read(letter, is_marked))
        return past

    def _read(self, letter: DeliveryLetter, is_marked: bool) -> Past:
        has_odd_deaths = core.has_odd_deaths(letter.header(headers.DEATHS))
        return Past(
            retries=count_retries(letter, self._counter),
            must_be_copied=self._plan.must_be_copied(letter),
            route=own_deaths(letter).route,
            routing_key=self._plan.handler_routing_key(letter),
            is_marked=is_marked or has_odd_deaths,
            has_odd_deaths=has_odd_deaths,
        )


class _Kept(dict[tuple[tuple[str, str], bool, object, bytes | None], Past]):
    """Pasts by a way and the bytes that tell them, not too many and not too large."""

    def keep(self, key: tuple[tuple[str, str], bool, object, bytes | None], past: Past) -> Past:
        """Keeps one, and gives it back."""
        told = key[3]
        if told is None or len(told) <= _BYTES_MAX:
            if len(self) >= _KEPT_MAX:
                self.clear()
            self[key] = past
        return past
