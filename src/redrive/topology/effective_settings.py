"""What holds for a queue once its own arguments and the policies that match it are put together.

Owns the precedence the broker applies: a dead-letter exchange, key and strategy written as arguments win over a policy;
of limits and times the smaller holds; of all matching policies only the one with the highest priority counts, beside
the one operator policy. Knows nothing of bindings or of pictures.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from redrive.core import format_duration_ms
from redrive.topology.argument_table import NO_ARGUMENTS, Arguments, Value
from redrive.topology.model import Exchange, Policy, Queue, QueueType

_QUEUE_SCOPES = {
    "all": None,
    "queues": None,
    "classic_queues": QueueType.CLASSIC,
    "quorum_queues": QueueType.QUORUM,
    "streams": QueueType.STREAM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one queue that decide where its messages go, and what a picture says about it."""

    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    ttl_ms: int | None = None
    delivery_limit: int | None = None
    drops_head: bool = False
    delayed_retry: str | None = None
    policy: str | None = None
    facts: tuple[str, ...] = ()
    """The important arguments, each in two or three words ("delivery limit 20", "at-least-once")."""


class PolicyMatcher:
    """The policies of a topology, ready to be asked for many names: patterns compiled once, highest priority first."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._of: dict[tuple[str, bool], list[tuple[re.Pattern[str], Policy]]] = defaultdict(list)
        for policy in sorted(policies, key=lambda one: -one.priority):
            try:
                pattern = re.compile(policy.pattern)
            except re.error:
                continue  # Erlang's expressions are not quite Python's; one that can't be read matches nothing here.
            self._of[policy.vhost, policy.operator].append((pattern, policy))

    def for_queue(self, queue: Queue) -> tuple[Policy | None, Policy | None]:
        """The policy and the operator policy in force for a queue."""
        both = [
            next((one for one in self._matching(queue.vhost, queue.name, operator) if _covers(one, queue)), None)
            for operator in (False, True)
        ]
        return both[0], both[1]

    def for_exchange(self, exchange: Exchange) -> Policy | None:
        """The policy in force for an exchange; operator policies speak of queues only."""
        matching = self._matching(exchange.vhost, exchange.name, False)
        return next((one for one in matching if one.apply_to in ("all", "exchanges")), None)

    def _matching(self, vhost: str, name: str, operator: bool) -> Iterator[Policy]:
        return (policy for pattern, policy in self._of.get((vhost, operator), ()) if pattern.search(name))


def queue_settings(queue: Queue, book: PolicyMatcher) -> Settings:
    """What holds for this queue."""
    policy, operator = book.for_queue(queue)
    by_policy = policy.definition if policy else NO_ARGUMENTS
    by_operator = operator.definition if operator else NO_ARGUMENTS
    asked = _Asked(queue.arguments, by_policy, by_operator)
    overflow = by_policy.get("overflow", queue.arguments.get("x-overflow"))
    bounded = asked.smallest("max-length") is not None or asked.smallest("max-length-bytes") is not None
    return Settings(
        dead_letter_exchange=asked.text("dead-letter-exchange"),
        dead_letter_routing_key=asked.text("dead-letter-routing-key"),
        ttl_ms=asked.smallest("message-ttl"),
        delivery_limit=asked.smallest("delivery-limit"),
        drops_head=bounded and overflow in (None, "drop-head"),
        delayed_retry=_delayed_retry(asked),
        policy=policy.name if policy else None,
        facts=tuple(_facts(queue, asked, policy, operator)),
    )


def alternate_exchange(exchange: Exchange, book: PolicyMatcher) -> str | None:
    """Where unroutable messages go, by argument or by policy."""
    if exchange.alternate_exchange is not None:
        return exchange.alternate_exchange
    policy = book.for_exchange(exchange)
    named = policy.definition.get("alternate-exchange") if policy else None
    return named if isinstance(named, str) else None


@dataclass(frozen=True, slots=True)
class _Asked:
    arguments: Arguments
    policy: Arguments
    operator: Arguments

    def all(self, key: str) -> tuple[Value, ...]:
        return self.arguments.get(f"x-{key}"), self.policy.get(key), self.operator.get(key)

    def text(self, key: str) -> str | None:
        return next((value for value in self.all(key) if isinstance(value, str)), None)

    def smallest(self, key: str) -> int | None:
        numbers = [value for value in self.all(key) if isinstance(value, int) and not isinstance(value, bool)]
        return min(numbers, default=None)


def _covers(policy: Policy, queue: Queue) -> bool:
    if policy.apply_to not in _QUEUE_SCOPES:
        return False
    kind = _QUEUE_SCOPES[policy.apply_to]
    return kind is None or kind == queue.type


def _delayed_retry(asked: _Asked) -> str | None:
    kind = asked.text("delayed-retry-type")
    if kind in (None, "disabled"):
        return None
    least, most = asked.smallest("delayed-retry-min"), asked.smallest("delayed-retry-max")
    if least is None:
        return "waits inside the queue"
    limit = "" if most is None else f", up to {duration(most)}"
    return f"waits {duration(least)} × n{limit}"


def _facts(queue: Queue, asked: _Asked, policy: Policy | None, operator: Policy | None) -> Iterator[str]:
    limit = asked.smallest("delivery-limit")
    if limit is not None and limit < 1_000_000:  # a million is how "never" is written, see the facts on delivery limits
        yield f"delivery limit {limit}"
    if (ttl_ms := asked.smallest("message-ttl")) is not None:
        yield f"TTL {duration(ttl_ms)}"
    if asked.text("dead-letter-strategy") == "at-least-once":
        yield "at-least-once"
    for key, words in (("max-length", "max {:,}"), ("max-length-bytes", "max {:,} bytes")):
        if (most := asked.smallest(key)) is not None:
            yield words.format(most)
    if (expires_ms := asked.smallest("expires")) is not None:
        yield f"expires {duration(expires_ms)}"
    if (priorities := asked.smallest("max-priority")) is not None:
        yield f"priorities {priorities}"
    if queue.arguments.get("x-single-active-consumer") is True:
        yield "single active consumer"
    if queue.auto_delete:
        yield "auto-delete"
    if not queue.durable:
        yield "transient"
    for kind, one in (("policy", policy), ("operator policy", operator)):
        if one is not None:
            yield f"{kind} {one.name}"


def duration(milliseconds: int) -> str:
    """A duration for people, also where a foreign file holds nonsense such as a negative time."""
    return format_duration_ms(milliseconds) if milliseconds >= 0 else f"{milliseconds}ms"
