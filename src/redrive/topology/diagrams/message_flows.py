"""How messages leave a queue unhandled: the broker dead-letters them, or the consumer publishes a copy.

The broker's flows follow from arguments and policies; the consumer's are known only from `RetryRoutes`. Each flow has
its reason, in the words that the picture puts on the arrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from redrive.topology.effective_settings import Settings
from redrive.topology.model import DEFAULT_EXCHANGE, Exchange
from redrive.topology.retry_routes import MoveBy, RetryRoutes
from redrive.topology.routing import Node, Routing


class Mover(StrEnum):
    """Who moves the message."""

    BROKER = "broker"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFlow:
    """One way out of `source`: through `exchange` with `routing_key` (None: the key it came with) to `targets`.

    Without targets the message is lost, and `gap` says why. A flow whose only target is its source is a retry in place.
    """

    source: Node
    mover: Mover
    exchange: Node
    routing_key: str | None
    targets: tuple[Node, ...]
    reason: str
    gap: str = ""

    @property
    def in_place(self) -> bool:
        """Whether the message never leaves its queue for another."""
        return self.targets == (self.source,) and self.mover == Mover.CONSUMER


def broker_flow(
    queue: Node,
    settings: Settings,
    routes: RetryRoutes | None,
    *,
    routing: Routing,
    exchanges: dict[Node, Exchange],
) -> MessageFlow | None:
    """Where the broker dead-letters the messages of a queue, None without a dead-letter exchange."""
    if settings.dead_letter_exchange is None:
        return None
    exchange, key = (queue[0], settings.dead_letter_exchange), settings.dead_letter_routing_key
    keeps_key = key is None
    targets = routing.targets_keeping_key(exchange, queue) if keeps_key else routing.targets(exchange, key)
    return MessageFlow(
        source=queue,
        mover=Mover.BROKER,
        exchange=exchange,
        routing_key=key,
        targets=targets,
        reason=" · ".join(_reasons(settings, routes)),
        gap="" if targets else _gap(exchange, key, exchanges),
    )


def consumer_flows(
    queue: Node, settings: Settings, routes: RetryRoutes | None, *, queues: frozenset[Node]
) -> Iterator[MessageFlow]:
    """What the consumer of a queue publishes or requeues itself, in the order of the delays, parking last."""
    if settings.delayed_retry is not None:
        yield _in_place(queue, f"returned: {settings.delayed_retry}")
    elif routes is not None and _retries_in_place(routes):
        how = "copied to the queue's end" if routes.retry_by == MoveBy.PUBLISH else "returned to the queue"
        yield _in_place(queue, f"{_retries(1, routes.attempts - 1)}: {how}")
    if routes is None:
        return
    if routes.retry_by == MoveBy.PUBLISH:
        retries = routes.attempts - 1
        for number, wait in enumerate(routes.waits, start=1):
            last = number == len(routes.waits)
            reason = _retries(number, retries if last else number) if number <= retries else "longer waits"
            yield _published(queue, wait.exchange, wait.routing_key, wait.queue, reason, queues)
    if routes.park_by == MoveBy.PUBLISH:
        park = routes.parking
        yield _published(queue, park.exchange, park.routing_key, park.queue, _runs(routes.attempts), queues)


def _retries_in_place(routes: RetryRoutes) -> bool:
    return routes.attempts > 1 and not routes.waits and routes.retry_by != MoveBy.REJECT


def _reasons(settings: Settings, routes: RetryRoutes | None) -> list[str]:
    reasons = []
    if settings.delivery_limit is not None and settings.delivery_limit < 1_000_000:
        reasons.append(f"delivery limit {settings.delivery_limit}")
    if settings.drops_head:
        reasons.append("overflow")
    if settings.ttl_ms is not None:
        reasons.append("expired")
    by_reject = routes is not None and MoveBy.REJECT in (routes.retry_by, routes.park_by)
    if by_reject or (routes is None and settings.ttl_ms is None) or not reasons:
        reasons.insert(0, "rejected")
    return reasons


def _gap(exchange: Node, key: str | None, exchanges: dict[Node, Exchange]) -> str:
    if exchange[1] == DEFAULT_EXCHANGE:
        return "to the queue named by its key" if key is None else f"no queue {key}"
    return "nothing bound for it" if exchange in exchanges else "no such exchange"


def _in_place(queue: Node, reason: str) -> MessageFlow:
    return MessageFlow(
        source=queue,
        mover=Mover.CONSUMER,
        exchange=(queue[0], DEFAULT_EXCHANGE),
        routing_key=queue[1],
        targets=(queue,),
        reason=reason,
    )


def _published(
    queue: Node, exchange: str, routing_key: str | None, target: str, reason: str, queues: frozenset[Node]
) -> MessageFlow:
    reached = queue[0], target
    return MessageFlow(
        source=queue,
        mover=Mover.CONSUMER,
        exchange=(queue[0], exchange),
        routing_key=routing_key,
        targets=(reached,) if reached in queues else (),
        reason=reason,
        gap="" if reached in queues else f"no queue {target}",
    )


def _retries(first: int, last: int) -> str:
    return f"retry {first}" if last <= first else f"retry {first}–{last}"


def _runs(attempts: int) -> str:
    return f"after {attempts} run" + ("" if attempts == 1 else "s")
