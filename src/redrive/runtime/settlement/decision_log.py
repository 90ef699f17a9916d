"""Decisions that were carried out, reported as the event `runtime.decided`."""

from typing import Any

from redrive.client import Delivery
from redrive.core import Decision, Defer, Done, Failure, Observer, Parked, ParkReason, Requeued, Retry, Skip
from redrive.core import headers as names
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.topology import QueuePlan

_ID = names.MESSAGE_ID.encode()
WORDS: dict[type[Any], str] = {
    Done: "ack",
    Retry: "retry",
    Requeued: "requeue",
    Parked: "park",
    Defer: "defer",
    Skip: "skipped",
}


class DecisionLog:
    """Reports the decisions about the deliveries of one queue."""

    def __init__(self, observer: Observer, plan: QueuePlan, *, attempts_max: int) -> None:
        self._note = observer.note
        self._shape = plan.shape_name
        self._spent_tag = plan.traits.attempts_spent_tag
        self._attempts_max = attempts_max

    def note_unread(self, decision: Parked, delivery: Delivery, failure: Failure) -> None:
        """Reports a message of which nothing was read."""
        self._note(
            "runtime.decided",
            queue=delivery.queue,
            decision=WORDS[type(decision)],
            reason=decision.reason.value,
            attempt=None,
            attempts_max=self._attempts_max,
            delay_ms=None,
            error=failure.text,
            status=None,
            handler_s=None,
            routing_key=delivery.route[1],
            message_id=None,
            correlation_id=None,
            message_type=None,
            shape=self._shape,
            tag=None,
        )

    def note(
        self,
        decision: Decision,
        message: DeliveredMessage,
        failure: Failure | None,
        routing_key: str,
        attempt: int | None,
        handler_s: float | None,
    ) -> None:
        """Reports what happened to which message, for a log line and for metrics; never its body.

        `attempt` and `handler_s` are None where no handler has run; `routing_key` is the original one.
        """
        own_id, correlation_id, message_type = message.properties.labels()
        if own_id is None and _ID in message.delivery.header:
            own_id = message.header(names.MESSAGE_ID)
        delay_ms = reason = error = status = tag = None
        # Retries come first: they are most of the decisions when everything fails.
        if isinstance(decision, Retry):
            delay_ms = decision.delay_ms
        elif isinstance(decision, Parked):
            reason = decision.reason.value
            if decision.reason is ParkReason.ATTEMPTS:
                tag = self._spent_tag
        elif isinstance(decision, Defer):
            delay_ms = decision.wait_ms
        elif isinstance(decision, Requeued):
            delay_ms = decision.pause_ms
        if failure is not None:
            error, status = failure.text, failure.status
        self._note(
            "runtime.decided",
            queue=message.queue,
            decision=WORDS[type(decision)],
            reason=reason,
            attempt=attempt,
            attempts_max=self._attempts_max if attempt is None else max(self._attempts_max, attempt),
            delay_ms=delay_ms,
            error=error,
            status=status,
            handler_s=handler_s,
            routing_key=routing_key,
            message_id=own_id,
            correlation_id=correlation_id,
            message_type=message_type,
            shape=self._shape,
            tag=tag,
        )
