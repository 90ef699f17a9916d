"""Queues that lose no message: the arguments that make them safe, and what is refused because it would not be.

Shapes build their queues from these. The delivery limits are explained in docs/decisions/0004-delivery-limits.md.
"""

from collections.abc import Mapping
from typing import Any

from redrive.topology.argument_table import Arguments
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.model import DEFAULT_EXCHANGE, Binding, Queue, QueueType
from redrive.topology.option_types import Invalid
from redrive.topology.retry_routes import Wait

DELIVERY_LIMIT_MAIN = 20
"""Deliveries before a main queue gives up, where its deaths go to parking. It is 4.x's default, explicit for 3.10."""

DELIVERY_LIMIT_NEVER = 1_000_000
"""As good as no limit. Not -1: 3.10 takes that for "discard on the first requeue". Used wherever reaching a limit would
drop a message: in wait and parking queues, and in main queues whose deaths go into a retry loop."""

AT_LEAST_ONCE = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
"""Dead-lettering that waits for the target's confirm. With the overflow drop-head RabbitMQ would silently make it
at-most-once."""


def bindings_of(queue: DeclaredQueue) -> tuple[Binding, ...]:
    """The bindings an author declared for a queue."""
    return tuple(
        Binding(source=one.exchange, destination=queue.name, routing_key=one.key, arguments=one.arguments)
        for one in queue.sources
    )


def dead_letter_to(queue_name: str) -> dict[str, Any]:
    """The arguments that dead-letter straight to one queue, through the default exchange."""
    return {"x-dead-letter-exchange": DEFAULT_EXCHANGE, "x-dead-letter-routing-key": queue_name}


def wait_queue(wait: Wait, queue_name: str) -> Queue:
    """A quorum queue that holds messages for one delay and dead-letters them back to one queue, at least once."""
    return Queue(
        name=wait.queue,
        arguments=Arguments(
            {
                "x-queue-type": QueueType.QUORUM.value,
                "x-message-ttl": wait.delay_ms,
                **dead_letter_to(queue_name),
                **AT_LEAST_ONCE,
                "x-delivery-limit": DELIVERY_LIMIT_NEVER,
            }
        ),
    )


def parking_queue(name: str) -> Queue:
    """A quorum queue that keeps every message: no TTL, length limit or expiry, and a delivery limit out of reach."""
    return Queue(
        name=name,
        arguments=Arguments({"x-queue-type": QueueType.QUORUM.value, "x-delivery-limit": DELIVERY_LIMIT_NEVER}),
    )


def refuse_loop_deaths(queue: DeclaredQueue, arguments: Mapping[str, Any], shape: str) -> None:
    """Refuses arguments that would dead-letter messages into the shape's own retry loop without a reject.

    A message that expires or overflows goes main → retry → main, and the broker drops it there as a cycle.
    """
    every = {**arguments, **queue.arguments}
    if "x-message-ttl" in every:
        raise Invalid(
            f"in shape {shape} an expired message would enter the retry loop, where RabbitMQ drops it",
            "leave x-message-ttl out, or use shape ladder, which parks it",
            ("arguments", "x-message-ttl"),
        )
    for key in ("x-max-length", "x-max-length-bytes"):
        if key in every and every.get("x-overflow") != "reject-publish":
            raise Invalid(
                f"in shape {shape} an overflowing message would enter the retry loop, where RabbitMQ drops it",
                "add x-overflow: reject-publish, or use shape ladder, which parks it",
                ("arguments", key),
            )


def refuse_temporary(queue: DeclaredQueue) -> None:
    """Refuses a queue that the broker may delete, together with its messages and those that wait to come back to it."""
    if "x-expires" in queue.arguments:
        raise Invalid(
            "a queue that expires is deleted with its messages, and its waiting retries have nowhere to go back to",
            "leave x-expires out, or say retry: false",
            ("arguments", "x-expires"),
        )
    for key, wanted in (("durable", True), ("auto_delete", False)):
        if getattr(queue, key) is not wanted:
            what = "is gone after a restart" if key == "durable" else "is deleted with its last consumer"
            raise Invalid(
                f"a queue that {what} loses its messages, and its waiting retries have nowhere to go back to",
                f"leave {key} out, or say retry: false",
                (key,),
            )
