"""A queue with `retry: false`: it has no shape, no wait queue and no parking queue, and still no message is lost.

    with a dead-letter exchange   done → ack; any failure → rejected without requeue, to that exchange, after one run
    without one (or a stream)     done → ack; any failure → a pause that grows to a minute, then again, without end

Without a dead-letter exchange a reject would delete the message; requeues would too, in the end, on a quorum queue with
a delivery limit. So a copy goes to the end of the queue and is counted in `x-retry-count`: other messages get their
turn, and the queue that does not get empty shows that something is wrong. A stream keeps its messages whatever its
consumers do, and a copy would be a new message to all of them: there the delivery is only requeued.

A message with an x-death that no broker wrote is not rejected, because RabbitMQ 3.10 crashes on it: a copy without the
x-death goes to the end of the queue, runs once more, and is then rejected.
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
from redrive.topology.deliveries.message_origin import write_original_route
from redrive.topology.effective_settings import Settings
from redrive.topology.model import DEFAULT_EXCHANGE, Queue, QueueType

ATTEMPTS_UNBOUNDED = 1_000_000_000
"""There is no parking queue to give up to."""

COUNTED_BY = Counter.HEADER
BACKOFF: Backoff = Exponential(1, longest=PAUSE_MS_MAX / 1000)


def dead_letters(queue: Queue, settings: Settings) -> bool:
    """Whether a rejected message goes to another queue: not deleted, and not straight back to its own."""
    if settings.dead_letter_exchange is None or queue.type == QueueType.STREAM:
        return False
    itself = settings.dead_letter_routing_key in (None, queue.name)
    return not (settings.dead_letter_exchange == DEFAULT_EXCHANGE and itself)


def parking_copy(decision: Parked, message: ReceivedMessage, report: Report, *, queue: Queue) -> PublishCopy | None:
    """The copy that goes where a reject would send it; None if the queue's arguments do not say where that is."""
    exchange, key = (queue.arguments.get(f"x-dead-letter-{name}") for name in ("exchange", "routing-key"))
    if not isinstance(exchange, str) or queue.type == QueueType.STREAM:
        return None
    written = write_original_route(parking_headers(decision, message, report), message)
    routing_key = key if isinstance(key, str) else message.routing_key
    drops = PARK_DROPS | {headers.DEATHS} if has_odd_deaths(message.header(headers.DEATHS)) else PARK_DROPS
    return PublishCopy(exchange=exchange, routing_key=routing_key, set_headers=written, drop_headers=drops)


def commands(
    decision: Decision, message: ReceivedMessage, report: Report, *, queue: Queue, dead_letters: bool
) -> tuple[Command, ...]:
    """The commands in order; the last one settles the delivery."""
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
