"""How often a message was tried: one arithmetic over what counts.

    counter     where the number is                                  who raises it
    HEADER      x-retry-count                                        we, on every copy we make for a retry
    REJECTIONS  x-death, the entry (this queue, rejected)            the broker, on every reject without requeue
    DELIVERIES  x-delivery-count                                     a quorum queue, on every return (4.3: not on nack)

To each `x-redrive-attempts-before` is added: what was done before a copy that made the broker's own count start afresh.
Header values come from outside; what is no whole number counts as nothing, and what tells of another message's past
counts as nothing either: ours without a digest that fits (`Letter.header` hides it), x-death on what did not come back
from a loop (`own_deaths`), delivery counts on what was never delivered (`read_deliveries`).

What survives (recorded from 3.10, 4.0 and 4.3 in tests/unit/core/recorded): a republish or redrive keeps x-retry-count;
x-death is passed on but goes on counting on 3.10 only (4.x starts a new one at the next death); x-delivery-count starts
afresh with every copy. Through a dead-lettering 4.3 carries it on, 3.10 begins again at 0, and 4.0 says 1 at once and
1 again after the next return. Classic queues count no returns at all.
"""

from enum import StrEnum

from redrive.core import headers
from redrive.core.counts import read_count
from redrive.core.deaths import own_deaths
from redrive.core.letters import Letter


class Counter(StrEnum):
    """What counts the retries of a shape."""

    HEADER = "x-retry-count"
    REJECTIONS = "x-death"
    DELIVERIES = "x-delivery-count"


def count_retries(letter: Letter, counter: Counter) -> int:
    """The handler runs that were made before this delivery and failed; the attempt now is one more."""
    before = read_count(letter.header(headers.ATTEMPTS_BEFORE))
    match counter:
        case Counter.HEADER:
            return before + read_count(letter.header(headers.RETRY_COUNT))
        case Counter.REJECTIONS:
            return before + own_deaths(letter).rejections
        case Counter.DELIVERIES:
            return before + read_deliveries(letter)


def read_deliveries(letter: Letter) -> int:
    """The returns that a quorum queue has counted, 0 if it has counted none.

    A publisher's own x-delivery-count shines through until the queue writes one: before the first return (all), and on
    4.3 also after a nack, which does not count there. After that nobody can tell the two apart, so what
    `brings_deliveries` is never returned by a nack where this is the count of attempts.
    """
    return read_count(letter.header(headers.DELIVERY_COUNT)) if letter.redelivered else 0


def brings_deliveries(letter: Letter) -> bool:
    """Whether its x-delivery-count is its publisher's: no queue has counted what was never returned."""
    return not letter.redelivered and read_count(letter.header(headers.DELIVERY_COUNT)) > 0
