"""`native`: RabbitMQ's own delayed retry, no wait queues. Needs RabbitMQ 4.3.1 or newer.

    orders ──rejected with requeue──▶ orders, delivered again after min × n, at most max
           ──consumer publishes────▶ orders.parked      (the last run)
           ──delivery limit────────▶ orders.parked      (the backstop, when the last run dies)

Guarantees: as `ladder`, with fewer queues; a delayed message stays where it is, so a restart keeps it.
Not guaranteed: any delay that is not linear; anything below 4.3, where the broker silently ignores the arguments and
would redeliver a message without a pause (`compile --for` refuses it; the runtime refuses to start).

A delay shorter than the broker's own is not possible. For a longer one, from a `RetryAfter`, the consumer pauses for up
to a minute more; beyond that a copy with its time (`x-redrive-not-before`) goes to the end of the queue, and each time
it comes too early it occupies one place of the prefetch for a minute. For many long delays use `ladder`. Runs above
`attempts`, which a rule may allow, go by such a copy too, after their delay.
"""

from dataclasses import dataclass
from typing import ClassVar

from redrive.core import (
    PAUSE_MS_MAX,
    Backoff,
    Command,
    Counter,
    Defer,
    Linear,
    ReceivedMessage,
    Report,
    RequeueDelivery,
    Retry,
    read_deliveries,
)
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.deliveries import moves
from redrive.topology.model import DEFAULT_EXCHANGE, QueueType
from redrive.topology.option_types import Duration, DurationText, Invalid, Template, fill, option, parse_duration_ms
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes
from redrive.topology.shapes.safe_queues import AT_LEAST_ONCE, bindings_of, dead_letter_to, parking_queue
from redrive.topology.shapes.shape import ATTEMPTS, Built, Shape
from redrive.topology.shapes.traits import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeShape(Shape):
    """The broker delays a requeued message itself: min × deliveries, at most max."""

    name: ClassVar[str] = "native"
    traits: ClassVar[Traits] = Traits(
        quorum_only=True,
        min_version=(4, 3, 1),  # below, the broker ignores the delay and a message would be retried without a pause
        counts_requeues=False,
        ends_by_delivery_limit=True,
    )

    min: DurationText = option(Duration(), "30s", "the first delay; the n-th is n times as long")
    max: DurationText = option(Duration(), "30m", "the longest delay")
    attempts: int = option(ATTEMPTS, 4, "handler runs, the first included")
    parking: str = option(Template(("queue",)), "{queue}.parked", "names the parking queue")

    def check(self) -> None:
        """min may not exceed max."""
        if parse_duration_ms(str(self.min)) > parse_duration_ms(str(self.max)):
            raise Invalid(f"min ({self.min}) is longer than max ({self.max})", "swap them", ("min",))

    def backoff(self) -> Backoff:
        """As the broker delays: min × n, at most max."""
        return Linear(str(self.min), longest=str(self.max))

    def build(self, queue: DeclaredQueue) -> Built:
        """The queue with its delayed retry, and its parking queue."""
        self.queue_type(queue)
        parked = fill(self.parking, queue=queue.name)
        main = self.main_queue(
            queue,
            {
                "x-queue-type": QueueType.QUORUM.value,
                # Only requeues that count as failures are delayed; a consumer that goes away is not one.
                "x-delayed-retry-type": "failed",
                "x-delayed-retry-min": parse_duration_ms(str(self.min)),
                "x-delayed-retry-max": parse_duration_ms(str(self.max)),
                **dead_letter_to(parked),
                **AT_LEAST_ONCE,
                # The limit allows one delivery more than there are runs: the consumer parks on its last run, and
                # only if it dies in that window does the broker.
                "x-delivery-limit": self.attempts,
            },
        )
        return Built(
            queues=(main, parking_queue(parked)),
            bindings=bindings_of(queue),
            routes=RetryRoutes(
                shape=self.name,
                queue=queue.name,
                attempts=self.attempts,
                retry_by=MoveBy.REQUEUE,
                park_by=MoveBy.PUBLISH,
                counted_by=Counter.DELIVERIES,
                parking=Parking(queue=parked, exchange=DEFAULT_EXCHANGE, routing_key=parked),
            ),
        )

    def retry(
        self, decision: Retry, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """Rejected with requeue, which the broker delays and counts; for a longer delay the consumer pauses first.

        A reject carries no header, so a delay beyond the longest pause goes by a copy with its time. So does a run
        above the queue's attempts, which only a rule allows: the broker would end it by its delivery limit.
        """
        counter = routes.counted_by
        broker_ms = self.backoff().delay_ms(read_deliveries(message) + 1)
        missing_ms = decision.delay_ms - broker_ms
        if missing_ms > PAUSE_MS_MAX or report.retries + 1 >= routes.attempts:
            return moves.copy_to_queue_end(
                decision.delay_ms, decision.not_before_ms, message, report, counter, counted=True
            )
        return (*moves.pause(missing_ms), RequeueDelivery(counted=True))

    def defer(
        self, decision: Defer, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """There is no wait queue: a pause, then the end of the queue, so that its other messages go first."""
        counter = routes.counted_by
        return moves.copy_to_queue_end(
            decision.wait_ms, decision.not_before_ms, message, report, counter, counted=False
        )
