"""All that a consumer needs to know about one declared queue, in one value.

`Compiled.queue(name)` makes it. A consumer asks it what counts the attempts, which retry policy holds unless its
handler says otherwise, and which commands follow from a decision. It hides whether the queue has a shape or
`retry: false`.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from redrive.core import (
    Command,
    Counter,
    Deaths,
    Decision,
    Parked,
    PublishCopy,
    ReceivedMessage,
    Report,
    Retry,
    RetryPolicy,
)
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.deliveries import moves, no_retry
from redrive.topology.deliveries.message_origin import (
    HeaderTrust,
    handler_routing_key,
    header_trust,
    is_foreign_copy,
    must_be_copied,
)
from redrive.topology.model import DEFAULT_EXCHANGE, Queue, QueueType
from redrive.topology.retry_routes import MoveBy, RetryRoutes
from redrive.topology.shapes.safe_queues import DELIVERY_LIMIT_NEVER
from redrive.topology.shapes.shape import Shape
from redrive.topology.shapes.traits import NO_TRAITS, Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """One declared queue: as declared, as compiled, and the routes around it.

    `shape` and `routes` are None together, for `retry: false`; `dead_letters` matters only then: whether a rejected
    message goes anywhere. `reentry_routes` are the routes (exchange, key) by which tiered retries re-enter an exchange
    that others publish to, each with the queues whose retries they are: those of all declared queues.
    """

    declared: DeclaredQueue
    queue: Queue
    shape: Shape | None
    routes: RetryRoutes | None
    dead_letters: bool = False
    reentry_routes: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.queue.name

    @property
    def shape_name(self) -> str:
        """The shape's name in a declaration; `none` without one."""
        return "none" if self.shape is None else self.shape.name

    @property
    def traits(self) -> Traits:
        """The traits of its shape; the defaults without one."""
        return NO_TRAITS if self.shape is None else self.shape.traits

    @property
    def relies_on_dead_lettering(self) -> bool:
        """Whether a message would be lost, or loop without a pause, if the queue dead-letters nothing."""
        if self.routes is None:
            return self.dead_letters
        rejects = MoveBy.REJECT in (self.routes.retry_by, self.routes.park_by)
        return rejects or self.traits.ends_by_delivery_limit

    @property
    def requeue_costs_attempt(self) -> bool:
        """Whether a requeue may count as a run: where x-delivery-count is the number of runs, and a nack raises it."""
        counted = self.counted_by is Counter.DELIVERIES and self.queue.type == QueueType.QUORUM
        return counted and self.traits.counts_requeues

    def not_guaranteed(self, arguments: Mapping[str, Any], *, default_limit: int | None = 20) -> Iterator[str]:
        """What a quorum queue with these arguments does not guarantee, a sentence each.

        `default_limit` is the broker's own delivery limit (20 from 4.0 on, none before). Classic queues are left out:
        their documents promise none of this.
        """
        routes = self.routes
        if routes is None or self.queue.type != QueueType.QUORUM or "x-dead-letter-exchange" not in arguments:
            return
        is_safe = (arguments.get("x-dead-letter-strategy"), arguments.get("x-overflow"))
        if is_safe != ("at-least-once", "reject-publish"):
            yield (
                "it dead-letters at most once: a message that it passes on while the next queue can't take it is lost"
            )
        limit = arguments.get("x-delivery-limit", default_limit)
        if routes.retry_by is MoveBy.REJECT and isinstance(limit, int) and 0 <= limit < DELIVERY_LIMIT_NEVER:
            yield (
                f"it has a delivery limit of {limit}: the broker drops a message whose consumers die with it more often"
            )

    def dead_lettering_command(self, vhost: str) -> str | None:
        """The command that gives an existing queue its dead-letter settings by a policy; None if it has none."""
        arguments = self.queue.arguments
        if "x-dead-letter-exchange" not in arguments:
            return None
        keys = ("dead-letter-exchange", "dead-letter-routing-key")
        definition = {key: arguments[f"x-{key}"] for key in keys if f"x-{key}" in arguments}
        words = ("-p", vhost, "--apply-to", "queues", f"{self.name}.dead-letters", f"^{re.escape(self.name)}$")
        return shlex.join(["rabbitmqctl", "set_policy", *words, json.dumps(definition, ensure_ascii=False)])

    @property
    def counted_by(self) -> Counter:
        """What counts the retries (`core.count_retries`)."""
        return no_retry.COUNTED_BY if self.routes is None else self.routes.counted_by

    @property
    def policy(self) -> RetryPolicy:
        """When and how often to retry, by the declaration; a handler may override it."""
        if self.shape is None or self.routes is None:
            attempts_max = 1 if self.dead_letters else no_retry.ATTEMPTS_UNBOUNDED
            return RetryPolicy(attempts_max=attempts_max, backoff=no_retry.BACKOFF)
        return RetryPolicy(
            attempts_max=self.routes.attempts, backoff=self.shape.backoff(), other_4xx=self.shape.unlisted_4xx
        )

    def commands(self, decision: Decision, message: ReceivedMessage, report: Report) -> tuple[Command, ...]:
        """The commands in order; the last one settles the delivery, and no other does."""
        if self.shape is None or self.routes is None:
            return no_retry.commands(decision, message, report, queue=self.queue, dead_letters=self.dead_letters)
        return self.shape.commands(decision, message, self.routes, report)

    def parking_copy(self, decision: Parked, message: ReceivedMessage, report: Report) -> PublishCopy | None:
        """The copy that parks a message which can't be settled any more; None if the target is not known.

        It goes where `commands` would send the message, also where they are a reject.
        """
        if self.routes is not None:
            return moves.parking_copy(decision, message, self.routes, report)
        if not self.dead_letters:
            return None
        return no_retry.parking_copy(decision, message, report, queue=self.queue)

    def is_parking(self, copy: PublishCopy) -> bool:
        """Whether a copy goes to the parking queue."""
        if self.routes is None:
            return copy.exchange == self.queue.arguments.get("x-dead-letter-exchange")
        parking = self.routes.parking
        return copy.exchange == parking.exchange and parking.routing_key in (None, copy.routing_key)

    def is_queue_end(self, copy: PublishCopy) -> bool:
        """Whether a copy goes to the end of this very queue."""
        return copy.exchange == DEFAULT_EXCHANGE and copy.routing_key == self.name

    @property
    def retries_survive_deletion(self) -> bool:
        """Whether messages that wait for a retry stay in their wait queue while this queue is deleted, and come back
        once it exists again."""
        routes = self.routes
        return (
            routes is not None
            and routes.retry_by is MoveBy.PUBLISH
            and routes.reentry is None
            and bool(routes.waits)
            and self.queue.arguments.get("x-dead-letter-strategy") == "at-least-once"
        )

    def rejects(self, decision: Retry, message: ReceivedMessage) -> bool:
        """Whether `commands` would be one reject without requeue: cheaper than `commands`, and the most frequent
        case."""
        return (
            self.shape is not None
            and self.routes is not None
            and self.routes.retry_by is MoveBy.REJECT
            and self.shape.rejects(decision, message, self.routes)
        )

    def is_foreign(self, message: ReceivedMessage) -> bool:
        """Whether a delivery is a copy of another queue's retry, to be acked unhandled (`Skip`)."""
        tiered = self.reentry_routes.get((message.exchange, message.routing_key))
        if tiered is None or not (self.shape is None or self.shape.skips_foreign):
            return False
        return is_foreign_copy(message, tiered)

    def must_be_copied(self, message: ReceivedMessage) -> bool:
        """Whether a retry must be a copy, because a reject would take harmful headers along."""
        return must_be_copied(message)

    def is_reentry(self, route: tuple[str, str]) -> bool:
        """Whether this queue's own retries re-enter an exchange by this route."""
        return self.name in self.reentry_routes.get(route, ())

    def header_trust(
        self,
        route: tuple[str, str],
        *,
        digest: Any,
        original_queue: Any,
        digest_for: Callable[[str], str],
        deaths: Callable[[], Deaths | None],
    ) -> HeaderTrust:
        """Which of our headers on a delivery to trust (`message_origin.header_trust`); `deaths` reads its x-death."""

        def has_waited_here() -> bool:
            known = deaths()
            waits = () if self.routes is None else self.routes.waits
            return known is not None and known.has_expired_in({wait.queue for wait in waits})

        return header_trust(
            queue=self.name,
            route=route,
            digest=digest,
            original_queue=original_queue,
            tiered=self.reentry_routes.get(route, frozenset()),
            digest_for=digest_for,
            has_waited_here=has_waited_here,
        )

    def handler_routing_key(self, message: ReceivedMessage) -> str:
        """The key to show to the handler: the original one, also on a retry."""
        return handler_routing_key(message)
