"""A decision that was carried out, told as the event `runtime.decided`."""

from typing import Any

from redrive.core import Decision, Defer, Done, Failure, GiveBack, Observer, Parked, ParkReason, Retry, Skip
from redrive.core import headers as names
from redrive.runtime.views import DeliveryLetter
from redrive.topology import QueuePlan

WORDS: dict[type[Any], str] = {
    Done: "ack",
    Retry: "retry",
    GiveBack: "requeue",
    Parked: "park",
    Defer: "defer",
    Skip: "skip",
}
MAX_RETRIES_EXCEEDED = "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"
"""The tag the service document asks for."""


def tell_decision(
    observer: Observer,
    decision: Decision,
    letter: DeliveryLetter,
    *,
    plan: QueuePlan,
    failure: Failure | None,
    routing_key: str,
    attempt: int | None,
    attempts_max: int,
    handler_s: float | None,
) -> None:
    """Says what happened to which message, for a log line and for metrics; never its body.

    `attempt` and `handler_s` are None where no handler has run; `routing_key` is the original one.
    """
    properties = letter.properties
    own_id = properties.message_id
    delay_ms: int | None = None
    reason: ParkReason | None = None
    match decision:
        case Retry():
            delay_ms = decision.delay_ms
        case Parked():
            reason = decision.reason
        case Defer():
            delay_ms = decision.wait_ms
        case GiveBack():
            delay_ms = decision.pause_ms
    observer.note(
        "runtime.decided",
        queue=letter.queue,
        decision=WORDS[type(decision)],
        reason=None if reason is None else reason.value,
        attempt=attempt,
        attempts_max=attempts_max,
        delay_ms=delay_ms,
        error=None if failure is None else failure.text,
        status=None if failure is None else failure.status,
        handler_s=handler_s,
        routing_key=routing_key,
        message_id=letter.header(names.MESSAGE_ID) if own_id is None else own_id,
        correlation_id=properties.correlation_id,
        message_type=properties.type,
        shape=plan.shape_name,
        tag=MAX_RETRIES_EXCEEDED if reason is ParkReason.ATTEMPTS and plan.shape_name == "service" else None,
    )
