"""A queue with `retry: false`: no shape, so nothing waits and nothing is parked, but nothing is lost either.

    with a dead-letter exchange   done → ack; any failure → rejected without requeue, to that exchange, after one run
    without one (or a stream)     done → ack; any failure → a pause that grows to a minute, then again, without end

Without a dead-letter exchange a reject would delete the message, and so would a return, in the end, from a quorum queue
with a delivery limit. So it goes to the queue's own end, by a copy that is counted in `x-retry-count`: the others get
their turn, and the queue shows that something is wrong by not getting empty. A stream keeps its messages whatever its
consumers say, and a copy would be a new message to all of them: there it is only returned.

A message whose x-death no broker wrote is not rejected as it is, on which RabbitMQ 3.10 crashes: it goes to the queue's
own end as a copy without it, runs once more, and the copy is rejected.
"""

from typing import assert_never

from redrive.core import (
    PARK_DROPS,
    PAUSE_MS_MAX,
    AckDelivery,
    Backoff,
    Command,
    Counter,
    Decision,
    Defer,
    Done,
    Exponential,
    Parked,
    PublishCopy,
    ReceivedMessage,
    RejectDelivery,
    Report,
    Requeued,
    RequeueDelivery,
    Retry,
    Skip,
    has_odd_deaths,
    headers,
    parking_headers,
)
from redrive.topology.deliveries import moves
from redrive.topology.deliveries.message_origin import correct_route
from redrive.topology.effective_settings import Settings
from redrive.topology.model import DEFAULT_EXCHANGE, Queue, QueueType

ATTEMPTS_UNBOUNDED = 1_000_000_000
"""Nowhere to give up to."""

COUNTED_BY = Counter.HEADER
BACKOFF: Backoff = Exponential(1, longest=PAUSE_MS_MAX / 1000)


def dead_letters(queue: Queue, settings: Settings) -> bool:
    """Whether a rejected message goes anywhere but away or straight back to its queue."""
    if settings.dead_letter_exchange is None or queue.type == QueueType.STREAM:
        return False
    itself = settings.dead_letter_routing_key in (None, queue.name)
    return not (settings.dead_letter_exchange == DEFAULT_EXCHANGE and itself)


def parking_copy(decision: Parked, message: ReceivedMessage, report: Report, *, queue: Queue) -> PublishCopy | None:
    """The copy that goes where a reject would send it, None where its arguments do not say where that is."""
    exchange, key = (queue.arguments.get(f"x-dead-letter-{name}") for name in ("exchange", "routing-key"))
    if not isinstance(exchange, str) or queue.type == QueueType.STREAM:
        return None
    written = correct_route(parking_headers(decision, message, report), message)
    routing_key = key if isinstance(key, str) else message.routing_key
    drops = PARK_DROPS | {headers.DEATHS} if has_odd_deaths(message.header(headers.DEATHS)) else PARK_DROPS
    return PublishCopy(exchange=exchange, routing_key=routing_key, set_headers=written, drop_headers=drops)


def commands(
    decision: Decision, message: ReceivedMessage, report: Report, *, queue: Queue, dead_letters: bool
) -> tuple[Command, ...]:
    """What to tell the broker; the last command settles the delivery."""
    match decision:
        case Done() | Skip():
            return (AckDelivery(),)
        case Requeued(pause_ms=pause_ms):
            if queue.type == QueueType.STREAM:
                return (*moves.pause(pause_ms), RequeueDelivery(counted=False))
            return moves.requeue(pause_ms, message, report, COUNTED_BY)
        case Defer(wait_ms=delay_ms, not_before_ms=not_before_ms):
            counted = False
        case Retry() | Parked() if dead_letters and has_odd_deaths(message.header(headers.DEATHS)):
            delay_ms, not_before_ms, counted = 0, 0, True
        case Retry() | Parked() if dead_letters:
            return (RejectDelivery(),)
        case Retry(delay_ms=delay_ms, not_before_ms=not_before_ms):
            counted = True
        case Parked():
            delay_ms, not_before_ms, counted = BACKOFF.delay_ms(report.retries + 1), 0, True
        case _:
            assert_never(decision)
    if queue.type == QueueType.STREAM:
        return (*moves.pause(delay_ms), RequeueDelivery(counted=False))
    return moves.copy_to_queue_end(delay_ms, not_before_ms, message, report, COUNTED_BY, counted=counted)
