"""The settings in force for a queue: its own arguments together with the policies that match it.

Owns the precedence that the broker applies: a dead-letter exchange, key and strategy written as arguments win over a
policy; of limits and times the smaller holds; of all matching policies only the one with the highest priority counts,
beside the one operator policy. Knows nothing of bindings or of pictures."""

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
    """The settings of one queue that decide where its messages go, and what a diagram says about it."""

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
    """Matches the policies of a topology to names: patterns are compiled once, the highest priority comes first."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._of: dict[tuple[str, bool], list[tuple[re.Pattern[str], Policy]]] = defaultdict(list)
        for policy in sorted(policies, key=lambda one: -one.priority):
            try:
                pattern = re.compile(policy.pattern)
            except re.error:
                continue  # Erlang's regular expressions differ from Python's; what Python can't read matches nothing.
            self._of[policy.vhost, policy.operator].append((pattern, policy))

    def for_queue(self, queue: Queue) -> tuple[Policy | None, Policy | None]:
        """The policy and the operator policy in force for a queue."""
        both = [
            next((one for one in self._matching(queue.vhost, queue.name, operator) if _covers(one, queue)), None)
            for operator in (False, True)
        ]
        return both[0], both[1]

    def for_exchange(self, exchange: Exchange) -> Policy | None:
        """The policy in force for an exchange; operator policies are for queues only."""
        matching = self._matching(exchange.vhost, exchange.name, False)
        return next((one for one in matching if one.apply_to in ("all", "exchanges")), None)

    def _matching(self, vhost: str, name: str, operator: bool) -> Iterator[Policy]:
        return (policy for pattern, policy in self._of.get((vhost, operator), ()) if pattern.search(name))


def queue_settings(queue: Queue, policies: PolicyMatcher) -> Settings:
    """The settings in force for this queue."""
    policy, operator = policies.for_queue(queue)
    by_policy = policy.definition if policy else NO_ARGUMENTS
    by_operator = operator.definition if operator else NO_ARGUMENTS
    sources = _Sources(queue.arguments, by_policy, by_operator)
    overflow = by_policy.get("overflow", queue.arguments.get("x-overflow"))
    bounded = sources.smallest("max-length") is not None or sources.smallest("max-length-bytes") is not None
    return Settings(
        dead_letter_exchange=sources.text("dead-letter-exchange"),
        dead_letter_routing_key=sources.text("dead-letter-routing-key"),
        ttl_ms=sources.smallest("message-ttl"),
        delivery_limit=sources.smallest("delivery-limit"),
        drops_head=bounded and overflow in (None, "drop-head"),
        delayed_retry=_delayed_retry(sources),
        policy=policy.name if policy else None,
        facts=tuple(_facts(queue, sources, policy, operator)),
    )


def alternate_exchange(exchange: Exchange, policies: PolicyMatcher) -> str | None:
    """Where unroutable messages go, by argument or by policy."""
    if exchange.alternate_exchange is not None:
        return exchange.alternate_exchange
    policy = policies.for_exchange(exchange)
    named = policy.definition.get("alternate-exchange") if policy else None
    return named if isinstance(named, str) else None


@dataclass(frozen=True, slots=True)
class _Sources:
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


def _delayed_retry(sources: _Sources) -> str | None:
    kind = sources.text("delayed-retry-type")
    if kind in (None, "disabled"):
        return None
    least, most = sources.smallest("delayed-retry-min"), sources.smallest("delayed-retry-max")
    if least is None:
        return "waits inside the queue"
    limit = "" if most is None else f", up to {duration(most)}"
    return f"waits {duration(least)} × n{limit}"


def _facts(queue: Queue, sources: _Sources, policy: Policy | None, operator: Policy | None) -> Iterator[str]:
    limit = sources.smallest("delivery-limit")
    if limit is not None and limit < 1_000_000:  # a million means "never": see docs/decisions/0004-delivery-limits.md
        yield f"delivery limit {limit}"
    if (ttl_ms := sources.smallest("message-ttl")) is not None:
        yield f"TTL {duration(ttl_ms)}"
    if sources.text("dead-letter-strategy") == "at-least-once":
        yield "at-least-once"
    for key, words in (("max-length", "max {:,}"), ("max-length-bytes", "max {:,} bytes")):
        if (most := sources.smallest(key)) is not None:
            yield words.format(most)
    if (expires_ms := sources.smallest("expires")) is not None:
        yield f"expires {duration(expires_ms)}"
    if (priorities := sources.smallest("max-priority")) is not None:
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
    """A duration for people, also for nonsense such as the negative time of a foreign file."""
    return format_duration_ms(milliseconds) if milliseconds >= 0 else f"{milliseconds}ms"
