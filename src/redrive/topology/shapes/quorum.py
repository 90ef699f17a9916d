"""`quorum` (Ratatoskr): quorum queues, retry through the default exchange, a fanout exchange before the DLQ.

    my-service.events ──rejected──▶ my-service.events.retry ──after 30s──▶ my-service.events
    my-service.events ──consumer publishes──▶ my-service.events.dlq (fanout) ──▶ my-service.events.dlq

Guarantees: the document's names and arguments; at-least-once on both hops of the loop, which the document promises and
stock quorum queues do not keep (`at_least_once: false` is the stock form); delivery limits that never drop a message
(`safe_limits: false` leaves 4.x's default of 20, whose deaths the broker drops as a cycle). Not guaranteed: that
`x-retry-count` rises by itself; a nack changes no header, so attempts are counted by x-death, and the dead letter gets
it as `x-retry-count`.

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
from redrive.topology.model import DEFAULT_EXCHANGE, Binding, Exchange, ExchangeType
from redrive.topology.option_types import Delays, DurationText, Template, fill, option, parse_duration_ms
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait
from redrive.topology.shapes.documented import DocumentedShape
from redrive.topology.shapes.safe_queues import bindings_of, dead_letter_to
from redrive.topology.shapes.shape import ATTEMPTS, Built
from redrive.topology.shapes.traits import Traits

_NAME = Template(("queue",), required=("queue",))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumShape(DocumentedShape):
    """A quorum retry loop through the default exchange, and a DLQ behind a fanout exchange of the same name."""

    name: ClassVar[str] = "quorum"
    traits: ClassVar[Traits] = Traits(quorum_only=True)

    delays: Sequence[DurationText] = option(
        Delays(1, "shape quorum has one retry queue; use ladder for several delays"), ("30s",), "the one delay"
    )
    attempts: int = option(ATTEMPTS, 4, "handler runs, the first included: 3 retries make 4")
    wait: str = option(_NAME, "{queue}.retry", "names the retry queue")
    dlq_exchange: str = option(_NAME, "{queue}.dlq", "names the fanout exchange before the DLQ")
    dlq: str = option(_NAME, "{queue}.dlq", "names the dead-letter queue")

    def backoff(self) -> Backoff:
        """The one delay."""
        return Fixed(str(self.delays[0]))

    def build(self, queue: DeclaredQueue) -> Built:
        """The queue, its retry queue, its DLQ and the exchange before it."""
        retry_queue = fill(self.wait, queue=queue.name)
        dlq_exchange, dlq = fill(self.dlq_exchange, queue=queue.name), fill(self.dlq, queue=queue.name)
        delay_ms = parse_duration_ms(str(self.delays[0]))
        wait = Wait(delay_ms=delay_ms, queue=retry_queue, exchange=DEFAULT_EXCHANGE, routing_key=retry_queue)
        return Built(
            exchanges=(Exchange(name=dlq_exchange, type=ExchangeType.FANOUT),),
            queues=self.reject_loop(queue, rejected_to=dead_letter_to(retry_queue), wait=wait, dlq=dlq),
            bindings=(*bindings_of(queue), Binding(source=dlq_exchange, destination=dlq)),
            routes=RetryRoutes(
                shape=self.name,
                queue=queue.name,
                attempts=self.attempts,
                retry_by=MoveBy.REJECT,
                park_by=MoveBy.PUBLISH,
                counted_by=Counter.REJECTIONS,
                parking=Parking(queue=dlq, exchange=dlq_exchange, routing_key=""),
                waits=(wait,),
            ),
        )
