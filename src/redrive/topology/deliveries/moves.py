"""How a decision about a delivery becomes broker commands: the moves that shapes choose from.

    move                what the broker is told
    requeue           (pause), back to the queue, uncounted if that can be
    copy_to_wait        copy into the shortest wait that is long enough, ack
    copy_to_queue_end     (pause), copy to the end of the queue itself, ack
    park                copy into the parking, ack; or reject, where the shape's literal form asks for it

Every row of commands ends with the one that settles the delivery, and nothing is acked before its copy is confirmed. A
copy that lives on leaves x-death behind: 3.10 would go on counting in it, and its cycle detection could drop the
message. So where the broker counts the attempts (`counted_by` other than HEADER), a copy carries the count so far in
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
from redrive.topology.deliveries.message_origin import correct_route, original_route
from redrive.topology.model import DEFAULT_EXCHANGE
from redrive.topology.retry_routes import MoveBy, RetryRoutes, Wait

RETURNS_MAX = 10
"""Half of what a main queue allows (its limit of 20). Up to 4.0 a quorum queue counts every nack as a delivery; a
message that is given back again and again must not reach the limit by that."""


def requeue(pause_ms: int, message: ReceivedMessage, report: Report, counter: Counter) -> tuple[Command, ...]:
    """Back to the queue, not counted as an attempt; by a copy where a quorum queue has counted many returns already.

    Where x-delivery-count is itself the count of attempts the broker's arithmetic is left alone. A publisher's own must
    not become that count: 4.3 counts no nack and would leave it on the message, so the return is one that the queue
    counts, and writes its own number for.
    """
    if counter is not Counter.DELIVERIES and read_deliveries(message) >= RETURNS_MAX:
        # The rest of a pause longer than the bound is given up: to give back is to try again soon.
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
    """A copy into the best wait; at once means the queue's own end. `counted`: whether a run has failed just now."""
    if delay_ms <= 0:
        return copy_to_queue_end(0, 0, message, report, routes.counted_by, counted=counted)
    wait = best_wait(routes.waits, delay_ms)
    copy = PublishCopy(
        exchange=wait.exchange,
        routing_key=wait.routing_key,
        # Below the TTL the delay is the message's own: it holds nobody up longer than the queue's TTL does.
        expiration_ms=delay_ms if delay_ms < wait.delay_ms else None,
        **_living(
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
    """A copy to the end of the queue it came from. A delay is spent here, and what is above the bound by the copy."""
    copy = PublishCopy(
        exchange=DEFAULT_EXCHANGE,
        routing_key=message.queue,
        **_living(
            message,
            report,
            counter,
            counted=counted,
            not_before_ms=not_before_ms if delay_ms > PAUSE_MS_MAX else None,
        ),
    )
    return (*pause(delay_ms), copy, AckDelivery())


def park(decision: Parked, message: ReceivedMessage, routes: RetryRoutes, report: Report) -> tuple[Command, ...]:
    """To the dead letters: where a reject would send it, with what is known about its end.

    An x-death that no broker wrote goes neither with a reject nor with the copy: 3.10 crashes on it, and the dead
    letters may die once more. The copy keeps it in `x-redrive-stripped`.
    """
    if routes.park_by is MoveBy.REJECT and not has_odd_deaths(message.header(headers.DEATHS)):
        return (RejectDelivery(),)
    return parking_copy(decision, message, routes, report), AckDelivery()


def parking_copy(decision: Parked, message: ReceivedMessage, routes: RetryRoutes, report: Report) -> PublishCopy:
    """The copy that goes to the dead letters by itself, whatever the shape would do."""
    written = correct_route(parking_headers(decision, message, report), message)
    parking = routes.parking
    drops = PARK_DROPS | {headers.DEATHS} if has_odd_deaths(message.header(headers.DEATHS)) else PARK_DROPS
    if routes.counted_by is Counter.REJECTIONS:
        # Where x-death counts, the two together are the count: who moves it back by hand goes on where it was.
        drops -= {headers.ATTEMPTS_BEFORE}
    return PublishCopy(
        exchange=parking.exchange,
        routing_key=written[headers.ORIGINAL_ROUTING_KEY] if parking.routing_key is None else parking.routing_key,
        set_headers=written,
        drop_headers=drops,
    )


def pause(pause_ms: int) -> tuple[Command, ...]:
    """A pause, bounded; none if there is nothing to wait for."""
    return (Pause(pause_ms=min(pause_ms, PAUSE_MS_MAX)),) if pause_ms > 0 else ()


def best_wait(waits: Iterable[Wait], delay_ms: int) -> Wait:
    """The shortest wait that is long enough, else the longest."""
    by_delay = sorted(waits, key=lambda wait: wait.delay_ms)
    return next((wait for wait in by_delay if wait.delay_ms >= delay_ms), by_delay[-1])


def _living(
    message: ReceivedMessage, report: Report, counter: Counter, *, counted: bool, not_before_ms: int | None
) -> dict[str, Any]:
    """`set_headers` and `drop_headers` of a copy that is to be run again."""
    written = {**(retry_headers(message, report) if counted else {}), **original_route(message)}
    drops = COPY_DROPS | {headers.NOT_BEFORE}
    if counter is Counter.HEADER:
        if counted:  # x-retry-count has it all now
            written.pop(headers.ATTEMPTS_BEFORE, None)
            drops |= {headers.ATTEMPTS_BEFORE}
    else:
        # The broker's count starts afresh with the copy, and nobody would raise an x-retry-count after this.
        written.pop(headers.RETRY_COUNT, None)
        written[headers.ATTEMPTS_BEFORE] = report.retries + (1 if counted else 0)
    if not_before_ms is not None:
        written[headers.NOT_BEFORE] = not_before_ms
    return {"set_headers": written, "drop_headers": drops.difference(written)}
