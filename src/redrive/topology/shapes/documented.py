"""What the shapes have in common that come from other people's documents: FreeFlow, event-bus, Bookly and others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redrive.topology.argument_table import Arguments
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.model import Queue, QueueType
from redrive.topology.option_types import Flag, option
from redrive.topology.retry_routes import Wait
from redrive.topology.shapes.safe_queues import AT_LEAST_ONCE, DELIVERY_LIMIT_NEVER, dead_letter_to, refuse_loop_deaths
from redrive.topology.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedShape(Shape):
    """A shape that a document prescribes. What the document does not mention is added to quorum queues only."""

    at_least_once: bool = option(
        Flag(), True, "quorum only: dead-letter at least once, with reject-publish; false is the stock at-most-once"
    )
    safe_limits: bool = option(
        Flag(), True, "quorum only: delivery limits that never drop a message; false leaves the broker's default"
    )

    def type_arguments(self, queue: DeclaredQueue, *, limit: int, dead_letters: bool) -> dict[str, Any]:
        """The arguments beyond the document's own: on quorum queues what makes them safe.

        `x-queue-type: classic` is written only if the author wrote it, so that it also holds in a vhost with another
        default queue type; otherwise the document's own form is kept.
        """
        kind = self.queue_type(queue)
        if kind != QueueType.QUORUM:
            return {} if queue.type is None else {"x-queue-type": kind}
        return {
            "x-queue-type": QueueType.QUORUM.value,
            **({"x-delivery-limit": limit} if self.safe_limits else {}),
            **(AT_LEAST_ONCE if dead_letters and self.at_least_once else {}),
        }

    def dead_letter_queue(self, queue: DeclaredQueue, name: str) -> Queue:
        """The queue where dead letters stay."""
        arguments = self.type_arguments(queue, limit=DELIVERY_LIMIT_NEVER, dead_letters=False)
        return Queue(name=name, arguments=Arguments(arguments))

    def reject_loop(
        self, queue: DeclaredQueue, *, rejected_to: Mapping[str, Any], wait: Wait, dlq: str
    ) -> tuple[Queue, Queue, Queue]:
        """The main queue whose rejected messages wait and come back by themselves, its wait queue and its DLQ.

        As the documents have it, what dies in the main queue otherwise goes into the loop too. So its delivery limit
        must never be reached, and arguments by which messages expire or overflow are refused.
        """
        loop = self.type_arguments(queue, limit=DELIVERY_LIMIT_NEVER, dead_letters=True)
        arguments = {**rejected_to, **loop}
        refuse_loop_deaths(queue, arguments, self.name)
        waiting = Arguments({**dead_letter_to(queue.name), "x-message-ttl": wait.delay_ms, **loop})
        return (
            self.main_queue(queue, arguments),
            Queue(name=wait.queue, arguments=waiting),
            self.dead_letter_queue(queue, dlq),
        )
