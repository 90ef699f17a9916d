"""`requeue` (Bookly): a few immediate retries, then the DLQ through a topic DLX shared by the exchange's queues.

    bookings ──copy to its own end──▶ bookings              (3 times)
    bookings ──parked as bookings.dlq──▶ bookly.events.dlx (topic) ──bookings.dlq──▶ bookings.dlq

Guarantees: the document's names and arguments; three retries that really are three. The document counts nacks by
x-death, which a nack never raises, so a poison message would loop for ever; ours requeues by a counted copy
(`requeue: nack` is the literal form). Not guaranteed: any pause between retries, or order.

For a delay, from a `RetryAfter`, the consumer pauses for up to a minute before the copy; the copy carries what is left
(`x-redrive-not-before`), and the consumer pauses again when it comes round. The literal form counts by
x-delivery-count, so it ends on quorum queues up to 4.0 only: classic queues and 4.3 do not count a nack, and it loops
for ever. There a requeue without a failure, and a run above `attempts` that a rule allows, are copies and no nacks: a
nack would count as an attempt, and a count that is spent can't be raised.
"""

from dataclasses import dataclass
from typing import ClassVar

from redrive.core import (
    Backoff,
    Command,
    Counter,
    Defer,
    Fixed,
    ReceivedMessage,
    Report,
    RequeueDelivery,
    Retry,
    brings_deliveries,
)
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.deliveries import moves
from redrive.topology.model import Binding, Exchange, ExchangeType
from redrive.topology.option_types import Choice, Invalid, Template, Text, fill, option
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes
from redrive.topology.shapes.documented import DocumentedShape
from redrive.topology.shapes.safe_queues import DELIVERY_LIMIT_MAIN, bindings_of
from redrive.topology.shapes.shape import ATTEMPTS, Built


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueShape(DocumentedShape):
    """Bounded immediate requeues, then a DLQ per queue behind one topic DLX per exchange."""

    name: ClassVar[str] = "requeue"

    attempts: int = option(ATTEMPTS, 4, "handler runs, the first included: 3 requeues make 4")
    exchange: str | None = option(
        Text(optional=True), None, "the exchange the DLX is named after; by default the one the queue is bound to"
    )
    dlx: str = option(Template(("exchange",)), "{exchange}.dlx", "names the dead-letter exchange")
    dlq: str = option(Template(("queue",), required=("queue",)), "{queue}.dlq", "names the dead-letter queue")
    requeue: str = option(
        Choice(("copy", "nack")), "copy", "copy counts every retry; nack is the document's form and counts none"
    )
    park: str = option(
        Choice(("publish", "reject")), "publish", "publish keeps the error; reject is the document's form and can't"
    )

    def backoff(self) -> Backoff:
        """At once."""
        return Fixed(0)

    def build(self, queue: DeclaredQueue) -> Built:
        """The queue with its DLX, and its DLQ."""
        dlx = fill(self.dlx, exchange=self.source_exchange(queue, self.exchange))
        dlq = fill(self.dlq, queue=queue.name)
        if not {"*", "#"}.isdisjoint(dlq.split(".")):
            raise Invalid(
                f"{dlq} becomes a key on a topic exchange, where its * or # would match other queues' dead letters",
                "rename the queue, or say retry: {dlq: NAME}",
            )
        main = self.main_queue(
            queue,
            {
                "x-dead-letter-exchange": dlx,
                "x-dead-letter-routing-key": dlq,
                # A literal nack loop takes one delivery a run: the broker's own limit must not end it earlier.
                **self.type_arguments(queue, limit=max(DELIVERY_LIMIT_MAIN, self.attempts), dead_letters=True),
            },
        )
        return Built(
            exchanges=(Exchange(name=dlx, type=ExchangeType.TOPIC),),
            queues=(
                main,
                self.dead_letter_queue(queue, dlq),
            ),
            bindings=(*bindings_of(queue), Binding(source=dlx, destination=dlq, routing_key=dlq)),
            routes=RetryRoutes(
                shape=self.name,
                queue=queue.name,
                attempts=self.attempts,
                retry_by=MoveBy.PUBLISH if self.requeue == "copy" else MoveBy.REQUEUE,
                park_by=MoveBy(self.park),
                counted_by=Counter.HEADER if self.requeue == "copy" else Counter.DELIVERIES,
                parking=Parking(queue=dlq, exchange=dlx, routing_key=dlq),
            ),
        )

    def retry(
        self, decision: Retry, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """A counted copy to the end of the queue, or the literal nack, after a pause for the delay.

        A rule may allow more runs than the queue does: the broker must not count those, so they go by a copy.
        """
        if self.requeue == "nack" and report.retries + 1 < routes.attempts:
            # A reject where the message brings a publisher's x-delivery-count: the queue then writes its own over it.
            return (*moves.pause(decision.delay_ms), RequeueDelivery(counted=brings_deliveries(message)))
        counter = routes.counted_by
        return moves.copy_to_queue_end(
            decision.delay_ms, decision.not_before_ms, message, report, counter, counted=True
        )

    def defer(
        self, decision: Defer, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """There is no wait queue: a pause, then a copy to the end of the queue; also in the literal form, since no run
        failed."""
        counter = routes.counted_by
        return moves.copy_to_queue_end(
            decision.wait_ms, decision.not_before_ms, message, report, counter, counted=False
        )
