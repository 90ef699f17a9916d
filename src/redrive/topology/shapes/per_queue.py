"""`per-queue` (the file pipeline): each queue has its own retry exchange, 15 s retry queue, DLQ exchange and DLQ.

    q.X ──rejected, as retry──▶ retry.q.X ──▶ q.X.retry ──after 15s──▶ q.X
    q.X ──consumer publishes parking──▶ dlq.q.X ──▶ q.X.dlq         (after 3 runs)

Guarantees: the document's names and arguments; a retry never reaches another consumer of the same event. Not
guaranteed: the reject hop, which on classic queues, as the document has them, is at most once; `type: quorum` closes
that.

A retry is a reject, so its delay is the retry queue's, even if less was asked for. For a longer one, from a
`RetryAfter`, a copy goes into the retry queue, again and again until its time has come. It carries that time
(`x-redrive-not-before`) and the count so far (`x-redrive-attempts-before`, since x-death starts anew with a copy). A
handler sees the original routing key on a retry too; the broker's own is the queue's name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from redrive.core import Backoff, Counter, Fixed
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.model import Binding, Exchange, ExchangeType
from redrive.topology.option_types import Delays, DurationText, Template, fill, option, parse_duration_ms
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait
from redrive.topology.shapes.documented import DocumentedShape
from redrive.topology.shapes.safe_queues import bindings_of
from redrive.topology.shapes.shape import ATTEMPTS, Built

_NAME = Template(("queue",), required=("queue",))
_RETRY_KEY = "retry"
_PARKING_KEY = "parking"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerQueueShape(DocumentedShape):
    """A retry loop by reject and a DLQ behind an exchange of its own, for each queue."""

    name: ClassVar[str] = "per-queue"

    delays: Sequence[DurationText] = option(
        Delays(1, "shape per-queue has one retry queue; use ladder for several delays"), ("15s",), "the one delay"
    )
    attempts: int = option(ATTEMPTS, 3, "handler runs, the first included")
    retry_exchange: str = option(_NAME, "retry.{queue}", "names the retry exchange")
    wait: str = option(_NAME, "{queue}.retry", "names the retry queue")
    dlq_exchange: str = option(_NAME, "dlq.{queue}", "names the dead-letter exchange")
    dlq: str = option(_NAME, "{queue}.dlq", "names the dead-letter queue")

    def backoff(self) -> Backoff:
        """The one delay."""
        return Fixed(str(self.delays[0]))

    def build(self, queue: DeclaredQueue) -> Built:
        """The queue with its own retry loop and DLQ."""
        retry_exchange, retry_queue = fill(self.retry_exchange, queue=queue.name), fill(self.wait, queue=queue.name)
        dlq_exchange, dlq = fill(self.dlq_exchange, queue=queue.name), fill(self.dlq, queue=queue.name)
        wait = Wait(
            delay_ms=parse_duration_ms(str(self.delays[0])),
            queue=retry_queue,
            exchange=retry_exchange,
            routing_key=_RETRY_KEY,
        )
        rejected_to = {"x-dead-letter-exchange": retry_exchange, "x-dead-letter-routing-key": _RETRY_KEY}
        return Built(
            exchanges=(
                Exchange(name=retry_exchange, type=ExchangeType.DIRECT),
                Exchange(name=dlq_exchange, type=ExchangeType.DIRECT),
            ),
            queues=self.reject_loop(queue, rejected_to=rejected_to, wait=wait, dlq=dlq),
            bindings=(
                *bindings_of(queue),
                Binding(source=retry_exchange, destination=retry_queue, routing_key=_RETRY_KEY),
                Binding(source=dlq_exchange, destination=dlq, routing_key=_PARKING_KEY),
            ),
            routes=RetryRoutes(
                shape=self.name,
                queue=queue.name,
                attempts=self.attempts,
                retry_by=MoveBy.REJECT,
                park_by=MoveBy.PUBLISH,
                counted_by=Counter.REJECTIONS,
                parking=Parking(queue=dlq, exchange=dlq_exchange, routing_key=_PARKING_KEY),
                waits=(wait,),
            ),
        )
