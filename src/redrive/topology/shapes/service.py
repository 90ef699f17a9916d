"""`service` (event-bus): per service one queue behind a fanout exchange, one 5 s retry queue, one DLQ.

    wms.main-exchange (fanout) ──▶ wms.queue.wms-cincout
    wms.queue.wms-cincout ──rejected, as retry──▶ wms.retry-exchange.wms-cincout ──▶ wms.retry-queue.wms-cincout
    wms.retry-queue.wms-cincout ──after 5s──▶ wms.queue.wms-cincout
    wms.queue.wms-cincout ──consumer publishes──▶ wms.dlq.wms-cincout      (after 10 retries)

The prefix is the service's name up to its first hyphen, `default` without one. Guarantees: the document's names, types
and arguments; a retry reaches the failed service only. Not guaranteed: the reject hop, which on classic queues, as the
document has them, is at most once: the broker loses a message it can't dead-letter. `type: quorum` closes that.

A retry is a reject, so its delay is the retry queue's, even if less was asked for. For a longer one, from a
`RetryAfter`, a copy goes into the retry queue, again and again until its time has come. It carries that time
(`x-redrive-not-before`) and the count so far (`x-redrive-attempts-before`, since x-death starts anew with a copy). A
handler sees the original routing key on a retry too; the broker's own is the queue's name.

A 425 (`REQUEUE`), after its pause, requeues the message by a copy to the end of the queue, so x-death starts anew and
the count goes on in `x-redrive-attempts-before`: a nack would look like a consumer that died with the message. With
`crashes_max=None` on the consumer, which then counts no such deaths, it is the document's nack, and x-death is kept;
only a message without a `timestamp` is copied there too, to record when it was first seen (for `processAfterDelayMs`).

On a dead letter `x-final-retry-count` is the number of rejections from the service's queue in x-death, plus
`x-redrive-attempts-before` if a copy came between: 10 and 10 in the plain case. If it is moved back by hand with its
headers, counting goes on from there, as the document has it; `redrive dlq redrive` begins anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from redrive.core import Backoff, Counter, Fixed
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.model import DEFAULT_EXCHANGE, Binding, Exchange, ExchangeType
from redrive.topology.option_types import (
    Choice,
    Delays,
    DurationText,
    Invalid,
    Template,
    Text,
    fill,
    option,
    parse_duration_ms,
)
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait
from redrive.topology.shapes.documented import DocumentedShape
from redrive.topology.shapes.safe_queues import bindings_of
from redrive.topology.shapes.shape import ATTEMPTS, Built
from redrive.topology.shapes.traits import Traits

_NAMES = ("service", "prefix")
_RETRY_KEY = "retry"


def service_prefix(service: str) -> str:
    """`wms-cincout` → `wms`; a name without a hyphen (or with nothing before it) → `default`."""
    prefix, hyphen, _ = service.partition("-")
    return prefix if hyphen and prefix else "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceShape(DocumentedShape):
    """One queue, one short retry loop by reject and one DLQ per service, named by its prefix."""

    name: ClassVar[str] = "service"
    traits: ClassVar[Traits] = Traits(
        honours_process_after=True, attempts_spent_tag="RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"
    )

    delays: Sequence[DurationText] = option(
        Delays(1, "shape service has one retry queue; use ladder for several delays"), ("5s",), "the one delay"
    )
    attempts: int = option(ATTEMPTS, 11, "handler runs, the first included: 10 retries make 11")
    service: str | None = option(Text(optional=True), None, "the service's name; under `services:` it is the key")
    queue: str = option(Template(_NAMES, required=("service",)), "{prefix}.queue.{service}", "names the queue itself")
    main_exchange: str = option(Template(_NAMES), "{prefix}.main-exchange", "names the fanout exchange all publish to")
    retry_exchange: str = option(
        Template(_NAMES, required=("service",)), "{prefix}.retry-exchange.{service}", "names the retry exchange"
    )
    wait: str = option(
        Template(_NAMES, required=("service",)), "{prefix}.retry-queue.{service}", "names the retry queue"
    )
    dlq: str = option(Template(_NAMES, required=("service",)), "{prefix}.dlq.{service}", "names the dead-letter queue")
    other_4xx: str = option(
        Choice(("park", "retry")),
        "park",
        "what a 4xx other than 408, 409, 425, 429 means; retry is the document's form",
    )

    def queue_name(self, service: str) -> str:
        """The name of a service's queue."""
        return fill(self.queue, service=service, prefix=service_prefix(service))

    @property
    def unlisted_4xx(self) -> Literal["park", "retry"]:
        """As `other_4xx` says."""
        return "retry" if self.other_4xx == "retry" else "park"

    def backoff(self) -> Backoff:
        """The one delay."""
        return Fixed(str(self.delays[0]))

    def build(self, queue: DeclaredQueue) -> Built:
        """The service's queue, retry loop and DLQ, and the fanout exchange it shares with its prefix."""
        if self.service is None:
            raise Invalid(
                "shape service needs the service's name",
                "say retry: {service: NAME}, or list it under services:",
                ("retry",),
            )
        names = {"service": self.service, "prefix": service_prefix(self.service)}
        main_exchange, retry_exchange = fill(self.main_exchange, **names), fill(self.retry_exchange, **names)
        dlq = fill(self.dlq, **names)
        wait = Wait(
            delay_ms=parse_duration_ms(str(self.delays[0])),
            queue=fill(self.wait, **names),
            exchange=retry_exchange,
            routing_key=_RETRY_KEY,
        )
        rejected_to = {"x-dead-letter-exchange": retry_exchange, "x-dead-letter-routing-key": _RETRY_KEY}
        return Built(
            exchanges=(
                Exchange(name=main_exchange, type=ExchangeType.FANOUT),
                Exchange(name=retry_exchange, type=ExchangeType.DIRECT),
            ),
            queues=self.reject_loop(queue, rejected_to=rejected_to, wait=wait, dlq=dlq),
            bindings=(
                Binding(source=main_exchange, destination=queue.name),
                *bindings_of(queue),
                Binding(source=retry_exchange, destination=wait.queue, routing_key=_RETRY_KEY),
            ),
            routes=RetryRoutes(
                shape=self.name,
                queue=queue.name,
                attempts=self.attempts,
                retry_by=MoveBy.REJECT,
                park_by=MoveBy.PUBLISH,
                counted_by=Counter.REJECTIONS,
                parking=Parking(queue=dlq, exchange=DEFAULT_EXCHANGE, routing_key=dlq),
                waits=(wait,),
            ),
        )
