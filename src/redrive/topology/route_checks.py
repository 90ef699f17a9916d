"""Checks on the compiled topology that the routes of every shape lead where they should, and nowhere else.

A shape knows its own queue only. Two shapes with the same naming template, another queue bound to a retry exchange, a
policy whose pattern also matches a wait queue: each can make the broker lose, multiply or misroute messages, although
every object by itself is right.
"""

from collections.abc import Iterator
from typing import NamedTuple

from redrive.topology.argument_table import Arguments
from redrive.topology.effective_settings import PolicyMatcher
from redrive.topology.model import DEFAULT_EXCHANGE, DEFAULT_VHOST, Exchange, Queue, Topology
from redrive.topology.retry_routes import MoveBy, RetryRoutes
from redrive.topology.routing import Node, Routing
from redrive.topology.shapes.safe_queues import DELIVERY_LIMIT_NEVER


class RouteProblem(NamedTuple):
    """A problem with the routes of one queue; `path` is below that queue's entry."""

    queue: str
    code: str
    summary: str
    hint: str
    path: tuple[str, ...] = ()


class RouteChecks:
    """The checks of one compiled topology in the default vhost."""

    def __init__(self, topology: Topology, retry_routes: list[RetryRoutes]) -> None:
        self._retry_routes = retry_routes
        self._queues = {one.name: one for one in topology.queues}
        self._exchanges = {one.name: one for one in topology.exchanges}
        self._policies = PolicyMatcher(topology.policies) if topology.policies else None
        self._routing = Routing(
            {(one.vhost, one.name): one for one in topology.exchanges},
            [(one.vhost, one.name) for one in topology.queues],
            topology.bindings,
            {},
        )

    def problems(self) -> Iterator[RouteProblem]:
        """All problems, queue by queue."""
        for one in self._retry_routes:
            yield from self._check_targets(one)
            yield from self._check_reentry(one)
            if self._policies is not None:
                yield from self._check_policies(one, self._policies)

    def _check_targets(self, one: RetryRoutes) -> Iterator[RouteProblem]:
        """A message that is published or rejected into a wait or parking queue arrives there and nowhere else."""
        for wait in one.waits:
            yield from self._check_target(one, wait.exchange, wait.routing_key, wait.queue, "retry")
        yield from self._check_target(
            one, one.parking.exchange, one.parking.routing_key, one.parking.queue, "dead letter"
        )

    def _check_target(
        self, one: RetryRoutes, exchange: str, key: str | None, queue: str, what: str
    ) -> Iterator[RouteProblem]:
        if exchange == DEFAULT_EXCHANGE:
            return
        others = [name for name in self._reached(exchange, key) if name != queue]
        if others:
            written = "" if key in (None, "") else f" as {key}"
            yield RouteProblem(
                one.queue,
                "retry-multiplies" if what == "retry" else "dead-letter-multiplies",
                f"a {what} sent to exchange {exchange}{written} would reach queue {', '.join(others[:3])} as well",
                "give the two exchanges, domains or queues names of their own",
                ("retry",),
            )

    def _check_reentry(self, one: RetryRoutes) -> Iterator[RouteProblem]:
        """A message that comes back from its wait through an exchange must reach its queue again, or it is lost."""
        reentry_routes = {
            (waiting.dead_letter_exchange, waiting.dead_letter_routing_key): None
            for wait in one.waits
            if (waiting := self._queues.get(wait.queue)) is not None
        }
        for exchange, key in reentry_routes:
            if not exchange or key is None:
                continue
            if one.queue not in self._reached(exchange, key):
                yield RouteProblem(
                    one.queue,
                    "retry-never-returns",
                    f"a retried message comes back to exchange {exchange} as {key}, which no binding of this queue"
                    " matches",
                    f"bind it with {key.rpartition('.')[0]}.* or {key}",
                    ("from",),
                )
                return
            found = self._exchanges.get(exchange)
            if found is not None and not _lasts(found):
                yield RouteProblem(
                    one.queue,
                    "retry-never-returns",
                    f"a retried message comes back through exchange {exchange}, which does not outlive a restart or"
                    " its last binding",
                    "make the exchange durable, without auto_delete",
                    ("from",),
                )
                return

    def _reached(self, exchange: str, key: str | None) -> list[str]:
        node: Node = (DEFAULT_VHOST, exchange)
        return [name for _, name in self._routing.targets(node, key)]

    def _check_policies(self, one: RetryRoutes, policies: PolicyMatcher) -> Iterator[RouteProblem]:
        waiting = {wait.queue for wait in one.waits}
        for name in (one.queue, *(wait.queue for wait in one.waits), one.parking.queue):
            queue = self._queues.get(name)
            if queue is None:
                continue
            for policy in policies.for_queue(queue):
                if policy is None:
                    continue
                for what in _undone(queue, policy.definition, one, is_wait=name in waiting):
                    yield RouteProblem(
                        one.queue,
                        "policy-undoes-shape",
                        f"{policy.address} matches {queue.address} and {what}",
                        "narrow the policy's pattern",
                        ("retry",),
                    )


def _undone(queue: Queue, definition: Arguments, one: RetryRoutes, *, is_wait: bool) -> Iterator[str]:
    """What a policy would undo of the shape's promises for this queue."""
    is_parking = queue.name == one.parking.queue
    loops = queue.name == one.queue and one.retry_by is MoveBy.REJECT
    if "expires" in definition:
        yield "deletes it with its messages when it is idle (expires)"
    if "message-ttl" in definition and (is_parking or loops or is_wait):
        yield "changes how long it waits (message-ttl)" if is_wait else "lets its messages expire (message-ttl)"
    bounded = [key for key in ("max-length", "max-length-bytes") if key in definition]
    keeps = queue.arguments.get("x-overflow") == "reject-publish" and definition.get("overflow") in (
        None,
        "reject-publish",
    )
    if bounded and (is_parking or not keeps):
        yield f"lets it discard messages ({bounded[0]})"
    if "x-dead-letter-strategy" in queue.arguments and definition.get("overflow") not in (None, "reject-publish"):
        yield "turns at-least-once dead-lettering off (overflow)"
    if "dead-letter-exchange" in definition and queue.dead_letter_exchange is None:
        yield "sends its messages elsewhere (dead-letter-exchange)"
    limit = definition.get("delivery-limit")
    if isinstance(limit, int) and queue.delivery_limit == DELIVERY_LIMIT_NEVER and limit < DELIVERY_LIMIT_NEVER:
        yield "drops what is returned too often (delivery-limit)"


def _lasts(exchange: Exchange) -> bool:
    return exchange.durable and not exchange.auto_delete
