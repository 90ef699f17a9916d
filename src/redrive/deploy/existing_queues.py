"""Queues that exist and are not as declared: which can be used as they are, and what to write to use the others.

Redrive adds to a document's quorum queues what makes them safe. Queues that the document's own software declared have
none of it, and RabbitMQ can't change a queue in place: then the file has to say that it wants them as they are.
"""

from redrive.deploy.apply import Difference
from redrive.topology import Compiled, DocumentedShape, QueuePlan, QueueType

_NOT_SET = "not set"
_ADDED = ("x-delivery-limit", "x-dead-letter-strategy", "x-overflow")
_LITERALLY = "at_least_once: false, safe_limits: false"


def usable_queues(compiled: Compiled) -> frozenset[str]:
    """The declared queues that lose nothing if they lack their dead-letter settings: what fails is parked by a publish.

    Whoever consumes them warns of what is different.
    """
    plans = (compiled.queue(one.name) for one in compiled.declared)
    return frozenset(one.name for one in plans if not one.relies_on_dead_lettering)


def as_documented(compiled: Compiled, difference: Difference) -> str:
    """What to write in the file to use a queue as its document has it; "" where that is not what is different."""
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
    """The plan of the declared queue that a queue is or stands around."""
    for one in compiled.retry_routes:
        if queue in (one.queue, one.parking.queue, *(wait.queue for wait in one.waits)):
            return compiled.queue(one.queue)
    return None
