"""`ladder`, the default: one wait queue per delay, quorum throughout, parking that never discards.

    orders ──consumer publishes──▶ orders.wait.30s ──after 30s──▶ orders
           ──consumer publishes──▶ orders.parked            (runs spent, or not worth retrying)
           ──delivery limit 20───▶ orders.parked            (the consumer dies on it again and again)

Guarantees: a message comes back to the failed queue only; delays never block each other; the hop back is at least once
(the wait queue keeps a message until the main queue has it); nothing expires, overflows or is dropped from parking.
Not guaranteed: order, and exactly-once: between a confirmed copy and the ack a crash leaves two copies with one id.
The same arguments are right on 3.10, 4.0 and 4.3.

A retry takes the shortest wait that is long enough. A delay below that wait's TTL is the message's own expiration. A
delay above all waits goes into the longest, again and again, until the time in `x-redrive-not-before`; it is run and
counted once. A retry without a delay is a copy to the end of the queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from redrive.core import Backoff, Counter, Listed
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.model import DEFAULT_EXCHANGE, QueueType
from redrive.topology.option_types import Delays, DurationText, Template, fill, option, parse_duration_ms
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait
from redrive.topology.shapes.safe_queues import (
    AT_LEAST_ONCE,
    DELIVERY_LIMIT_MAIN,
    bindings_of,
    dead_letter_to,
    parking_queue,
    wait_queue,
)
from redrive.topology.shapes.shape import ATTEMPTS_BY_DELAYS, Built, Shape
from redrive.topology.shapes.traits import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderShape(Shape):
    """One quorum wait queue per delay, at-least-once back to the failed queue only; parked when all else fails."""

    name: ClassVar[str] = "ladder"
    traits: ClassVar[Traits] = Traits(quorum_only=True)

    delays: Sequence[DurationText] = option(Delays(), ("30s", "5m", "30m"), "how long to wait before each retry")
    attempts: int | None = option(
        ATTEMPTS_BY_DELAYS,
        None,
        "handler runs, the first included; by default one more than there are delays; the last repeats",
    )
    wait: str = option(
        Template(("queue", "delay"), required=("delay",)), "{queue}.wait.{delay}", "names the wait queues"
    )
    parking: str = option(Template(("queue",)), "{queue}.parked", "names the parking queue")

    def backoff(self) -> Backoff:
        """The delays in their order; the last repeats."""
        return Listed(str(delay) for delay in self.delays)

    def build(self, queue: DeclaredQueue) -> Built:
        """The queue, its wait queues (each delay once) and its parking queue."""
        self.queue_type(queue)
        parked = fill(self.parking, queue=queue.name)
        main = self.main_queue(
            queue,
            {
                "x-queue-type": QueueType.QUORUM.value,
                **dead_letter_to(parked),
                **AT_LEAST_ONCE,
                "x-delivery-limit": DELIVERY_LIMIT_MAIN,
            },
        )
        waits = tuple(self._wait(queue.name, str(delay)) for delay in dict.fromkeys(self.delays))
        return Built(
            queues=(main, *(wait_queue(wait, queue.name) for wait in waits), parking_queue(parked)),
            bindings=bindings_of(queue),
            routes=RetryRoutes(
                shape=self.name,
                queue=queue.name,
                attempts=len(self.delays) + 1 if self.attempts is None else self.attempts,
                retry_by=MoveBy.PUBLISH,
                park_by=MoveBy.PUBLISH,
                counted_by=Counter.HEADER,
                parking=Parking(queue=parked, exchange=DEFAULT_EXCHANGE, routing_key=parked),
                waits=waits,
            ),
        )

    def _wait(self, queue_name: str, delay: str) -> Wait:
        name = fill(self.wait, queue=queue_name, delay=delay)
        return Wait(delay_ms=parse_duration_ms(delay), queue=name, exchange=DEFAULT_EXCHANGE, routing_key=name)
