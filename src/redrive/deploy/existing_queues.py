"""Queues that exist and differ from their declaration: which can be used as they are, and what to write to use others.

Redrive adds arguments to a document's quorum queues that make them safe. Queues that the document's own software
declared have none of them, and RabbitMQ can't change a queue in place: then the file has to say so.
"""

from redrive.deploy.apply import Difference
from redrive.topology import Compiled, DocumentedShape, QueuePlan, QueueType

_NOT_SET = "not set"
_ADDED = ("x-delivery-limit", "x-dead-letter-strategy", "x-overflow")
_LITERALLY = "at_least_once: false, safe_limits: false"


def usable_queues(compiled: Compiled) -> frozenset[str]:
    """The declared queues that lose nothing without dead-letter settings: failed messages are parked by a publish.

    Their consumer warns about the difference.
    """
    plans = (compiled.queue(one.name) for one in compiled.declared)
    return frozenset(one.name for one in plans if not one.relies_on_dead_lettering)


def as_documented(compiled: Compiled, difference: Difference) -> str:
    """What to write in the file to use a queue as its document has it; "" where something else differs."""
    plan = None if difference.queue is None else _owner(compiled, difference.queue)
    if plan is None or difference.argument not in _ADDED or difference.found != _NOT_SET:
        return ""
    if not isinstance(plan.shape, DocumentedShape) or plan.queue.type != QueueType.QUORUM:
        return ""
    if not (plan.shape.at_least_once or plan.shape.safe_limits):
        return ""
    return (
        f"to use it as it is, without what Redrive adds to keep messages safe, say retry: {{{_LITERALLY}}} for queue"
        f" {plan.name}"
    )


def _owner(compiled: Compiled, queue: str) -> QueuePlan | None:
    """The plan of the declared queue that a queue is, or that it waits or parks for."""
    for one in compiled.retry_routes:
        if queue in (one.queue, one.parking.queue, *(wait.queue for wait in one.waits)):
            return compiled.queue(one.queue)
    return None
