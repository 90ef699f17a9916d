"""What a delivery's headers say about its past, worked out once for all deliveries that are alike in them.

When a dependency is down thousands of messages fail in the same second. They have died alike, to the byte of their
x-death: one of them is read, and the others are looked up by these bytes and the way they came. Messages that carry
headers of ours tell more than that, and are read one by one.
"""

from typing import NamedTuple

from redrive.core import Counter, count_retries, deaths_in, headers
from redrive.runtime.views import DeliveryLetter
from redrive.topology import QueuePlan

_KEPT_MAX, _BYTES_MAX = 256, 4096
_OURS, _ORIGINAL = b"x-redrive-", b"x-original-"


class Past(NamedTuple):
    """How often a message was retried, whether it has died in this queue of something else than our rejects, how it
    first came to the queue as far as its deaths tell, and the key it was first published with."""

    retries: int
    died_otherwise: bool
    route: tuple[str, str] | None
    routing_key: str


class Pasts:
    """The pasts of the deliveries of one queue."""

    def __init__(self, plan: QueuePlan) -> None:
        self._plan = plan
        self._counter = plan.counted_by
        # A header that is read below and is not x-death makes a delivery one of its own.
        self._mark = _ORIGINAL if self._counter is Counter.REJECTIONS else self._counter.value.encode()
        self._kept: dict[tuple[tuple[str, str], bytes | None], Past] = {}

    def of(self, letter: DeliveryLetter) -> Past:
        """The past of one delivery."""
        delivery = letter.delivery
        header = delivery.header
        if _OURS in header or _ORIGINAL in header or self._mark in header:
            return self._read(letter)
        deaths = letter.raw_deaths()
        key = (delivery.route, deaths)
        past = self._kept.get(key)
        if past is None:
            past = self._read(letter)
            if deaths is None or len(deaths) <= _BYTES_MAX:
                if len(self._kept) >= _KEPT_MAX:
                    self._kept.clear()
                self._kept[key] = past
        return past

    def _read(self, letter: DeliveryLetter) -> Past:
        deaths = deaths_in(letter.header(headers.DEATHS), letter.queue)
        return Past(
            retries=count_retries(letter, self._counter),
            died_otherwise=deaths.otherwise,
            route=deaths.route,
            routing_key=self._plan.handler_routing_key(letter),
        )
