"""The moves that shapes choose from: how a decision about a delivery becomes commands for the broker.

    move                commands
    requeue             (pause), requeue, uncounted where that is possible
    copy_to_wait        publish a copy to the shortest wait that is long enough, ack
    copy_to_queue_end   (pause), publish a copy to the end of the queue itself, ack
    park                publish a copy to the parking queue, ack; or reject, where the document's literal form does so

The last command of a move settles the delivery, and nothing is acked before its copy is confirmed. A copy that is to be
handled again does not take x-death along: 3.10 would go on counting in it, and its cycle detection could drop the
message. So where the broker counts the attempts (`counted_by` other than HEADER), the copy carries the count so far in
`x-redrive-attempts-before`.
"""

from collections.abc import Iterable
from typing import Any

from redrive.core import (
    COPY_DROPS,
    PARK_DROPS,
    PAUSE_MS_MAX,
    AckDelivery,
    Command,
    Counter,
    Parked,
    Pause,
    PublishCopy,
    ReceivedMessage,
    RejectDelivery,
    Report,
    RequeueDelivery,
    brings_deliveries,
    has_odd_deaths,
    headers,
    parking_headers,
    read_deliveries,
    retry_headers,
)
from redrive.topology.deliveries.message_origin import original_route, write_original_route
from redrive.topology.model import DEFAULT_EXCHANGE
from redrive.topology.retry_routes import MoveBy, RetryRoutes, Wait

REQUEUES_MAX = 10
"""Half of a main queue's delivery limit of 20. Quorum queues up to 4.0 count every nack as a delivery; a message
that is requeued again and again must not reach the limit by that."""


def requeue(pause_ms: int, message: ReceivedMessage, report: Report, counter: Counter) -> tuple[Command, ...]:
    """Back to the queue, not counted as an attempt; by a copy if a quorum queue has counted many requeues already.

    Where x-delivery-count is itself the number of attempts, there is never a copy: it would start the count anew. But a
    count that the publisher put on the message must not become that number. 4.3 does not count a nack and would leave
    the publisher's count there, so the requeue is one that the queue counts: it then writes its own number.
    """
    if counter is not Counter.DELIVERIES and read_deliveries(message) >= REQUEUES_MAX:
        # What a pause is longer than the bound is dropped: a requeued message is to be tried again soon.
        return copy_to_queue_end(min(pause_ms, PAUSE_MS_MAX), 0, message, report, counter, counted=False)
    return (*pause(pause_ms), RequeueDelivery(counted=counter is Counter.DELIVERIES and brings_deliveries(message)))


def copy_to_wait(
    delay_ms: int,
    not_before_ms: int,
    message: ReceivedMessage,
    routes: RetryRoutes,
    report: Report,
    *,
    counted: bool,
) -> tuple[Command, ...]:
    """A copy into the best wait; without a delay, to the end of the queue. `counted`: whether a run has just failed."""
    if delay_ms <= 0:
        return copy_to_queue_end(0, 0, message, report, routes.counted_by, counted=counted)
    wait = best_wait(routes.waits, delay_ms)
    copy = PublishCopy(
        exchange=wait.exchange,
        routing_key=wait.routing_key,
        # Below the queue's TTL the delay is the message's own expiration: no other message waits longer for it.
        expiration_ms=delay_ms if delay_ms < wait.delay_ms else None,
        **_retry_copy_headers(
            message,
            report,
            routes.counted_by,
            counted=counted,
            not_before_ms=not_before_ms if delay_ms > wait.delay_ms else None,
        ),
    )
    return copy, AckDelivery()


def copy_to_queue_end(
    delay_ms: int, not_before_ms: int, message: ReceivedMessage, report: Report, counter: Counter, *, counted: bool
) -> tuple[Command, ...]:
    """A copy to the end of the queue it came from. The consumer pauses for the delay; one above the bound goes along
    with the copy, as `x-redrive-not-before`."""
    copy = PublishCopy(
        exchange=DEFAULT_EXCHANGE,
        routing_key=message.queue,
        **_retry_copy_headers(
            message,
            report,
            counter,
            counted=counted,
            not_before_ms=not_before_ms if delay_ms > PAUSE_MS_MAX else None,
        ),
    )
    return (*pause(delay_ms), copy, AckDelivery())


def park(decision: Parked, message: ReceivedMessage, routes: RetryRoutes, report: Report) -> tuple[Command, ...]:
    """To the parking queue, with the reason in the headers if by a copy.

    A message with an x-death that no broker wrote is not rejected, and its copy leaves the x-death behind: 3.10 crashes
    on it when such a message is dead-lettered. The copy keeps it in `x-redrive-stripped`.
    """
    if routes.park_by is MoveBy.REJECT and not has_odd_deaths(message.header(headers.DEATHS)):
        return (RejectDelivery(),)
    return parking_copy(decision, message, routes, report), AckDelivery()


def parking_copy(decision: Parked, message: ReceivedMessage, routes: RetryRoutes, report: Report) -> PublishCopy:
    """The copy that parks a message, also where the shape would reject it."""
    written = write_original_route(parking_headers(decision, message, report), message)
    parking = routes.parking
    drops = PARK_DROPS | {headers.DEATHS} if has_odd_deaths(message.header(headers.DEATHS)) else PARK_DROPS
    if routes.counted_by is Counter.REJECTIONS:
        # Where x-death counts, the two together are the count; a message moved back by hand goes on counting from it.
        drops -= {headers.ATTEMPTS_BEFORE}
    return PublishCopy(
        exchange=parking.exchange,
        routing_key=written[headers.ORIGINAL_ROUTING_KEY] if parking.routing_key is None else parking.routing_key,
        set_headers=written,
        drop_headers=drops,
    )


def pause(pause_ms: int) -> tuple[Command, ...]:
    """A bounded pause; no command if there is nothing to wait for."""
    return (Pause(pause_ms=min(pause_ms, PAUSE_MS_MAX)),) if pause_ms > 0 else ()


def best_wait(waits: Iterable[Wait], delay_ms: int) -> Wait:
    """The shortest wait that is long enough, else the longest."""
    by_delay = sorted(waits, key=lambda wait: wait.delay_ms)
    return next((wait for wait in by_delay if wait.delay_ms >= delay_ms), by_delay[-1])


def _retry_copy_headers(
    message: ReceivedMessage, report: Report, counter: Counter, *, counted: bool, not_before_ms: int | None
) -> dict[str, Any]:
    """`set_headers` and `drop_headers` of a copy that is to be handled again."""
    written = {**(retry_headers(message, report) if counted else {}), **original_route(message)}
    drops = COPY_DROPS | {headers.NOT_BEFORE}
    if counter is Counter.HEADER:
        if counted:  # x-retry-count has it all now
            written.pop(headers.ATTEMPTS_BEFORE, None)
            drops |= {headers.ATTEMPTS_BEFORE}
    else:
        # The broker's count starts anew with the copy, and nothing would raise an x-retry-count from here on.
        written.pop(headers.RETRY_COUNT, None)
        written[headers.ATTEMPTS_BEFORE] = report.retries + (1 if counted else 0)
    if not_before_ms is not None:
        written[headers.NOT_BEFORE] = not_before_ms
    return {"set_headers": written, "drop_headers": drops.difference(written)}
