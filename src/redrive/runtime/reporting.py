"""A decision that was carried out, as the fields of its `runtime.decided` event."""

from typing import Any

from redrive.core import Decision, Defer, Done, Failure, GiveBack, Letter, Parked, ParkReason, Retry, Skip
from redrive.core import headers as names
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


def describe_decision(
    decision: Decision,
    letter: Letter,
    *,
    plan: QueuePlan,
    failure: Failure | None,
    attempt: int | None,
    attempts_max: int,
    handler_s: float | None,
) -> dict[str, object]:
    """What happened to which message, for a log line and for metrics; never its body.

    `attempt` and `handler_s` are None where no handler has run.
    """
    own_id = letter.attribute("message_id")
    fields: dict[str, object] = {
        "queue": letter.queue,
        "decision": WORDS[type(decision)],
        "reason": decision.reason.value if isinstance(decision, Parked) else None,
        "attempt": attempt,
        "attempts_max": attempts_max,
        "delay_ms": _delay_ms(decision),
        "error": None if failure is None else failure.text,
        "status": None if failure is None else failure.status,
        "handler_s": handler_s,
        "routing_key": plan.handler_routing_key(letter),
        "message_id": letter.header(names.MESSAGE_ID) if own_id is None else own_id,
        "correlation_id": letter.attribute("correlation_id"),
        "message_type": letter.attribute("type"),
        "shape": plan.shape_name,
    }
    if plan.shape_name == "service" and isinstance(decision, Parked) and decision.reason is ParkReason.ATTEMPTS:
        fields["tag"] = MAX_RETRIES_EXCEEDED
    return fields


def _delay_ms(decision: Decision) -> int | None:
    match decision:
        case Retry(delay_ms=delay_ms) | Defer(wait_ms=delay_ms) | GiveBack(pause_ms=delay_ms):
            return delay_ms
        case _:
            return None
