"""`native`: RabbitMQ's own delayed retry, no wait queues. Needs RabbitMQ 4.3.1 or newer.

    orders ──rejected with requeue──▶ orders, delivered again after min × n, at most max
           ──consumer publishes────▶ orders.parked      (the last run)
           ──delivery limit────────▶ orders.parked      (the backstop, when the last run dies)

Guarantees: as `ladder`, with fewer queues; a delayed message stays where it is, so a restart keeps it.
Not guaranteed: any other delay than linear; anything below 4.3, where the arguments are silently ignored and a message
would be redelivered without pause (`compile --for` refuses; the runtime refuses to start).
"""

from dataclasses import dataclass
from typing import ClassVar

from redrive.topology.arrangement import Arrangement, Parking, Way
from redrive.topology.declared import DeclaredQueue
from redrive.topology.model import DEFAULT_EXCHANGE, QueueType
from redrive.topology.options import Duration, DurationText, Invalid, Template, fill, option, parse_duration_ms
from redrive.topology.shapes.base import AT_LEAST_ONCE, ATTEMPTS, Built, Shape, bindings_of, returning_to
from redrive.topology.shapes.ladder import parking_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Native(Shape):
    """The broker delays a returned message itself: min × deliveries, at most max."""

    name: ClassVar[str] = "native"
    quorum_only: ClassVar[bool] = True

    min: DurationText = option(Duration(), "30s", "the first delay; the n-th is n times as long")
    max: DurationText = option(Duration(), "30m", "the longest delay")
    attempts: int = option(ATTEMPTS, 4, "handler runs, the first included")
    parking: str = option(Template(("queue",)), "{queue}.parked", "names the parking queue")

    def check(self) -> None:
        """min may not exceed max."""
        if parse_duration_ms(str(self.min)) > parse_duration_ms(str(self.max)):
            raise Invalid(f"min ({self.min}) is longer than max ({self.max})", "swap them", ("min",))

    def build(self, queue: DeclaredQueue) -> Built:
        """The queue with its delayed retry, and its parking queue."""
        self.queue_type(queue)
        parked = fill(self.parking, queue=queue.name)
        main = self.main_queue(
            queue,
            {
                "x-queue-type": QueueType.QUORUM.value,
                # Only returns that count as failures are delayed; a consumer that goes away is not one.
                "x-delayed-retry-type": "failed",
                "x-delayed-retry-min": parse_duration_ms(str(self.min)),
                "x-delayed-retry-max": parse_duration_ms(str(self.max)),
                **returning_to(parked),
                **AT_LEAST_ONCE,
                # The limit allows one delivery more than there are runs: the consumer parks on its last run, and
                # only if it dies in that window does the broker.
                "x-delivery-limit": self.attempts,
            },
        )
        return Built(
            queues=(main, parking_queue(parked)),
            bindings=bindings_of(queue),
            arrangement=Arrangement(
                shape=self.name,
                queue=queue.name,
                attempts=self.attempts,
                retry_by=Way.RETURN,
                park_by=Way.PUBLISH,
                parking=Parking(queue=parked, exchange=DEFAULT_EXCHANGE, routing_key=parked),
            ),
        )
