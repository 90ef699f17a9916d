"""How often a message was tried: one sum over whatever counts its retries.

    counter     where the number is                                  who raises it
    HEADER      x-retry-count                                        we, on every copy we make for a retry
    REJECTIONS  x-death, the entry (this queue, rejected)            the broker, on every reject without requeue
    DELIVERIES  x-delivery-count                                     a quorum queue, on every requeue (4.3: not on nack)

`x-redrive-attempts-before` is added to each: the retries done before a copy that made the broker's own count start
afresh. Anybody may write headers, so some count as 0: what is no whole number, and what describes another message. That
is one of our headers without a digest that fits (`ReceivedMessage.header` hides it), x-death on a message that did not
come back from a retry loop (`own_deaths`), and a delivery count on a message that was never delivered
(`read_deliveries`).

What survives (recorded from 3.10, 4.0 and 4.3 in tests/unit/core/recorded): a republish or redrive keeps x-retry-count;
x-death is passed on but goes on counting on 3.10 only (4.x starts a new one at the next death); x-delivery-count starts
afresh with every copy. Through a dead-lettering 4.3 carries it on, 3.10 begins again at 0, and 4.0 says 1 at once and
1 again after the next requeue. Classic queues do not count requeues at all.
"""

from enum import StrEnum

from redrive.core import headers
from redrive.core.headers import read_count
from redrive.core.received_messages import ReceivedMessage
from redrive.core.x_death import own_deaths


class Counter(StrEnum):
    """What counts the retries of a shape."""

    HEADER = "x-retry-count"
    REJECTIONS = "x-death"
    DELIVERIES = "x-delivery-count"


def count_retries(message: ReceivedMessage, counter: Counter) -> int:
    """The handler runs that failed before this delivery; the run now is one more."""
    before = read_count(message.header(headers.ATTEMPTS_BEFORE))
    match counter:
        case Counter.HEADER:
            return before + read_count(message.header(headers.RETRY_COUNT))
        case Counter.REJECTIONS:
            return before + own_deaths(message).rejections
        case Counter.DELIVERIES:
            return before + read_deliveries(message)


def read_deliveries(message: ReceivedMessage) -> int:
    """How many requeues a quorum queue has counted, 0 if it has counted none.

    Consumers see a publisher's own x-delivery-count until the queue writes one: before the first requeue (all
    versions), and on 4.3 also after a nack, which does not count there. Nobody can tell the two apart then. So a
    message that `brings_deliveries` is never requeued by a nack where this is the count of attempts.
    """
    return read_count(message.header(headers.DELIVERY_COUNT)) if message.redelivered else 0


def brings_deliveries(message: ReceivedMessage) -> bool:
    """Whether its publisher wrote its x-delivery-count: a queue counts only what was delivered before."""
    return not message.redelivered and read_count(message.header(headers.DELIVERY_COUNT)) > 0
