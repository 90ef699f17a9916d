"""`tiered` (FreeFlow): delay tiers per domain behind one direct retry exchange, back through the main exchange.

    freeflow.user ──consumer publishes user.30s──▶ freeflow.events.retry ──▶ freeflow.user.retry.30s
    freeflow.user.retry.30s ──after 30s, as user.retry──▶ freeflow.events ──user.*──▶ freeflow.user
    freeflow.user ──parked──▶ freeflow.events.dlx (fanout) ──▶ freeflow.events.dlq

Guarantees: the document's names, keys and arguments; delays that never block each other; one DLQ for all.
Not guaranteed: that no other queue sees a retry. The message re-enters the main exchange, so every queue bound with
`<domain>.*` or `#` gets a copy. Our consumer acks such copies unhandled (`skip_foreign`) if the queue they belong to is
declared in the same file and the copy is ours beyond doubt; other implementations handle them twice.
The hop back is at most once where the wait queues are classic, as the document has them; `type: quorum` makes it at
least once. A retry belongs to the queue it names in `x-original-queue`: empty a queue's tiers before you rename or
remove it, or all other consumers skip what comes back from them.

The copy carries the document's `x-retry-count`, `x-original-routing-key` and `x-original-exchange`, besides
`x-original-queue`; a handler sees the original key on a retry too. Delays between the tiers, and above them, are kept
as in `ladder`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from redrive.core import Backoff, Counter, Listed
from redrive.topology.argument_table import Arguments
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.deliveries.message_origin import RETRY_WORD
from redrive.topology.model import Binding, Exchange, ExchangeType, Queue
from redrive.topology.option_types import (
    Choice,
    Delays,
    DurationText,
    Flag,
    Template,
    Text,
    fill,
    option,
    parse_duration_ms,
)
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait
from redrive.topology.shapes.documented import DocumentedShape
from redrive.topology.shapes.safe_queues import DELIVERY_LIMIT_MAIN, DELIVERY_LIMIT_NEVER, bindings_of
from redrive.topology.shapes.shape import ATTEMPTS_BY_DELAYS, Built

_NAMES = ("queue", "domain", "exchange")


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredShape(DocumentedShape):
    """Wait queues per domain and delay; messages return through the main exchange as `<domain>.retry`."""

    name: ClassVar[str] = "tiered"

    delays: Sequence[DurationText] = option(Delays(), ("30s", "5m", "30m"), "the tiers")
    attempts: int | None = option(
        ATTEMPTS_BY_DELAYS, None, "handler runs, the first included; by default one per tier after it"
    )
    exchange: str | None = option(
        Text(optional=True), None, "the main exchange; by default the one the queue is bound to"
    )
    domain: str | None = option(
        Text(optional=True), None, "the first word of the routing keys; by default the last of the queue's name"
    )
    wait: str = option(
        Template((*_NAMES, "delay"), required=("delay",)), "{queue}.retry.{delay}", "names the wait queues"
    )
    retry_exchange: str = option(Template(("exchange",)), "{exchange}.retry", "names the retry exchange")
    dlx: str = option(Template(("exchange",)), "{exchange}.dlx", "names the dead-letter exchange")
    dlq: str = option(Template(("exchange",)), "{exchange}.dlq", "names the dead-letter queue")
    park: str = option(
        Choice(("publish", "reject")), "publish", "publish keeps the error; reject is the document's form and can't"
    )
    skip_foreign: bool = option(
        Flag(), True, "ack copies of other queues' retries unhandled; false handles them, as the document would"
    )

    def backoff(self) -> Backoff:
        """The delays in their order; the last repeats."""
        return Listed(str(delay) for delay in self.delays)

    def build(self, queue: DeclaredQueue) -> Built:
        """The queue, its tiers, and the exchanges and DLQ it shares with its neighbours."""
        exchange = self.source_exchange(queue, self.exchange)
        domain = queue.name.rpartition(".")[2] if self.domain is None else self.domain
        retry_exchange = fill(self.retry_exchange, exchange=exchange)
        dlx, dlq = fill(self.dlx, exchange=exchange), fill(self.dlq, exchange=exchange)
        reentry_key = f"{domain}.{RETRY_WORD}"
        main = self.main_queue(
            queue,
            {
                "x-dead-letter-exchange": dlx,
                **self.type_arguments(queue, limit=DELIVERY_LIMIT_MAIN, dead_letters=True),
            },
        )
        return_to = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": reentry_key}
        waits = tuple(
            Wait(
                delay_ms=parse_duration_ms(str(delay)),
                queue=fill(self.wait, queue=queue.name, domain=domain, exchange=exchange, delay=str(delay)),
                exchange=retry_exchange,
                routing_key=f"{domain}.{delay}",
            )
            for delay in dict.fromkeys(self.delays)
        )
        return Built(
            exchanges=(
                Exchange(name=retry_exchange, type=ExchangeType.DIRECT),
                # Fanout: dead letters keep their routing key, and a direct DLX with no match would lose them.
                Exchange(name=dlx, type=ExchangeType.FANOUT),
            ),
            queues=(
                main,
                *(self._wait_queue(queue, wait, return_to) for wait in waits),
                self.dead_letter_queue(queue, dlq),
            ),
            bindings=(
                *bindings_of(queue),
                *(
                    Binding(source=retry_exchange, destination=wait.queue, routing_key=wait.routing_key)
                    for wait in waits
                ),
                Binding(source=dlx, destination=dlq),
            ),
            routes=RetryRoutes(
                shape=self.name,
                queue=queue.name,
                attempts=len(self.delays) + 1 if self.attempts is None else self.attempts,
                retry_by=MoveBy.PUBLISH,
                park_by=MoveBy(self.park),
                counted_by=Counter.HEADER,
                parking=Parking(queue=dlq, exchange=dlx, routing_key=None),
                waits=waits,
                reentry=(exchange, reentry_key),
            ),
        )

    @property
    def skips_foreign(self) -> bool:
        """Not where the document's own behaviour was chosen."""
        return self.skip_foreign

    def _wait_queue(self, queue: DeclaredQueue, wait: Wait, return_to: dict[str, Any]) -> Queue:
        return Queue(
            name=wait.queue,
            arguments=Arguments(
                {
                    "x-message-ttl": wait.delay_ms,
                    **return_to,
                    **self.type_arguments(queue, limit=DELIVERY_LIMIT_NEVER, dead_letters=True),
                }
            ),
        )
